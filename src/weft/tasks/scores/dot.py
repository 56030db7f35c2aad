"""The inner product of both rows."""

from weft.tasks.scores.base import Scorer, scorers


@scorers.add("dot")
class Dot(Scorer):
    """srcᵀ dst, whatever the relation."""
