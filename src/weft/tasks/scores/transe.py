"""A step per relation."""

from typing import Literal

import torch
from torch import Tensor, nn

from weft.layers.base import glorot_
from weft.tasks.scores.base import End, Scorer, scorers
from weft.tasks.scores.compared import Nearness


@scorers.add("transe")
class TransE(Scorer):
    """`offset` - |src + r - dst|, a row r per relation (Bordes et al., 2013), in the `norm` "l1" or "l2".

    Rows are not scaled to length 1, as the paper scales them. Losses that tell true from false by the sign of
    a score need an `offset`. With `reciprocal` a relation has another row where its sources are asked for.
    """

    distance = True

    def __init__(
        self,
        width: int,
        *,
        num_relations: int = 1,
        norm: Literal["l1", "l2"] = "l2",
        offset: float = 0.0,
        reciprocal: bool = False,
    ) -> None:
        super().__init__(width, num_relations=num_relations)
        self.reciprocal = reciprocal
        self.compare = Nearness(1 if norm == "l1" else 2, offset)
        self.weight = nn.Parameter(torch.empty(self.num_weights, width))
        glorot_(self.weight)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return src + r, or dst - r."""
        step = self.of_relation(self.weight, relation, end)
        return rows + step if end == "src" or self.reciprocal else rows - step

    def relation_numbers(self, end: End) -> Tensor | None:
        """Return the rows of relations."""
        return self.of_end(self.weight, end)
