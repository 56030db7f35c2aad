"""A complex weight per relation and column."""

import torch
from torch import Tensor, nn

from weft.layers.base import glorot_
from weft.tasks.scores.base import End, Scorer, halves, scorers
from weft.tasks.scores.compared import moduli


@scorers.add("complex")
class ComplEx(Scorer):
    """Re Σ src * r * conj(dst) over complex numbers, a row r per relation (Trouillon et al., 2016).

    A row of an even width has real parts in its first half and imaginary ones in its second. With
    `reciprocal` a relation has another row where its sources are asked for (Lacroix et al., 2018).
    """

    def __init__(self, width: int, *, num_relations: int = 1, reciprocal: bool = False) -> None:
        super().__init__(width, num_relations=num_relations)
        halves(width, "complex")
        self.reciprocal = reciprocal
        self.weight = nn.Parameter(torch.empty(self.num_weights, width))
        glorot_(self.weight)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return src * r, or dst * conj(r)."""
        weight = self.of_relation(self.weight, relation, end)
        return complex_product(rows, weight, conjugate=end == "dst" and not self.reciprocal)

    def magnitudes(self, rows: Tensor) -> Tensor:
        """Return the modulus of each number."""
        return moduli(rows)

    def relation_magnitudes(self, relation: Tensor | None, end: End) -> Tensor | None:
        """Return the modulus of each weight."""
        return moduli(self.of_relation(self.weight, relation, end))


def complex_product(rows: Tensor, weight: Tensor, *, conjugate: bool) -> Tensor:
    """Return rows * weight, or rows * conj(weight), of complex numbers whose real parts come first."""
    (real, other), (turn, side) = rows.chunk(2, -1), weight.chunk(2, -1)
    if conjugate:
        return torch.cat([real * turn + other * side, other * turn - real * side], -1)
    return torch.cat([real * turn - other * side, other * turn + real * side], -1)
