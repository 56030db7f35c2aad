"""A row times the matrix of its edge's relation is a product by relation."""

import torch
from tests.support.messages import assert_same, rewritten
from tests.support.programs import edges_of
from torch import Tensor

EDGES = edges_of(7)
WIDE = torch.float64
U = torch.randn(EDGES.num_other, 4, dtype=WIDE, requires_grad=True)
V = torch.randn(EDGES.num_rows, 4, dtype=WIDE, requires_grad=True)
E = torch.randn(EDGES.num_edges, 1, dtype=WIDE, requires_grad=True)
KIND = torch.arange(EDGES.num_edges) % 3
TABLE = torch.randn(3, 4, 5, dtype=WIDE, requires_grad=True)
BY_HEAD = torch.randn(3, 2, 2, 5, dtype=WIDE, requires_grad=True)
GIVEN = {"src": [U], "dst": [V], "edge": [KIND]}


def names(message: object, **given: list[Tensor]) -> list[str]:
    return [name for name, _ in rewritten(message, "sum", "normal", "lookups", **given)]  # type: ignore[arg-type]


def test_matrices_are_not_gathered_for_edges() -> None:
    ways = (
        lambda u, v, k: torch.bmm(u[:, None], TABLE[k])[:, 0],
        lambda u, v, k: (u.unsqueeze(1) @ TABLE[k]).squeeze(1),
        lambda u, v, k: torch.einsum("ef,efo->eo", u, TABLE[k]) * v[:, :1],
        lambda u, v, k: torch.einsum("eo,efo->ef", u @ TABLE[0], TABLE[k]),
        lambda u, v, k: torch.einsum("ef,efo->eo", u * v, TABLE[k]).tanh(),
    )
    for message in ways:
        found = names(message, **GIVEN)
        assert "relation_matmul" in found
        assert "index" not in found
        for without in ([], ["lookups"]):
            assert_same(message, EDGES, "sum", [TABLE], without=without, **GIVEN)


def test_a_matrix_for_each_head_is_one_with_theirs() -> None:
    def message(u: Tensor, v: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("ehf,ehfo->eho", (u * v).view(-1, 2, 2), BY_HEAD[k])

    assert "relation_matmul" in names(message, **GIVEN)
    for without in ([], ["lookups"]):
        assert_same(message, EDGES, "max", [BY_HEAD], without=without, **GIVEN)


def test_a_number_of_the_edge_multiplies_the_product() -> None:
    def message(u: Tensor, v: Tensor, k: Tensor, e: Tensor) -> Tensor:
        return torch.einsum("ef,efo->eo", u * e / 3, TABLE[k]) * v.sum(1, keepdim=True)

    given = {"src": [U], "dst": [V], "edge": [KIND, E]}
    where = dict(rewritten(message, "sum", "normal", "lookups", **given))
    assert where["relation_matmul"] != "edge"
    assert_same(message, EDGES, "sum", [TABLE], **given)


def test_small_matrices_and_rows_by_relation_are_looked_up_as_they_are_written() -> None:
    ways = (
        lambda u, v, k: u * TABLE[k][:, :, 0],
        lambda u, v, k: torch.einsum("ef,efo->eo", u[:, :2], TABLE[:, :2, :2][k]),
    )
    for message in ways:
        assert "relation_matmul" not in names(message, **GIVEN)
        assert_same(message, EDGES, "sum", [TABLE], **GIVEN)
