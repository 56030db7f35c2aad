"""Messages that read other edges than their own, or change what they reach, give what plain torch gives."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from tests.support.messages import plain_result
from torch import Tensor, nn

import weft
from weft.compiler.programs.program import Edges
from weft.errors import GraphError
from weft.graph import Block, Graph
from weft.graph.message import compiled, propagate
from weft.graph.message.crossing import crossed
from weft.graph.message.reduction import Propagation

NODES, EDGES, WIDTH = 12, 90, 4


@pytest.fixture(params=[True, False], ids=["compiler on", "compiler off"], autouse=True)
def small_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compile on the smallest graph, and cut edges into many parts."""
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 0)
    monkeypatch.setattr(propagate, "CHUNK_ELEMENTS", 40)
    before = weft.compile_messages(request.param)
    yield
    weft.compile_messages(before)


def block() -> Block:
    draw = torch.Generator().manual_seed(0)
    return Graph.from_edges(torch.randint(0, NODES, (2, EDGES), generator=draw), num_nodes=NODES).block()


def rows() -> Tensor:
    return torch.randn(
        NODES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()


def branched(u: Tensor) -> Tensor:
    return u * 2 if u.sum() > 0 else u


def by_number(u: Tensor) -> Tensor:
    return u * 2 if len(u) > 80 else u


def normed(u: Tensor) -> Tensor:
    return nn.functional.batch_norm(u, None, None, training=True)


def drawn_behind_a_mean(u: Tensor) -> Tensor:
    return nn.functional.dropout(u - u.mean(0), 0.5)


def drawn_in_one_behind_a_mean(u: Tensor) -> Tensor:
    return torch.native_dropout(u - u.mean(0), 0.5, True)[0]  # what dropout is on a GPU


OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda u: u - u.mean(0),
    "flipped": lambda u: u.flip(0),
    "numbered": lambda u: u * torch.arange(len(u)).unsqueeze(1),
    "sorted": lambda u: u.sort(0).values,
    "branched": branched,
    "by number": by_number,
    "batch norm": normed,
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_message_that_reads_other_edges_is_made_of_all_at_once(name: str) -> None:
    h, edges = rows(), block()
    for reduce in ("sum", "max"):
        found = edges.propagate(OTHERS[name], src=(h,), reduce=reduce)
        want = plain_result(OTHERS[name], Edges(edges.indptr, edges.indices, NODES), reduce, src=[h])
        torch.testing.assert_close(found, want)
        ours, theirs = (torch.autograd.grad(out.square().sum(), h)[0] for out in (found, want))
        torch.testing.assert_close(ours, theirs)


DRAWN = {"drawn": drawn_behind_a_mean, "drawn in one": drawn_in_one_behind_a_mean}


@pytest.mark.parametrize("name", [*OTHERS, *DRAWN])
def test_a_message_that_reads_other_edges_is_refused_where_others_have_them(name: str) -> None:
    message = {**OTHERS, **DRAWN}[name]
    with pytest.raises(GraphError, match="depends on other edges"):
        crossed(Propagation(message, [rows()]), lambda h: False)


ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "sorted": lambda u: u.sort(1).values,
    "drawn": lambda u: nn.functional.dropout(u, 0.5),
    "flipped": lambda u: u.flip(1),
    "normed": lambda u: nn.functional.group_norm(u, 2),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_message_of_its_own_edge_is_made_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        propagate, "in_chunks", lambda plan, how: asked.append(how) or propagate.Contribution(rows())
    )
    block().propagate(ALONE[name], src=(rows(),))
    assert len(asked) == 1
    crossed(Propagation(ALONE[name], [rows()]), lambda h: False)


