"""Joined and cut features are followed to where they come from."""

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
ATT = torch.randn(8, dtype=WIDE, requires_grad=True)


def names(message: object, reduce: str, *passes: str) -> list[str]:
    return [name for name, _ in rewritten(message, reduce, *passes, **ENDS)]  # type: ignore[arg-type]


def test_a_cut_of_a_join_is_the_part() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return torch.cat([u.tanh(), u * v], 1).exp()[:, 4:]

    assert "cat" in names(message, "sum", "normal")
    assert not {"cat", "slice"} & set(names(message, "sum", "normal", "parts"))
    assert_same(message, EDGES, "sum", **ENDS)


def test_joined_messages_are_reduced_apart() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return torch.cat([u * v, u - v], 1).tanh()

    assert names(message, "max", "normal", "parts").count("reduced") == 2
    assert_same(message, EDGES, "max", **ENDS)


def test_a_sum_over_joined_features_is_one_of_each_part() -> None:
    def message(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return (torch.cat([u, v], -1) * ATT).sum(-1).sigmoid(), u

    found = rewritten(message, "softmax", "normal", "parts", **ENDS)
    assert [where for name, where in found if name == "sum"] == ["source", "destination"]
    assert_same(message, EDGES, "softmax", [ATT], **ENDS)


def test_joined_scores_weigh_together() -> None:
    def message(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.cat([(u * v).sum(1, keepdim=True), (u - v).norm(dim=1, keepdim=True)], 1)
        return scores, (u + v).view(-1, 2, 2)

    assert names(message, "softmax", "normal", "parts").count("reduced") == 1
    for without in ((), ("parts",)):
        assert_same(message, EDGES, "softmax", without=without, **ENDS)


def test_a_cut_leaves_what_is_one_number_wide_whole() -> None:
    def message(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return ((u - v).tanh() * e)[:, 1:3]

    assert_same(message, EDGES, "sum", **ENDS, edge=[E])
