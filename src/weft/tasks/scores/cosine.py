"""The angle between both rows."""

from torch import Tensor

from weft.layers.base import unit_rows
from weft.tasks.scores.base import End, Scorer, scorers


@scorers.add("cosine")
class Cosine(Scorer):
    """srcᵀ dst / (|src| |dst|), whatever the relation; 0 where a row is 0. At most 1: use a temperature."""

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return rows of length 1."""
        return unit_rows(rows)

    def key(self, rows: Tensor) -> Tensor:
        """Return rows of length 1."""
        return unit_rows(rows)
