"""Training one bucket: steps over its batches, each a gradient of rows and of relations.

Rows are changed by row-wise Adagrad where they lie, in the partitions that are in memory; duplicates of a
batch are summed first. Weights of the scorer, those of relations, are the optimiser's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from weft.process import kept_memory
from weft.stores.row_steps import rowwise_adagrad_parts
from weft.strategies.buckets.chunks import BucketBatches, BucketEdges, Candidates, ChunkBatch, End
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


class BucketSteps:
    """Goes downhill, batch after batch. One a worker: its memory serves every bucket."""

    def __init__(self, objective: Objective, *, device: torch.device) -> None:
        self.objective, self.device = objective, device
        # A side at a time; what it gives is read before the other one begins.
        self._space = Workspace()

    @kept_memory()
    def train(
        self,
        edges: BucketEdges,
        batches: BucketBatches,
        rows: dict[End, PartitionRows],
        *,
        lr: float,
        step_weights: Callable[[], None],
    ) -> Tensor:
        """Train on a bucket; return the sum of losses. `rows` are those of both sides, perhaps the same."""
        order = batches.order
        held = edges.shuffled(order, self.device)
        true = self._true_ends(edges, rows, order)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for batch in batches:
            loss, changes = self.gradients(held, batch, rows, true)
            total += loss
            _apply(changes, rows, lr)
            step_weights()
        return total

    def gradients(
        self, edges: BucketEdges, batch: ChunkBatch, rows: dict[End, PartitionRows], true: dict[End, TrueEnds]
    ) -> tuple[Tensor, dict[End, list[tuple[Tensor, Tensor]]]]:
        """Return the sum of losses of a batch, and what changes: by end places of rows and their gradients.

        Gradients of the scorer's weights are left in `.grad`. `edges` are shuffled.
        """
        here, goal = batch.edges, self.objective
        ids: dict[End, Tensor] = {"src": edges.src[here], "dst": edges.dst[here]}
        relation = edges.relation[here]
        ends = {end: rows[end].values.index_select(0, ids[end]).requires_grad_() for end in ids}
        changes: dict[End, list[tuple[Tensor, Tensor]]] = {"src": [], "dst": []}
        total = ends["src"].new_zeros((), dtype=torch.float64)
        outputs: list[Tensor] = []
        slopes: list[Tensor | None] = []
        for side in goal.candidates.sides:
            drawn = batch.drawn[side].to(self.device)
            with torch.enable_grad():
                queries = goal.scorer.query(ends[other_end(side)], relation, other_end(side))
                own = goal.scorer.key(ends[side])
                others = rows[side].values.index_select(0, drawn.flatten()).requires_grad_()
                keys = goal.scorer.key(others)
            loss, given = self._side(side, batch, ids[side], drawn, (queries, own, keys), true)
            total += loss
            outputs += [queries, own, keys]
            slopes += given
            changes[side].append((drawn.flatten(), others))
        if goal.penalty is not None:
            with torch.enable_grad():
                for side in goal.candidates.sides:
                    added = goal.penalty.each(goal.scorer, ends["src"], ends["dst"], relation, side=side)
                    outputs.append(added.sum())
                    slopes.append(None)
                    total += outputs[-1].detach()
        torch.autograd.backward(outputs, slopes)
        found = {end: [(at, _gradient(held)) for at, held in changes[end]] for end in changes}
        for end in ("src", "dst"):
            found[end].insert(0, (ids[end], _gradient(ends[end])))
        return total, found

    def _side(
        self,
        side: End,
        batch: ChunkBatch,
        ends: Tensor,
        drawn: Tensor,
        held: tuple[Tensor, Tensor, Tensor],
        true: dict[End, TrueEnds],
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the loss of one side, and its gradients by queries, own keys and keys of drawn rows."""
        goal, chunks = self.objective, batch.chunks
        queries, own, keys = (each.detach() for each in held)
        n, width = len(queries) // chunks, queries.shape[1]
        inside = n if goal.candidates.inbatch else 0
        queries, own = queries.view(chunks, n, width), own.view(chunks, n, width)
        table = self._space.take("candidates", chunks, 1 + inside + drawn.shape[1], width, like=queries)
        table[:, 0] = 0.0
        if inside:
            table[:, 1 : 1 + n] = own
        table[:, 1 + inside :] = keys.view(chunks, -1, width)
        nodes = torch.cat([ends.view(chunks, n), drawn], 1) if inside else drawn
        loss, by_queries, by_own, by_keys = contrast(
            queries,
            own,
            table,
            compare=goal.scorer.compare,
            loss=goal.loss,
            temperature=goal.temperature,
            mask=partial(self._mask, side, batch, ends.view(chunks, n), nodes, true),
            space=self._space,
        )
        by_own = by_own + by_keys[:, 1 : 1 + n] if inside else by_own
        given = by_queries, by_own, by_keys[:, 1 + inside :]
        # Copies: the other side is given the same memory.
        return loss, [each.reshape(-1, width).clone() for each in given]

    def _mask(
        self,
        side: End,
        batch: ChunkBatch,
        ends: Tensor,
        nodes: Tensor,
        true: dict[End, TrueEnds],
        scores: Tensor,
    ) -> None:
        """Leave out candidates that are no negatives."""
        if self.objective.candidates.exclude == "known":
            true[side].leave_out(scores, batch.edges, nodes.contiguous())
        else:
            scores[:, :, -nodes.shape[1] :].masked_fill_(ends[:, :, None] == nodes[:, None], LEFT_OUT)

    def _true_ends(
        self, edges: BucketEdges, rows: dict[End, PartitionRows], order: Tensor
    ) -> dict[End, TrueEnds]:
        """Return the true ends of edges in their order, of each side that is replaced."""
        if self.objective.candidates.exclude != "known":
            return {}
        ends: dict[End, Tensor] = {"src": edges.src, "dst": edges.dst}
        found: dict[End, TrueEnds] = {}
        for side in self.objective.candidates.sides:
            stays, moves, count = ends[other_end(side)], ends[side], len(rows[side].values)
            made = TrueEnds.of(stays, edges.relation, moves, count).take(order)
            found[side] = made if self.device.type == "cpu" else made.to(self.device)
        return found


def _gradient(held: Tensor) -> Tensor:
    return torch.zeros_like(held) if held.grad is None else held.grad


def _apply(
    changes: dict[End, list[tuple[Tensor, Tensor]]], rows: dict[End, PartitionRows], lr: float
) -> None:
    """Change rows by their gradients; where both sides are one partition, by their sum."""
    joined = [changes["src"] + changes["dst"]] if rows["src"] is rows["dst"] else [*changes.values()]
    tables = [rows["src"]] if len(joined) == 1 else [rows[end] for end in changes]
    for table, given in zip(tables, joined):
        rowwise_adagrad_parts(table.values, table.total, given, lr=lr)
