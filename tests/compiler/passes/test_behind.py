"""What is linear goes behind a sum, and stays before an extreme."""

import torch
from tests.support.messages import assert_same, rewritten
from tests.support.programs import edges_of
from torch import Tensor, nn

EDGES = edges_of(7)
WIDE = torch.float64
U = torch.randn(EDGES.num_other, 4, dtype=WIDE, requires_grad=True)
V = torch.randn(EDGES.num_rows, 4, dtype=WIDE, requires_grad=True)
E = torch.randn(EDGES.num_edges, 1, dtype=WIDE, requires_grad=True)
ENDS = {"src": [U], "dst": [V]}
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
