"""What of a message crosses the network, and that the rest of it makes the same messages."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft.compiler.ranks.crossing import Travellers, cross, crossing
from weft.compiler.tracing.captures import NotCompiled
from weft.compiler.tracing.trace import Form, Role
from weft.graph import Block, Graph
from weft.graph.message.compiled import compiled_of
from weft.graph.message.crossing import crossed, crossing_of
from weft.graph.message.propagate import propagate
from weft.graph.message.reduction import Propagation

NODES, WIDTH = 9, 16
BOTH = ("source", "destination")


class Own(nn.Module):
    """Messages whose narrowest values differ."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 32)
        self.ends, self.attention = nn.Linear(2 * WIDTH, 6), nn.Parameter(torch.randn(2, 2, 4))
        self.by_kind = nn.Parameter(torch.randn(2, 8, 4))

    def attended(self, u: Tensor, v: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        u, v = self.narrow(u).view(-1, 2, 4), self.narrow(v).view(-1, 2, 4)
        return F.leaky_relu((u * self.attention[0]).sum(-1) + (v * self.attention[1]).sum(-1) * e, 0.2), u

    def gated(self, u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return self.ends(torch.cat([u, v], 1)).sigmoid() * e

    def scored(self, u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return (u * v.sum(1, keepdim=True)).tanh() + self.wide(u)[:, :WIDTH]

    def widened(self, u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return self.wide(u) * e

    def one_number(self, u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return u.square().sum(1, keepdim=True).sqrt() * v[:, :5]

    def columns(self, u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return (u[:, :3] - v[:, 3:6]) * e

    def typed(self, u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        kind = (e[:, 0] > 1).long()
        return torch.einsum("ef,efo->eo", self.narrow(u) * v[:, :1], self.by_kind[kind])


CASES: dict[str, tuple[str, list[int], list[int]]] = {
    "attended": ("softmax", [8], [2]),  # the scores of sources come of the values that are there
    "gated": ("sum", [6], [6]),
    "scored": ("sum", [16], [1]),  # of raw rows all else is made
    "widened": ("mean", [16], []),
    "one_number": ("max", [1], [5]),
    "columns": ("min", [3], [3]),
    "typed": ("sum", [8], [1]),
}


def asked(own: Own, name: str, block: Block, h: Tensor) -> Propagation:
    e = torch.linspace(0.5, 1.5, block.num_edges, dtype=h.dtype)[:, None]
    return Propagation(getattr(own, name), (h,), (block.dst(h),), (e,), CASES[name][0])


def case() -> tuple[Own, Block, Tensor]:
    torch.manual_seed(0)
    edges = torch.randint(0, NODES, (2, 40), generator=torch.Generator().manual_seed(1))
    h = torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True)
    return Own().double(), Graph.from_edges(edges, num_nodes=NODES).block(), h


def never(h: Tensor) -> bool:
    return False


@pytest.mark.parametrize("name", CASES)
def test_the_narrowest_values_travel(name: str) -> None:
    own, block, h = case()
    how = asked(own, name, block, h)
    found = crossing_of(how, never, travels=BOTH)
    if found is None:  # all that was given
        made = {"source": [WIDTH], "destination": [WIDTH]}
    else:
        sent = found[0].sent
        made = {end: [each.nbytes // 8 for each in sent if each.end == end] for end in BOTH}
        assert all(each.backward for each in sent)
    assert [made["source"], made["destination"]] == list(CASES[name][1:])


def test_the_rest_of_a_matrix_by_relation_runs_on_pairs() -> None:
    own, block, h = case()
    found = compiled_of(crossed(asked(own, "typed", block, h), never, travels=BOTH))
    assert not isinstance(found, str)
    assert found[0].by_relation is not None


@pytest.mark.parametrize("travels", [("source",), BOTH])
@pytest.mark.parametrize("name", CASES)
def test_the_rest_makes_the_same_messages(name: str, travels: Any) -> None:
    own, block, h = case()
    how = asked(own, name, block, h)
    leaves = [h, *own.parameters()]
    found = []
    for each in (how, crossed(how, never, travels=travels)):
        out = propagate(block, each)
        grad = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        found.append([out, *torch.autograd.grad(out, leaves, grad, allow_unused=True)])
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain)


def test_rows_that_are_there_already_are_read_raw() -> None:
    own, block, h = case()
    assert crossing_of(asked(own, "gated", block, h), lambda each: each is h) is None
    assert crossing_of(asked(own, "gated", block, h), never) is not None


def test_a_gradient_that_does_not_come_back_is_not_counted() -> None:
    own, block, h = case()
    fixed = h.detach()

    def message(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return own.narrow(u)[:, :WIDTH] * v[:, :1] * e + own.ends(torch.cat([u, u], 1))[:, :1]

    def sent(given: Tensor) -> Any:
        e = torch.ones(block.num_edges, 1, dtype=given.dtype)
        return crossing_of(Propagation(message, (given,), (given,), (e,)), never)

    assert [each.shape for each in sent(h)[0].sent] == [(8,), (1,)]  # 18 numbers both ways, of 32
    assert sent(fixed) is None  # 16 numbers one way, of 18
    with torch.no_grad():
        assert [each.shape for each in sent(h)[0].sent] == [(8,), (1,)]


def test_what_is_not_compiled_travels_as_it_was_given() -> None:
    _, _, h = case()

    how = Propagation(lambda u, v: (u - v).sort(1).values[:, :2], (h,), (h,))
    assert crossed(how, never) is how
    before = weft.compile_messages(False)
    try:
        cut = Propagation(lambda u: u[:, :2], (h,))
        assert crossed(cut, never) is cut
    finally:
        weft.compile_messages(before)


def test_a_message_that_reads_other_edges_does_not_cross() -> None:
    roles: tuple[Role, ...] = ("source", "destination")
    forms = [Form.of(role, torch.empty(9, WIDTH)) for role in roles]
    ends = Travellers(BOTH, (False, False), (True, True), learns=True)
    cross(lambda u, v: u[:, :2] - v[:, :2], forms, ends)
    with pytest.raises(NotCompiled):
        cross(lambda u, v: u[:, :2] - (u - v)[:, :2].mean(0), forms, ends)


def test_constants_captured_by_number_and_by_tensor_are_read_anew() -> None:
    own, block, h = case()
    results = []
    for factor in (2.0, 3.0):

        def message(u: Tensor, v: Tensor, f: float = factor) -> Tensor:
            return own.narrow(u) * f

        with torch.no_grad():
            own.narrow.weight.mul_(2)
        how = Propagation(message, (h,), (h,))
        made = crossed(how, never)
        assert made is not how
        torch.testing.assert_close(propagate(block, made), propagate(block, how))
        results.append(propagate(block, made))
    assert not torch.allclose(*results)


def test_lines_tell_what_crosses() -> None:
    own, block, h = case()
    found = crossing_of(asked(own, "one_number", block, h), never)
    assert found is not None
    assert found[0].lines() == ["sqrt of sources, 1 float64: 8 bytes a row, forward and its gradient back"]


def test_a_message_that_is_summed_is_another_than_the_same_that_is_not() -> None:
    own, rows = Own(), torch.ones(NODES, WIDTH)

    def message(u: Tensor, v: Tensor) -> Tensor:
        return own.narrow((u * v).tanh())  # type: ignore[no-any-return]

    ends = Travellers(BOTH, (False, False), (True, True), learns=True)
    found = [crossing(message, BOTH, [rows, rows], ends, sums=sums) for sums in (False, True, False)]
    assert [not isinstance(each, str) and each[0].sums is not None for each in found] == [False, True, False]
