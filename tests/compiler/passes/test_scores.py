"""Weighted sums over the features of nodes are products with a matrix."""

import pytest
import torch
from tests.support.messages import assert_same, rewritten
from tests.support.programs import edges_of
from torch import Tensor

EDGES = edges_of(7)
WIDE = torch.float64
U = torch.randn(EDGES.num_other, 4, dtype=WIDE, requires_grad=True)
V = torch.randn(EDGES.num_rows, 4, dtype=WIDE, requires_grad=True)
A, B = (torch.randn(1, 2, 2, dtype=WIDE, requires_grad=True) for _ in range(2))
ENDS = {"src": [U], "dst": [V]}


def attended(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    there, here = u.view(-1, 2, 2), v.view(-1, 2, 2)
    return ((there * A).sum(-1) + (B * here).sum(-1)).relu(), there


def products(message: object, reduce: str = "softmax") -> list[str]:
    found = rewritten(message, reduce, "normal", "scores", **ENDS)  # type: ignore[arg-type]
    return [where for name, where in found if name == "mm"]


def test_scores_of_both_ends_are_products_of_nodes() -> None:
    assert sorted(products(attended)) == ["destination", "source"]
    for without in ([], ["scores"]):
        assert_same(attended, EDGES, "softmax", [A, B], without=without, **ENDS)


def test_a_vector_for_all_features_is_one_head() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return ((u * A.flatten()).sum(-1, keepdim=True) - v).tanh()

    assert products(message, "sum") == ["source"]
    assert_same(message, EDGES, "sum", [A], **ENDS)


@pytest.mark.parametrize(
    "message",
    [
        lambda u, v: ((u * v).view(-1, 2, 2) * A).sum(-1).tanh(),
        lambda u, v: (u.view(-1, 2, 2) * A).sum(1).tanh() * v[:, :2],
        lambda u, v: (u.view(-1, 2, 2) * A[:, :1]).sum(-1).tanh() * v[:, :2],
        lambda u, v: (lambda both: both.sum(-1).tanh() * both[..., 0])(u.view(-1, 2, 2) * A) * v[:, :2],
    ],
    ids=["of both ends", "over heads", "a vector that heads share", "what else is read"],
)
def test_other_sums_stay(message: object) -> None:
    assert not products(message, "sum")
    assert_same(message, EDGES, "sum", [A], **ENDS)  # type: ignore[arg-type]


def test_not_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not products(attended)
