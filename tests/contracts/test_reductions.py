"""What every reduction must do: any cut of the edges, merged in order, is the whole, with its gradients.

Chunks and parts are merged one after the other, ranks and shards of a hub together. The reductions that there
are stand beside one more, a class of its own in `reduction_jobs`, that nothing else knows of.
"""

from typing import Any

import pytest
import reduction_jobs
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import run_ranks
from torch import Tensor

from weft.graph import Block, Graph
from weft.graph.message import propagate as module
from weft.graph.message.propagate import contribute
from weft.graph.message.reduction import Propagation
from weft.graph.reductions import ByRow, Contribution, RowReduction, Running, reduction, reductions
from weft.pipeline.infer.hubs import Recalled, Written

NAMES = [*reductions.names(), "norm"]
ROWS, PARTS = 5, 4


@pytest.fixture(autouse=True, scope="module")
def one_more() -> Any:
    reductions._entries["norm"] = reduction_jobs.Norm
    yield
    del reductions._entries["norm"]


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the row of each edge (often that of a hub), its part, and small whole numbers, with ties."""
    count = draw(st.integers(0, 25))
    hub = draw(st.booleans())
    rows = st.just(0) if hub else st.integers(0, ROWS - 1)
    dst = draw(st.lists(st.one_of(rows, st.integers(0, ROWS - 1)), min_size=count, max_size=count))
    part = draw(st.lists(st.integers(0, PARTS - 1), min_size=count, max_size=count))
    numbers = draw(st.lists(st.integers(-3, 3), min_size=count * 4, max_size=count * 4))
    values = torch.tensor(numbers, dtype=torch.float64).reshape(count, 4)
    return torch.tensor(dst, dtype=torch.int64), torch.tensor(part, dtype=torch.int64), values


def made_of(name: str, values: Tensor) -> Any:
    """Return messages of values: for a softmax scores, of which the lowest are masked, and values."""
    if name != "softmax":
        return values
    score = values[:, :2].where(values[:, :2] > -3, -torch.inf)
    return score, values.reshape(-1, 2, 2)


def plain(name: str, made: Any, dst: Tensor) -> Tensor:
    """Return the whole by its definition, row by row."""
    out = []
    for row in range(ROWS):
        if name == "softmax":
            score, value = (each[dst == row] for each in made)
            share = score.softmax(0).nan_to_num(0.0)
            out.append((share[..., None] * value).sum(0))
            continue
        own = made[dst == row]
        if name in ("max", "min") and not len(own):
            own = made.new_zeros(1, 4)
        out.append(getattr(own, {"max": "amax", "min": "amin", "norm": "norm"}.get(name, "sum"))(dim=0))
    return torch.stack(out)


def parts_of(dst: Tensor, part: Tensor) -> list[tuple[Tensor, Tensor, ByRow]]:
    """Return of each part its edges, the rows that these reach, and the edges by these rows."""
    found = []
    for number in range(PARTS):
        edges = (part == number).nonzero().flatten()
        rows = torch.unique(dst[edges])
        found.append((edges, rows, ByRow.of(torch.searchsorted(rows, dst[edges]), len(rows))))
    return found


def towards(like: Tensor) -> Tensor:
    return torch.linspace(-1, 2, like.numel(), dtype=like.dtype).reshape(like.shape)


def close(found: Contribution, wanted: Contribution) -> bool:
    return all(
        torch.allclose(a, b.to(a.dtype), atol=1e-12)
        for a, b in zip(found, wanted)
        if a is not None and b is not None
    )


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(cut=cuts())
def test_parts_merged_one_after_the_other_are_the_whole(name: str, cut: tuple[Tensor, ...]) -> None:
    dst, part, values = cut
    kind: RowReduction = reduction(name)
    leaf = values.requires_grad_()
    edges = kind.contributions(made_of(name, leaf))
    whole = kind.reduced(ByRow.of(dst, ROWS), edges)
    assert torch.allclose(whole.value.flatten(1), plain(name, made_of(name, values), dst).flatten(1))

    running = Running(kind, ROWS)
    running.add(kind.reduced(ByRow.of(dst[:0], 0), edges.at(slice(0, 0))), slice(0, 0))
    with torch.no_grad():
        for places, rows, by_row in parts_of(dst, part):
            running.add(kind.reduced(by_row, edges.at(places)), rows)
    assert close(running.whole, whole)

    grad = towards(whole.value)
    inputs = [each for each in edges if each is not None]
    wanted = torch.autograd.grad(whole.value, inputs, grad, allow_unused=True)
    with torch.no_grad():
        for places, _, _ in parts_of(dst, part):
            found = kind.gradients(running.whole, edges.at(places), dst[places], Contribution(grad))
            assert close(found, Contribution(*wanted).at(places))


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(cut=cuts())
def test_parts_reduced_together_are_the_whole(name: str, cut: tuple[Tensor, ...]) -> None:
    dst, part, values = cut
    kind: RowReduction = reduction(name)
    leaf = values.requires_grad_()
    edges = kind.contributions(made_of(name, leaf))
    whole = kind.reduced(ByRow.of(dst, ROWS), edges)
    each = [
        kind.reduced(ByRow.of(dst[part == number], ROWS), edges.at(part == number)) for number in range(PARTS)
    ]
    travelled = zip(*(one.packed() for one in each))
    given = each[0].unpacked([torch.cat(tensors) for tensors in travelled])
    merged = kind.reduced(ByRow.of(torch.arange(ROWS).repeat(PARTS), ROWS), given)
    assert close(merged, whole)
    (found,) = torch.autograd.grad(merged.value, leaf, towards(whole.value), retain_graph=True)
    (wanted,) = torch.autograd.grad(whole.value, leaf, towards(whole.value))
    assert torch.allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("edges", [[[0, 1, 2, 2, 1], [3, 3, 3, 3, 0]], [[], []]], ids=["hub", "no edges"])
def test_chunks_give_what_all_edges_do_at_once(
    name: str, edges: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph.from_edges(torch.tensor(edges, dtype=torch.int64).reshape(2, -1), num_nodes=5)
    leaves, weights = reduction_jobs.inputs(5), torch.arange(5).double().cos()
    wanted = reduction_jobs.run(graph.block(), name, leaves, weights)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 14)
    for found, expected in zip(reduction_jobs.run(graph.block(), name, leaves, weights), wanted):
        assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_shards_of_a_hub_give_what_all_edges_do(name: str) -> None:
    leaves = reduction_jobs.inputs(8)

    def of(sources: Tensor) -> Contribution:
        block = Block(torch.tensor([0, len(sources)]), sources, num_src=8)

        def message(u: Tensor, v: Tensor, w: Tensor) -> Any:
            return reduction_jobs.message(name, u, v, w)

        how = Propagation(message, [leaves[0]], [leaves[1][:1]], [], name, [leaves[2]])
        return contribute(block, how)

    made = []
    for sources in torch.arange(8).split([3, 1, 4]):
        written = Written()
        assert bool(written(reduction(name), of(sources)).isnan().all())
        made.append(torch.cat(written.results))
    found = Recalled(torch.stack(made))(reduction(name), of(torch.arange(0)))
    assert torch.allclose(found, of(torch.arange(8)).value, atol=1e-12)


def test_ranks_give_what_one_process_does() -> None:
    assert run_ranks(2, reduction_jobs.every_reduction_on_ranks) == [[], []]


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="one of max, mean, min, norm, softmax, sum; got 'median'"):
        reduction("median")
