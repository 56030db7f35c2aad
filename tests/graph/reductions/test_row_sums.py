"""Rows as matrices, and added to others."""

import torch

from weft.graph.reductions.row_sums import add_at, add_repeated, as_matrix


def test_rows_of_any_shape_are_a_matrix_also_where_there_are_none() -> None:
    assert as_matrix(torch.zeros(3, 2, 4)).shape == (3, 8)
    assert as_matrix(torch.zeros(3)).shape == (3, 1)
    assert as_matrix(torch.zeros(0, 2, 4)).shape == (0, 8)


def test_values_are_added_to_the_rows_they_name() -> None:
    total = torch.zeros(4, 1)
    add_at(total, torch.tensor([3, 1]), torch.tensor([[1.0], [2.0]]))
    add_at(total, slice(1, 3), torch.tensor([[10.0], [20.0]]))
    add_repeated(total, torch.tensor([0, 3, 0]), torch.tensor([[100.0], [200.0], [300.0]]))
    assert total.flatten().tolist() == [400, 12, 20, 201]
