"""A weight per relation and column."""

import torch
from torch import Tensor, nn

from weft.layers.base import glorot_
from weft.tasks.scores.base import End, Scorer, scorers


@scorers.add("distmult")
class DistMult(Scorer):
    """Σ src * r * dst, a row r per relation (Yang et al., 2015).

    With `reciprocal` a relation has another row where its sources are asked for (Lacroix et al., 2018).
    """

    def __init__(self, width: int, *, num_relations: int = 1, reciprocal: bool = False) -> None:
        super().__init__(width, num_relations=num_relations)
        self.reciprocal = reciprocal
        self.weight = nn.Parameter(torch.empty(self.num_weights, width))
        glorot_(self.weight)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return rows times their relation's."""
        return rows * self.of_relation(self.weight, relation, end)

    def relation_numbers(self, end: End) -> Tensor | None:
        """Return the rows of relations."""
        return self.of_end(self.weight, end)
