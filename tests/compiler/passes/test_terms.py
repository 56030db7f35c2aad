"""The terms of a sum are added where they live."""

import torch
from tests.support.messages import assert_same, rewritten
from tests.support.programs import edges_of
from torch import Tensor

EDGES = edges_of(7)
WIDE = torch.float64
U = torch.randn(EDGES.num_other, 4, dtype=WIDE, requires_grad=True)
V = torch.randn(EDGES.num_rows, 4, dtype=WIDE, requires_grad=True)
E = torch.randn(EDGES.num_edges, 1, dtype=WIDE, requires_grad=True)
ENDS = {"src": [U], "dst": [V]}
B = torch.randn(4, dtype=WIDE, requires_grad=True)
ONE, TWO = (torch.randn(4, 4, dtype=WIDE, requires_grad=True) for _ in range(2))


def test_an_edge_adds_one_term_of_each_end() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return (u + v + B - v.tanh() + u.sin()).relu()

    def on_edges(*names: str) -> int:
        found = rewritten(message, "max", *names, **ENDS)
        return sum(name in ("add", "sub") and where == "pair" for name, where in found)

    assert on_edges("normal") == 4
    assert on_edges("normal", "terms") == 1
    assert_same(message, EDGES, "max", [B], **ENDS)


def test_signs_are_kept() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return (-(u - v) - (B - u)).exp()

    assert_same(message, EDGES, "sum", [B], **ENDS)


def test_products_of_other_rows_are_not_one() -> None:
    def message(u: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return (u @ ONE + v + w @ TWO).relu()

    assert_same(message, EDGES, "max", [ONE, TWO], src=[U, U.detach().sin().requires_grad_()], dst=[V])


def test_what_is_subtracted_may_be_the_first_group() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return (u - v - v.tanh()).exp()

    assert_same(message, EDGES, "sum", **ENDS)
    assert_same(message, EDGES, "max", without=["normal"], **ENDS)


def test_a_scaled_term_stays_scaled_without_its_normal_form() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return (torch.add(u, v, alpha=3) + v.tanh()).sin()

    for without in ([], ["normal"]):
        assert_same(message, EDGES, "max", without=without, **ENDS)
