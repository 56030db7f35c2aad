"""Linear maps of both ends run on each end."""

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
JOINED, MAP = nn.Linear(8, 3).to(WIDE), nn.Linear(4, 3).to(WIDE)
SQUARE = nn.Linear(4, 4).to(WIDE)
SCALES = torch.randn(4, dtype=WIDE, requires_grad=True)


def maps(message: object, *names: str, **given: list[Tensor]) -> list[str]:
    found = rewritten(message, "max", *names, **(given or ENDS))  # type: ignore[arg-type]
    return [where for name, where in found if name == "mm"]


def test_a_map_of_joined_ends_is_one_of_each() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return JOINED(torch.cat([u, v], 1)).relu()  # type: ignore[no-any-return]

    assert maps(message, "normal") == ["pair"]
    assert maps(message, "normal", "split") == ["source", "destination"]
    assert_same(message, EDGES, "max", [*JOINED.parameters()], **ENDS)


def test_a_map_of_a_difference_is_one_of_each_and_a_number_of_an_edge_stays_outside() -> None:
    def message(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return MAP((u - v) * e).tanh()  # type: ignore[no-any-return]

    given = {**ENDS, "edge": [E]}
    assert maps(message, "normal", "split", **given) == ["source", "destination"]
    assert_same(message, EDGES, "min", [*MAP.parameters()], **given)


def test_a_map_of_what_both_ends_made_together_stays() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return MAP((u * v).relu())  # type: ignore[no-any-return]

    assert maps(message, "normal", "split") == ["pair"]


def test_a_factor_for_each_column_and_what_an_edge_divides_by_stay_inside() -> None:
    def scaled(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return SQUARE((u - v) * SCALES).tanh() * e  # type: ignore[no-any-return]

    def divided(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return SQUARE(e / (u.exp() + v.exp())).tanh()  # type: ignore[no-any-return]

    given = {**ENDS, "edge": [E]}
    for message in (scaled, divided):
        assert maps(message, "normal", "split", **given) == ["pair"]
        assert_same(message, EDGES, "max", [SCALES, *SQUARE.parameters()], **given)


def test_a_term_of_one_number_is_not_mapped_by_itself() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return MAP(u + v[:, :1]).tanh()  # type: ignore[no-any-return]

    assert maps(message, "normal", "split") == ["pair"]
    assert_same(message, EDGES, "max", [*MAP.parameters()], **ENDS)
