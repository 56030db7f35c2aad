"""Training one bucket: steps over its batches, each a gradient of rows and of relations.

Rows are changed by row-wise Adagrad where they lie, in the partitions that are in memory; duplicates of a
batch are summed first. Weights of the scorer, those of relations, are the optimiser's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from weft.process import kept_memory
from weft.stores.row_steps import Part, rowwise_adagrad_parts
from weft.strategies.buckets.chunks import BucketBatches, BucketEdges, Candidates, End
from weft.strategies.buckets.contrast import Workspace, contrast
from weft.strategies.buckets.true_ends import TrueEnds
from weft.tasks.loss import Loss
from weft.tasks.penalty import Penalty
from weft.tasks.ranking import LEFT_OUT
from weft.tasks.scores.base import Scorer, other_end


@dataclass(eq=False)
class PartitionRows:
    """The learned rows of a partition, and one accumulator of Adagrad each."""

    values: Tensor
    """[n, width]"""
    total: Tensor
    """[n]"""

    def to(self, device: torch.device) -> "PartitionRows":
        """Return them on a device: themselves where they are there."""
        return (
            self
            if self.values.device == device
            else PartitionRows(self.values.to(device), self.total.to(device))
        )


@dataclass(frozen=True)
class Objective:
    """What is minimised: the sum over pairs and sides of a loss of scores, and a penalty on their rows."""

    scorer: Scorer
    loss: Loss
    candidates: Candidates
    temperature: float = 1.0
    penalty: Penalty | None = None


@dataclass(frozen=True, eq=False)
class StepPairs:
    """The pairs of a step and what they are compared with, all where the rows are."""

    ids: dict[End, Tensor]
    """[n] rows of both ends, those of a chunk after those of another"""
    relation: Tensor
    """[n]"""
    drawn: dict[End, Tensor]
    """[chunks, count] by side: candidates"""
    true: dict[End, TrueEnds]
    """by side: what is no negative of each pair"""
    shifts: Mapping[End, Tensor | float] = field(default_factory=dict)
    """by side: the logarithm of how many nodes a candidate stands for, 0 where nothing is said"""
    live: Tensor | None = None
    """[n] 1 for a pair, 0 for what only fills a chunk; None: all are pairs"""

    @property
    def chunks(self) -> int:
        """How many there are, of equal size."""
        return len(next(iter(self.drawn.values())))


Changes = dict[End, list[Part]]
"""By end, places of rows of its partition, perhaps several times, and their gradients."""


class BucketSteps:
    """Goes downhill, batch after batch. One a worker: its memory serves every bucket."""

    def __init__(self, objective: Objective, *, device: torch.device) -> None:
        self.objective, self.device = objective, device
        self.space = Workspace()

    @kept_memory()
    def train(
        self,
        edges: BucketEdges,
        batches: BucketBatches,
        rows: dict[End, PartitionRows],
        *,
        optimizer: torch.optim.Optimizer,
    ) -> Tensor:
        """Train on a bucket; return the sum of losses. `rows` are those of both sides, perhaps the same."""
        held = edges.shuffled(batches.order(self.device), self.device)
        true = self.true_ends(held, rows)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for batch in batches:
            here = batch.edges
            ids: dict[End, Tensor] = {"src": held.src[here], "dst": held.dst[here]}
            drawn = {side: each.to(self.device) for side, each in batches.drawn(batch).items()}
            mine = {side: each.take(here) for side, each in true.items()}
            total += self.step(
                StepPairs(ids, held.relation[here], drawn, mine, batches.shifts(batch)), rows, optimizer
            )
        return total

    def step(
        self, pairs: StepPairs, rows: dict[End, PartitionRows], optimizer: torch.optim.Optimizer
    ) -> Tensor:
        """Change rows and weights by the gradients of some pairs; return the sum of their losses."""
        loss, changes = self.gradients(pairs, rows)
        _apply(changes, rows, float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def gradients(self, pairs: StepPairs, rows: dict[End, PartitionRows]) -> tuple[Tensor, Changes]:
        """Return the sum of losses of pairs, and by end what changes.

        Gradients of the scorer's weights are left in `.grad`.
        """
        goal, ids, relation = self.objective, pairs.ids, pairs.relation
        ends = {end: rows[end].values.index_select(0, ids[end]).requires_grad_() for end in ids}
        others: dict[End, Tensor] = {}
        total = ends["src"].new_zeros((), dtype=torch.float64)
        outputs: list[Tensor] = []
        slopes: list[Tensor | None] = []
        for side in goal.candidates.sides:
            drawn = pairs.drawn[side]
            with torch.enable_grad():
                queries = goal.scorer.query(ends[other_end(side)], relation, other_end(side))
                own = goal.scorer.key(ends[side])
                others[side] = rows[side].values.index_select(0, drawn.flatten()).requires_grad_()
                keys = goal.scorer.key(others[side])
            loss, given = self._side(side, pairs, (queries, own, keys))
            total += loss
            outputs += [queries, own, keys]
            slopes += given
        if goal.penalty is not None:
            outputs.append(_penalty(goal, goal.penalty, ends, pairs))
            slopes.append(None)
            total += outputs[-1].detach()
        weights = [each for each in goal.scorer.parameters() if each.requires_grad]
        leaves = [*ends.values(), *others.values(), *weights]
        found = torch.autograd.grad(outputs, leaves, slopes, allow_unused=True)
        for weight, gradient in zip(weights, found[len(ends) + len(others) :]):
            weight.grad = gradient
        held = [torch.zeros_like(leaf) if each is None else each for leaf, each in zip(leaves, found)]
        changes: Changes = {end: [(ids[end], each)] for end, each in zip(ends, held)}
        for side, each in zip(others, held[len(ends) :]):
            changes[side].append((pairs.drawn[side].flatten(), each))
        return total, changes

    def _side(
        self, side: End, pairs: StepPairs, held: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the loss of one side, and its gradients by queries, own keys and keys of drawn rows."""
        goal, chunks, drawn = self.objective, pairs.chunks, pairs.drawn[side]
        queries, own, keys = (each.detach() for each in held)
        n, width = len(queries) // chunks, queries.shape[1]
        inside = n if goal.candidates.others else 0
        queries, own, keys = (each.view(chunks, -1, width) for each in (queries, own, keys))
        nodes = torch.cat([pairs.ids[side].view(chunks, n), drawn], 1) if inside else drawn
        loss, by_queries, by_own, by_keys = contrast(
            queries,
            own,
            [own, keys] if inside else [keys],
            compare=goal.scorer.compare,
            loss=goal.loss,
            temperature=goal.temperature,
            mask=lambda scores: _leave_out(scores, pairs, side, nodes.contiguous(), inside),
            live=pairs.live,
            shift=pairs.shifts.get(side, 0.0),
            space=self.space,
        )
        by_own = by_own + by_keys[:, :inside] if inside else by_own
        return loss, [each.reshape(-1, width) for each in (by_queries, by_own, by_keys[:, inside:])]

    def true_ends(self, edges: BucketEdges, rows: dict[End, PartitionRows]) -> dict[End, TrueEnds]:
        """Return what is no negative of edges, for each side that is replaced."""
        ends: dict[End, Tensor] = {"src": edges.src, "dst": edges.dst}
        found: dict[End, TrueEnds] = {}
        for side in self.objective.candidates.sides:
            count = len(rows[side].values)
            if self.objective.candidates.exclude == "known":
                found[side] = TrueEnds.of(ends[other_end(side)], edges.relation, ends[side], count)
            else:
                found[side] = TrueEnds.own(ends[side], count)
        return found


