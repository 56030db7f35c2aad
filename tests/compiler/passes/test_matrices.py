"""A matrix that a linear map makes for an edge is never there: its row is a mixture of maps."""

from collections.abc import Callable

import pytest
import torch
from tests.support.messages import assert_same, forms_of
from tests.support.programs import edges_of
from torch import Tensor, nn

from weft.compiler.annotate import residency
from weft.compiler.compile import compile_message
from weft.compiler.graphs import value

IN, OUT, FEW = 6, 5, 3
EDGES = edges_of(7)
NET = nn.Sequential(nn.Linear(2, FEW), nn.ReLU(), nn.Linear(FEW, IN * OUT)).double()
PLAIN = nn.Linear(2, IN * OUT, bias=False).double()
Message = Callable[[Tensor, Tensor, Tensor], Tensor]

MESSAGES: dict[str, tuple[Message, str]] = {
    "as PyG's NNConv": (
        lambda u, v, e: torch.matmul(u.unsqueeze(1), NET(e).view(-1, IN, OUT)).squeeze(1),
        "sum",
    ),
    "without bias": (lambda u, v, e: (PLAIN(e).view(-1, IN, OUT) * u.unsqueeze(2)).sum(1), "sum"),
    "times a column": (lambda u, v, e: (NET(e).view(-1, OUT, IN) @ u.unsqueeze(2)).squeeze(2), "sum"),
    "under max": (lambda u, v, e: torch.einsum("ei,eio->eo", u, NET(e).view(-1, IN, OUT)), "max"),
    "of the destination": (
        lambda u, v, e: torch.einsum("ei,eoi->eo", v, NET(e).view(-1, OUT, IN)) * u[:, :1],
        "sum",
    ),
    "of both ends' numbers": (
        lambda u, v, e: torch.einsum("ei,eio->eo", u, NET((u * v)[:, :2]).view(-1, IN, OUT)),
        "sum",
    ),
}


def tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def given() -> dict[str, list[Tensor]]:
    ends = {"src": [tensor(EDGES.num_other, IN)], "dst": [tensor(EDGES.num_rows, IN)]}
    return {**ends, "edge": [tensor(EDGES.num_edges, 2)]}


def widest_of_edges(message: Message, reduce: str, *without: str) -> int:
    """Return the most numbers that a value of edges has."""
    graph = compile_message(message, forms_of(**given()), reduce, without=without).graph
    nodes = (node for node in graph.nodes if node.op == "call_function")
    return max(value(each).shape[1:].numel() for each in nodes if residency(each) in ("edge", "pair"))


@pytest.mark.parametrize("without", [(), ("matrices",), ("behind",)], ids=["on", "off", "before the sum"])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_matrix_of_an_edge_equals_torch(name: str, without: tuple[str, ...]) -> None:
    message, reduce = MESSAGES[name]
    assert_same(message, EDGES, reduce, [*NET.parameters(), *PLAIN.parameters()], without=without, **given())


@pytest.mark.parametrize("name", [each for each in MESSAGES if each != "without bias"])  # which goes behind
def test_no_edge_has_a_matrix_of_its_own(name: str) -> None:
    message, reduce = MESSAGES[name]
    assert widest_of_edges(message, reduce) < IN * OUT
    assert widest_of_edges(message, reduce, "matrices") == IN * OUT


def test_a_map_of_more_numbers_than_rows_have_stays() -> None:
    wide = nn.Linear(2 * IN, IN * OUT).double()

    def message(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        numbers = torch.cat([e.tanh() * each for each in range(IN)], 1)
        return torch.einsum("ei,eio->eo", u, wide(numbers).view(-1, IN, OUT))

    assert widest_of_edges(message, "sum") == IN * OUT
    assert_same(message, EDGES, "sum", [*wide.parameters()], **given())


def test_a_matrix_that_is_bent_is_none_of_a_linear_map() -> None:
    def message(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return torch.einsum("ei,eio->eo", u, NET(e).tanh().view(-1, IN, OUT))

    assert widest_of_edges(message, "sum") == IN * OUT
    assert_same(message, EDGES, "sum", [*NET.parameters()], **given())
