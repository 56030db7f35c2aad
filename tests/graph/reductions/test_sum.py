"""Sums: parts in 16 bits are added up in 32."""

import torch

from weft.graph.reductions import ByRow, Contribution, Running, reduction


def test_sums_go_to_their_rows_and_rows_without_edges_have_zero() -> None:
    total = reduction("sum").reduced(
        ByRow.of(torch.tensor([2, 0, 2]), 4), Contribution(torch.tensor([1.0, 2.0, 4.0]))
    )
    assert total.value.tolist() == [2, 0, 5, 0]
    assert total.beside is None


def test_a_thousand_small_parts_are_not_lost_beside_a_large_one() -> None:
    running = Running(reduction("sum"), 1)
    running.add(Contribution(torch.full((1, 1), 256.0, dtype=torch.bfloat16)))
    for _ in range(1000):
        running.add(Contribution(torch.full((1, 1), 0.5, dtype=torch.bfloat16)))
    assert running.whole.value.tolist() == [[756]]