@torch.enable_grad()
def _penalty(goal: Objective, penalty: Penalty, ends: dict[End, Tensor], pairs: StepPairs) -> Tensor:
    """Return the sum of penalties of pairs on all sides, whose ends are the same rows."""
    sides = goal.candidates.sides
    added = penalty.of_ends(goal.scorer, ends["src"], ends["dst"]) * len(sides)
    for side in sides:
        weights = penalty.of_relation(goal.scorer, pairs.relation, side=side)
        added = added if weights is None else added + weights
    return (added if pairs.live is None else added * pairs.live).sum()


def _leave_out(scores: Tensor, pairs: StepPairs, side: End, nodes: Tensor, inside: int) -> None:
    """Leave out candidates [chunks, m] that are no negatives; the first `inside` are ends of the pairs."""
    pairs.true[side].leave_out(scores, nodes)
    first = min(1, scores.shape[2] - nodes.shape[1])  # the true pair's own may stand before them
    scores[:, :, first + nodes.shape[1] :] = LEFT_OUT
    if inside and pairs.live is not None:
        dead = (pairs.live == 0).view(pairs.chunks, 1, inside)
        scores[:, :, first : first + inside].masked_fill_(dead, LEFT_OUT)


def _apply(changes: Changes, rows: dict[End, PartitionRows], lr: float) -> None:
    """Change rows by their gradients; where both sides are one partition, by their sum."""
    joined = [changes["src"] + changes["dst"]] if rows["src"] is rows["dst"] else [*changes.values()]
    tables = [rows["src"]] if len(joined) == 1 else [rows[end] for end in changes]
    for table, given in zip(tables, joined):
        rowwise_adagrad_parts(table.values, table.total, given, lr=lr)
