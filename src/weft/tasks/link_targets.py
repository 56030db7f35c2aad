"""Own pairs of link prediction, and what an evaluation finds of them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weft.graph.node_pairs import Pairs
from weft.tasks.among_all import AmongAll
from weft.tasks.base import EVALUATION, Pieces, Rows, Targets, Total
from weft.tasks.negatives import Drawn
from weft.tasks.pairs import head_for
from weft.tasks.ranking import Ranks, by_relation, told_by_relation
from weft.tasks.scores import End, Scorer, rows_at

if TYPE_CHECKING:
    from weft.tasks.link_prediction import LinkPrediction

PIECE = 1 << 24
"""Numbers of candidates' rows, or scores among all nodes, that an evaluation has in memory at once."""


class LinkTargets(Targets):
    """Own pairs of one split, with the negatives of a moment."""

    def __init__(self, task: "LinkPrediction", pairs: Pairs, split: str) -> None:
        self.task, self.pairs, self.split = task, pairs, split
        self.y = torch.zeros(len(pairs))
        # A rank among negatives says little of pairs that are trained on, and they are most.
        self.scored = split != "train" or len(task.pairs) == 1
        self._fixed: tuple[Drawn, Tensor, Tensor] | None = None
        self._ranks: Ranks | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    def outputs(self, model: nn.Module, h: Tensor, rows: Rows, epoch: int) -> Tensor:
        """Return [n, 1 + k] for each side that is replaced, from rows of ends wherever these are."""
        pairs, count = self.pairs, len(self.pairs)
        drawn, ids, places = self._drawn(epoch)
        places = places.to(h.device)
        end_rows = rows(h, ids)
        src, dst = places[:count], places[count : 2 * count]
        negative, how = places[2 * count :].reshape(drawn.nodes.shape), self.task.how(epoch)
        outputs = self.task.scores(model, end_rows, src, dst, drawn, negative, pairs, how)
        self.y = self.task.corrections(drawn, src, dst, negative, how, len(end_rows)).to(outputs.device)
        if epoch != EVALUATION:
            penalty = self.task.penalties(model, end_rows, src, dst, pairs)
            self.y = self.y if penalty is None else penalty
        return outputs

    def pieces(
        self, model: nn.Module, h: Tensor, rows: Rows, together: Iterable[Tensor] | None = None
    ) -> Pieces:
        """Give the scores of an evaluation: among all nodes those of some pairs after the other.

        Together they would be a number for every pair and node.
        """
        if self.task.evaluated.filtered:
            self._ranks = self._ranked(model, h, rows, together)
            return [(self._ranks, self.y)]
        if self.task.evaluated.name != "all":
            return super().pieces(model, h, rows)
        ids = self.task.candidates()
        return self._among_all(model, rows(h, ids), ids)

    def _ranked(self, model: nn.Module, h: Tensor, rows: Rows, together: Iterable[Tensor] | None) -> Ranks:
        """Return filtered ranks; the rows of all candidates come a piece at a time, on every worker."""
        ends = torch.cat([self.pairs.src, self.pairs.dst])
        ids, places = torch.unique(ends, return_inverse=True)
        end_rows = rows(h, ids)
        heads, tails = torch.split(end_rows[places.to(end_rows.device)], len(self.pairs))
        ranking = AmongAll(
            head_for(model, end_rows),
            self.pairs,
            heads,
            tails,
            sides=self.task.evaluated.sides,
            known=self.task.known["all"],
            among=self.task.among,
        )
        for nodes in [None] if together is None else together:
            for some in torch.split(self.task.candidates(nodes), max(1, PIECE // end_rows.shape[1])):
                ranking.add(some, rows(h, some))
        return ranking.ranks()

    def details(self, total: Total) -> dict[str, Any]:
        """Return filtered ranks by the end that was asked for, and by relation."""
        if not self.task.evaluated.filtered:
            return {}
        names = self.task.relations
        return told_by_relation(total(by_relation(self._ranks, len(names))), names)

    def _among_all(self, model: nn.Module, all_rows: Tensor, ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        size = max(1, PIECE // len(ids))
        for first in range(0, max(1, len(self.pairs)), size):
            pairs = self.pairs.take(torch.arange(first, min(first + size, len(self.pairs))))
            drawn = self.task.draw(pairs, EVALUATION)
            ends = torch.cat([pairs.src, pairs.dst, drawn.nodes])
            places = torch.searchsorted(ids, ends).to(all_rows.device)
            src, dst, negative = torch.split(places, [len(pairs), len(pairs), len(drawn.nodes)])
            scores = self.task.scores(model, all_rows, src, dst, drawn, negative, pairs, self.task.evaluated)
            yield scores, torch.zeros(len(scores), device=scores.device)

    def _drawn(self, epoch: int) -> tuple[Drawn, Tensor, Tensor]:
        """Return negatives, the distinct nodes of all ends, and the place of each end among them."""
        if epoch == EVALUATION and self._fixed is not None:
            return self._fixed
        drawn = self.task.draw(self.pairs, epoch, batch=self.task.pairs[self.split])
        ends = torch.cat([self.pairs.src, self.pairs.dst, drawn.nodes.flatten()])
        draws = drawn, *torch.unique(ends, return_inverse=True)
        self._fixed = draws if epoch == EVALUATION else None
        return draws


def own_scores(
    scorer: Scorer, one: Tensor, rows: Tensor, others: Tensor, relation: Tensor | None, side: End
) -> Tensor:
    """Return the scores of each pair's own other ends, [n, k]; without gradients piece by piece.

    All pairs of a split at once would have n · k rows of nodes in memory, often more than the graph.
    """
    size = max(1, PIECE // max(1, others.shape[1] * rows.shape[1]))
    size = max(1, len(one)) if torch.is_grad_enabled() else size
    pieces = []
    for first in range(0, max(1, len(one)), size):
        part = slice(first, first + size)
        ends, many = one[part], rows_at(rows, others[part])
        kind = None if relation is None else relation[part]
        pieces.append(scorer(ends, many, kind) if side == "dst" else scorer(many, ends, kind))
    return torch.cat(pieces)