@pytest.mark.parametrize("elements", [40, 1 << 22])
def test_a_batch_norm_inside_a_message_counts_each_call_once(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(propagate, "CHUNK_ELEMENTS", elements)
    h, edges, norms = rows(), block(), [nn.BatchNorm1d(WIDTH).double() for _ in range(2)]
    for _ in range(3):
        edges.propagate(norms[0], src=(h,)).sum().backward()
        norms[1](h[edges.indices.long()])
    for ours, theirs in zip(norms[0].buffers(), norms[1].buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


CALLS = {"number": 0}


def counting(u: Tensor) -> Tensor:
    CALLS["number"] += 1
    return u * CALLS["number"]


def test_a_message_that_counts_its_calls_is_called_once_a_call() -> None:
    h, edges, began = rows(), block(), CALLS["number"]
    for call in range(began + 1, began + 4):
        found = edges.propagate(counting, src=(h,))
        torch.testing.assert_close(found, edges.propagate(lambda u, by=call: u * by, src=(h,)))
        assert CALLS["number"] == call


OWN_RANDOM, OWN_NUMPY = random.Random(0), np.random.default_rng(0)
PYTHON_DRAWS: dict[str, Callable[[], float]] = {
    "random": lambda: random.random(),
    "numpy": lambda: float(np.random.rand()),
    "own random": lambda: OWN_RANDOM.random(),
    "own numpy": lambda: float(OWN_NUMPY.random()),
}


@pytest.mark.parametrize("name", PYTHON_DRAWS)
def test_draws_of_python_and_numpy_are_drawn_once_a_call(name: str) -> None:
    h, edges, draw = rows(), block(), PYTHON_DRAWS[name]
    states = random.getstate(), np.random.get_state(), OWN_RANDOM.getstate(), OWN_NUMPY.bit_generator.state
    for _ in range(2):
        edges.propagate(lambda u: u * draw(), src=(h,)).sum().backward()
    found, last = h.grad, draw()
    random.setstate(states[0])
    np.random.set_state(states[1])
    OWN_RANDOM.setstate(states[2])
    OWN_NUMPY.bit_generator.state = states[3]
    factor = draw() + draw()
    degree = torch.bincount(edges.indices.long(), minlength=NODES).double()
    torch.testing.assert_close(found, factor * degree[:, None].expand(-1, WIDTH))
    assert draw() == last


def test_an_iterator_is_read_once_a_call() -> None:
    h, edges, values = rows(), block(), iter([2.0, 3.0, 4.0])
    for by in (2.0, 3.0):
        found = edges.propagate(lambda u: u * next(values), src=(h,))
        torch.testing.assert_close(found, edges.propagate(lambda u, by=by: u * by, src=(h,)))
    assert next(values) == 4.0


SHARED_DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "a number": lambda u: u * torch.rand(()),
    "a vector": lambda u: u * nn.functional.dropout(torch.ones(WIDTH), 0.5),
    "in one": lambda u: u * torch.native_dropout(torch.ones(WIDTH), 0.5, True)[0],
}


@pytest.mark.parametrize("name", SHARED_DRAWS)
def test_what_is_drawn_for_all_edges_is_drawn_once(name: str) -> None:
    h, edges, message = rows(), block(), SHARED_DRAWS[name]
    torch.manual_seed(3)
    found = edges.propagate(message, src=(h,))
    torch.manual_seed(3)
    want = plain_result(message, Edges(edges.indptr, edges.indices, NODES), "sum", src=[h])
    torch.testing.assert_close(found, want)


def test_casts_of_autocast_are_as_they_were_after_a_message() -> None:
    linear, h = nn.Linear(WIDTH, WIDTH), torch.randn(NODES, WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = block().propagate(lambda u: linear(u), src=(h,))
        whole = linear(h)
        second = block().propagate(lambda u: linear(u) * 2, src=(h,))
    assert type(whole) is Tensor
    (found,) = torch.autograd.grad(whole.sum() + second.sum() + first.sum(), linear.bias)
    torch.testing.assert_close(found, torch.full((WIDTH,), NODES + 3.0 * EDGES), rtol=0.02, atol=0.1)


def test_a_wrong_shape_is_told_by_torch_of_all_edges_and_logged_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(RuntimeError, match=r"90x4 and 7x3"):
        block().propagate(lambda u: u @ torch.ones(7, 3).double(), src=(rows(),))
    assert not caplog.records


@pytest.mark.parametrize("reduce", ["mean", "softmax"])
def test_weighted_means_of_whole_numbers_are_refused(reduce: str) -> None:
    def message(u: Tensor) -> Any:
        return (u[:, 0], u.long()) if reduce == "softmax" else u.long()

    with pytest.raises(GraphError, match="floating"):
        block().propagate(message, src=(rows(),), reduce=reduce)


def test_a_message_that_is_tried_in_its_first_forward_alone_is_checkpointed() -> None:
    h, edges, weight = rows(), block(), torch.full((WIDTH,), 0.5, dtype=torch.float64, requires_grad=True)

    def layer(h: Tensor) -> Tensor:
        return edges.propagate(lambda u: (u * weight).sigmoid(), src=(h,))  # type: ignore[no-any-return]

    kept = torch.utils.checkpoint.checkpoint(layer, h, use_reentrant=False)
    found = [torch.autograd.grad(out.square().sum(), (h, weight)) for out in (kept, layer(h))]
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_hide_nothing(bad: float) -> None:
    h, edges = rows(), block()
    h.data[0, 0] = bad
    for message in (lambda u: u.sort(1).values, lambda u: u - u[:, 1:].mean(0).sum()):
        found = edges.propagate(message, src=(h,))
        want = plain_result(message, Edges(edges.indptr, edges.indices, NODES), "sum", src=[h])
        torch.testing.assert_close(found, want, equal_nan=True)
