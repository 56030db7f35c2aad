"""What is linear goes behind a sum, and stays before an extreme."""

import pytest
import torch
from tests.support.messages import assert_same, compiled_result, forms_of, rewritten
from tests.support.programs import edges_of
from torch import Tensor, nn

from weft.compiler.compile import compile_message

EDGES = edges_of(7)
WIDE = torch.float64
U = torch.randn(EDGES.num_other, 4, dtype=WIDE, requires_grad=True)
V = torch.randn(EDGES.num_rows, 4, dtype=WIDE, requires_grad=True)
E = torch.randn(EDGES.num_edges, 1, dtype=WIDE, requires_grad=True)
ENDS = {"src": [U], "dst": [V]}
SQUARE = torch.randn(4, 4, dtype=WIDE)
MAP, OUT = nn.Linear(4, 3).to(WIDE), nn.Linear(4, 9).to(WIDE)


def wheres(message: object, reduce: str, *names: str, **given: list[Tensor]) -> dict[str, str]:
    return dict(rewritten(message, reduce, *names, **(given or ENDS)))  # type: ignore[arg-type]


def test_a_map_of_edges_runs_on_rows_after_a_sum_alone() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return MAP((u + v).relu())  # type: ignore[no-any-return]

    assert wheres(message, "sum", "normal")["mm"] == "pair"
    assert wheres(message, "sum", "normal", "behind")["mm"] == "reduced"
    assert wheres(message, "max", "normal", "behind")["mm"] == "pair"
    for reduce in ("sum", "max"):
        assert_same(message, EDGES, reduce, [*MAP.parameters()], **ENDS)


