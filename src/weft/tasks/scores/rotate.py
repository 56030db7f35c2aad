"""A rotation per relation and column."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from weft.tasks.scores.base import End, Scorer, halves, scorers
from weft.tasks.scores.compared import ComplexNearness, Nearness
from weft.tasks.scores.complex import complex_product


@scorers.add("rotate")
class RotatE(Scorer):
    """`offset` - |src * r - dst| over complex numbers, r of modulus 1 (Sun et al., 2019).

    A row of an even width has real parts in its first half and imaginary ones in its second; a relation has
    an angle for each. `norm` "l1" sums the moduli of differences, as the paper does; "l2" is the root of the
    sum of their squares, which many candidates have by one product of matrices. `offset` is the paper's γ:
    losses that tell true from false by the sign of a score need one. With `reciprocal` a relation has other
    angles where its sources are asked for.
    """

    distance = True
    parts = 2

    def __init__(
        self,
        width: int,
        *,
        num_relations: int = 1,
        norm: Literal["l1", "l2"] = "l1",
        offset: float = 0.0,
        reciprocal: bool = False,
    ) -> None:
        super().__init__(width, num_relations=num_relations)
        self.reciprocal = reciprocal
        self.compare = ComplexNearness(offset) if norm == "l1" else Nearness(2, offset)
        self.angle = nn.Parameter(torch.empty(self.num_weights, halves(width, "rotate")))
        nn.init.uniform_(self.angle, -math.pi, math.pi)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return src turned by the relation's angles, or dst turned back."""
        angle = self.of_relation(self.angle, relation, end)
        turn = torch.cat([angle.cos(), angle.sin()], -1)
        return complex_product(rows, turn, conjugate=end == "dst" and not self.reciprocal)
