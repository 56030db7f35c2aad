"""A network of both ends."""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.config import Range
from weft.errors import InputError
from weft.layers.base import Linear
from weft.tasks.edge_head import Ends
from weft.tasks.scores.base import End, Scorer, other_end, scorers

_AT_ONCE = 1 << 22
"""Numbers that are held of pairs of rows and candidates at a time."""


@scorers.add("mlp")
class MLP(Scorer):
    """wᵀ relu(A src + B dst + C data + b) + c, of `hidden` units, by default the width of rows.

    (u, v) and (v, u) differ. With several relations b has a row for each.
    """

    takes_edge_data = True

    def __init__(
        self,
        width: int,
        *,
        num_relations: int = 1,
        edge_width: int = 0,
        hidden: Annotated[int, Range(least=1)] | None = None,
    ) -> None:
        super().__init__(width, num_relations=num_relations)
        self.ends = Ends(width, hidden or width, edge_width=edge_width, num_relations=num_relations)
        self.last = Linear(hidden or width, 1)

    def forward(
        self,
        src: Tensor,
        dst: Tensor,
        relation: Tensor | None = None,
        data: Tensor | None = None,
        *,
        side: End = "dst",
    ) -> Tensor:
        """Return the score of each pair; data [n, e] is what is known of it, or [n, k, e]."""
        scores: Tensor = self.last(self.ends(src, dst, relation, data))
        return scores.squeeze(-1)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Refuse: what a network makes of an end depends on the other."""
        raise InputError(
            "task.score: 'mlp' compares no queries with keys; use a score that does, say 'distmult'"
        )

    def against(
        self, src: Tensor, all: Tensor, relation: Tensor | None = None, *, side: End = "dst"
    ) -> Tensor:
        """Return the scores [n, m] with all candidates; the units of a few rows are held at a time."""
        one = sum(self.ends.of_pair(relation, None), self.ends.of_end(src, other_end(side)))
        many = self.ends.of_end(all, side)
        count = max(1, _AT_ONCE // max(1, many.numel()))
        parts = [self.last(F.relu(some[:, None] + many)).squeeze(-1) for some in torch.split(one, count)]
        return torch.cat(parts)