def test_a_factor_of_the_row_and_a_number_of_the_edge_let_the_map_through() -> None:
    def message(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return MAP((u - v).tanh()) * e * v[:, :1]  # type: ignore[no-any-return]

    given = {**ENDS, "edge": [E]}
    assert wheres(message, "sum", "normal", "behind", **given)["mm"] == "reduced"
    assert_same(message, EDGES, "sum", [*MAP.parameters()], **given)


def test_a_factor_of_the_row_inside_of_a_number_of_the_edge_stays_a_factor() -> None:
    def message(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return MAP((u - v).tanh()) * v[:, :1] * e  # type: ignore[no-any-return]

    given = {**ENDS, "edge": [E]}
    assert wheres(message, "sum", "normal", "behind", **given)["mm"] == "reduced"
    assert_same(message, EDGES, "sum", [*MAP.parameters()], **given)


def test_a_map_of_sources_goes_behind_where_it_widens() -> None:
    assert wheres(lambda u, v: OUT(u), "sum", "normal", "behind")["mm"] == "reduced"
    assert wheres(lambda u, v: MAP(u), "sum", "normal", "behind")["mm"] == "source"


@pytest.mark.parametrize("shape", [(3,), (1, 3), (1,), (1, 1)])
def test_a_bias_of_any_rank_is_added_once_an_edge(shape: tuple[int, ...]) -> None:
    bias = torch.randn(shape, dtype=WIDE, requires_grad=True)

    def message(u: Tensor, v: Tensor) -> Tensor:
        return MAP((u - v).relu()) - bias  # type: ignore[no-any-return]

    assert wheres(message, "sum", "normal", "behind")["mm"] == "reduced"
    assert_same(message, EDGES, "sum", [bias, *MAP.parameters()], **ENDS)


@pytest.mark.parametrize("shape", [(3,), (1,), (3, 1), (3, 3), (1, 3, 3)])
def test_a_bias_of_any_rank_is_added_to_heads(shape: tuple[int, ...]) -> None:
    bias = torch.randn(shape, dtype=WIDE, requires_grad=True)

    def message(u: Tensor, v: Tensor) -> Tensor:
        return OUT((u - v).relu()).view(-1, 3, 3) + bias  # type: ignore[no-any-return]

    assert_same(message, EDGES, "sum", [bias, *OUT.parameters()], **ENDS)


def test_a_map_of_each_head_has_its_bias() -> None:
    head = nn.Linear(2, 5).to(WIDE)

    def message(u: Tensor, v: Tensor) -> Tensor:
        return head((u - v).relu().view(-1, 2, 2))  # type: ignore[no-any-return]

    assert wheres(message, "sum", "normal", "behind")["mm"] == "reduced"
    assert_same(message, EDGES, "sum", [*head.parameters()], **ENDS)


@pytest.mark.parametrize("how", ["floor", "trunc"])
def test_a_rounded_quotient_stays_on_the_edges(how: str) -> None:
    assert_same(lambda u, v: torch.div(u, v, rounding_mode=how), EDGES, "sum", **ENDS)
    assert_same(lambda u, v: MAP(torch.div(u - v, 2.0, rounding_mode=how)), EDGES, "sum", **ENDS)
    assert_same(lambda u, v: torch.div(u - v, 2.0, rounding_mode=how)[:, 1:3], EDGES, "sum", **ENDS)


DEGREE = EDGES.indptr.diff().to(WIDE).unsqueeze(1)


def test_a_row_without_edges_is_zero_whatever_its_factor_is() -> None:
    assert (DEGREE == 0).any()
    assert_same(lambda u, d: u / d, EDGES, "sum", src=[U], dst=[DEGREE.clone().requires_grad_()])
    assert_same(lambda u, d: u * (1 / d), EDGES, "sum", src=[U], dst=[DEGREE])
    assert_same(lambda u, d: u * d, EDGES, "sum", src=[U], dst=[(1 / DEGREE).requires_grad_()])
    assert_same(lambda u, d: OUT(u) + d, EDGES, "sum", src=[U], dst=[DEGREE.log().requires_grad_()])


def test_a_factor_that_is_given_leaves_nothing_to_run_on_nodes_before() -> None:
    made = compile_message(lambda u, v: u * v, forms_of(**ENDS), "sum")
    assert not made.on_nodes


def test_a_row_without_edges_is_zero_whatever_is_added_to_its_messages() -> None:
    empty = EDGES.indptr.diff() == 0
    assert empty.any()
    here = V.detach().masked_fill(empty.view(-1, 1), torch.inf)

    def message(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return (u * e).tanh() @ SQUARE + v

    given = {"src": [U], "dst": [here], "edge": [E]}
    assert wheres(message, "sum", "normal", "behind", **given)["mm"] == "reduced"
    assert_same(message, EDGES, "sum", **given)
    with torch.no_grad():  # where rows that no edge reads are left as they are
        assert compiled_result(message, EDGES, "sum", **given)[empty].eq(0).all()


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("how", ["factor", "term", "map", "mixture", "divisor"])
def test_a_row_without_edges_is_0_whatever_all_edges_share(how: str, bad: float) -> None:
    shared = torch.full((4,), bad, dtype=WIDE, requires_grad=True)
    matrix = torch.full((4, 9), bad, dtype=WIDE, requires_grad=True)
    messages = {
        "factor": lambda u, v: (u * v).tanh() * shared,
        "term": lambda u, v: ((u * v).tanh() @ SQUARE) + shared,
        "map": lambda u, v: (u * v).tanh() @ matrix,
        "mixture": lambda u, v: (((u * v).tanh() @ matrix).view(-1, 3, 3) * v[:, :3, None]).sum(1),
        "divisor": lambda u, v: (u * v).tanh() / (shared * 0),
    }
    found = compiled_result(messages[how], EDGES, "sum", **ENDS)
    empty = EDGES.indptr.diff() == 0
    assert empty.any()
    assert not found[empty].any()
    assert not found[~empty].isfinite().all()


def test_a_factor_of_conditions_stays_on_edges() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return (u > 0) * v

    for reduce in ("sum", "max"):
        assert_same(message, EDGES, reduce, src=[U], dst=[V])
