"""Inputs of the halo are fetched once, dense or sparse, behind the own rows."""

import torch

from weft.exchanges.features import stack_rows
from weft.graph.sparse import SparseFeatures


def test_sparse_rows_of_one_come_before_those_of_the_other() -> None:
    first = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    second = torch.tensor([[0.0, 0.0, 0.0], [4.0, 5.0, 6.0], [0.0, 0.0, 7.0]])
    made = stack_rows(SparseFeatures.from_dense(first), SparseFeatures.from_dense(second))
    assert made.shape == (5, 3)
    assert torch.equal(made.to_dense(), torch.cat([first, second]))
    empty = stack_rows(SparseFeatures.from_dense(first), SparseFeatures.from_dense(second[:0]))
    assert torch.equal(empty.to_dense(), first)
