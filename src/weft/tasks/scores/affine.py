"""A matrix and a step per relation."""

import torch
from torch import Tensor, nn

from weft.layers.base import glorot_
from weft.tasks.scores.base import End, Scorer, scorers
from weft.tasks.scores.bilinear import mapped


@scorers.add("affine")
class Affine(Scorer):
    """(srcᵀ W + b) dst, a matrix W and a row b per relation, on the source's end (PyTorch-BigGraph, 2019).

    With `reciprocal` a relation has others, on the target's end, where its sources are asked for.
    """

    def __init__(self, width: int, *, num_relations: int = 1, reciprocal: bool = False) -> None:
        super().__init__(width, num_relations=num_relations)
        self.reciprocal = reciprocal
        self.weight = nn.Parameter(torch.empty(self.num_weights, width, width))
        self.bias = nn.Parameter(torch.empty(self.num_weights, width))
        glorot_(self.weight)
        glorot_(self.bias)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return srcᵀ W + b and a 0; or W dst and bᵀ dst, which every source's 1 is multiplied with."""
        turned, bias = mapped(self, rows, relation, end), self.of_relation(self.bias, relation, end)
        if end == "src" or self.reciprocal:
            return torch.cat([turned + bias, torch.zeros_like(rows[:, :1])], 1)
        return torch.cat([turned, (rows * bias).sum(1, keepdim=True)], 1)

    def key(self, rows: Tensor) -> Tensor:
        """Return rows and a 1."""
        return torch.cat([rows, torch.ones_like(rows[..., :1])], -1)

    def relation_numbers(self, end: End) -> Tensor | None:
        """Return the numbers of each matrix and its row."""
        return torch.cat([self.of_end(each, end).flatten(1) for each in (self.weight, self.bias)], 1)
