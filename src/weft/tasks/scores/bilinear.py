"""A matrix per relation."""

import torch
from torch import Tensor, nn

from weft.kernels import segment_matmul
from weft.layers.base import glorot_
from weft.tasks.scores.base import End, Scorer, scorers, told


@scorers.add("bilinear", "rescal")
class Bilinear(Scorer):
    """srcᵀ W dst, a matrix per relation (RESCAL; Nickel et al., 2011).

    With `reciprocal` a relation has another matrix where its sources are asked for.
    """

    def __init__(self, width: int, *, num_relations: int = 1, reciprocal: bool = False) -> None:
        super().__init__(width, num_relations=num_relations)
        self.reciprocal = reciprocal
        self.weight = nn.Parameter(torch.empty(self.num_weights, width, width))
        glorot_(self.weight)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return Wᵀ src, or W dst, by one product per relation."""
        return mapped(self, rows, relation, end)

    def relation_numbers(self, end: End) -> Tensor | None:
        """Return the numbers of each matrix."""
        return self.of_end(self.weight, end).flatten(1)


def mapped(scorer: Scorer, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
    """Return rowsᵀ W of the scorer's matrices `weight`; with the target given W rows, if not reciprocal."""
    weight: Tensor = scorer.get_parameter("weight")
    weight = scorer.of_end(weight, end)
    weight = weight if end == "src" or scorer.reciprocal else weight.transpose(1, 2)
    if scorer.num_relations == 1:
        return rows @ weight[0]
    kind = told(relation, scorer.num_relations)
    order = kind.argsort(stable=True)
    counts = torch.bincount(kind, minlength=scorer.num_relations).cpu()
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return segment_matmul(rows[order], offsets, weight)[order.argsort()]
