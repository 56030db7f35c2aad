"""Steps on a bucket that a GPU does by itself: captured once, replayed batch after batch.

All that a step reads lies at the same place for every bucket: rows are copied there and back, edges and what
is no negative of them too. A table says which edges a step has and where its candidates are drawn from, a
counter on the GPU which step it is. So the host launches one thing a step and is never waited for.

Batches come in a few sizes, powers of 2 of chunks, and what fills them up has no loss and no gradient. The
first step of a size is run as any other, the second is captured: the same kernels on the same shapes, so the
numbers do not depend on which of them a step was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.draw import signed
from weft.kernels import gpu
from weft.kernels.reference import draw_by
from weft.strategies.buckets.chunks import BucketBatches, BucketEdges, ChunkBatch, End, EndPool
from weft.strategies.buckets.contrast import Workspace
from weft.strategies.buckets.training import BucketSteps, PartitionRows, StepPairs
from weft.strategies.buckets.true_ends import TrueEnds

_COLUMNS = ("first", "count", "number", "low_src", "high_src", "low_dst", "high_dst")
"""What is known of a step."""
_MOST = 32
"""Graphs that are kept."""
_SHARE = 0.4
"""Of the free memory, that rows may take a second time."""


@dataclass(frozen=True, eq=False)
class _PlacedBucket:
    """A bucket where steps find it."""

    rows: dict[End, PartitionRows]
    ends: dict[End, Tensor]
    relation: Tensor
    true: dict[End, TrueEnds]
    keys: dict[End, Tensor]
    weights: dict[End, Tensor]
    """By side, cumulated weights of draws from 0 on; none where draws are uniform."""
    plan: Tensor
    """[steps, 7]"""


class CapturedSteps:
    """Trains buckets as `BucketSteps` does, with the same draws: on a GPU in steps of fixed shapes.

    With `filled` it takes such steps elsewhere, too, where nothing is captured.
    """

    def __init__(self, steps: BucketSteps, *, filled: bool = False) -> None:
        self.steps, self.device = steps, steps.device
        self._filled, self._capture = filled, steps.device.type == "cuda"
        self._room = Workspace(spare=0.25)
        self._held = 0
        """Bytes of rows for which there is memory a second time."""
        self._at = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._total = torch.zeros((), dtype=torch.float64, device=self.device)
        self._graphs: dict[tuple[Any, ...], torch.cuda.CUDAGraph | None] = {}
        self._pool: Any = None

    def _suits(self, rows: dict[End, PartitionRows]) -> bool:
        """Return whether steps can be captured: kernels are there, and memory for rows a second time."""
        if self._filled:
            return True
        if not self._capture or self.steps.objective.loss.own or not gpu.available():
            return False
        needed = sum(each.values.nbytes for each in rows.values())
        if needed > self._held and needed > _SHARE * torch.cuda.mem_get_info(self.device)[0]:
            return False
        self._held = max(self._held, needed)
        return True

    def train(
        self,
        edges: BucketEdges,
        batches: BucketBatches,
        rows: dict[End, PartitionRows],
        *,
        optimizer: torch.optim.Optimizer,
    ) -> Tensor:
        """Train on a bucket; return the sum of losses. `rows` are those of both sides, perhaps the same."""
        if not self._suits(rows):
            return self.steps.train(edges, batches, rows, optimizer=optimizer)
        pieces = [*batches]
        bucket = self._placed(edges, batches, rows, pieces)
        self._at.zero_()
        self._total.zero_()
        for piece in pieces:
            size = min(1 << (piece.chunks - 1).bit_length(), batches.chunks)
            spans = tuple(self._span(batches.ends[end], piece.kinds[end]) for end in ("src", "dst"))
            self._run(bucket, (size, batches.chunk, *spans), optimizer)
        for end, held in bucket.rows.items():
            rows[end].values.copy_(held.values[: len(rows[end].values)])
            rows[end].total.copy_(held.total[: len(rows[end].total)])
        return self._total.clone()

    def _span(self, pool: EndPool, kind: int) -> int:
        """Return how many candidates a step has where all nodes of a type are, else -1."""
        low, high = pool.bounds(kind)
        return high - low if self.steps.objective.candidates.count == "all" else -1

    # What steps read

    def _placed(
        self,
        edges: BucketEdges,
        batches: BucketBatches,
        rows: dict[End, PartitionRows],
        pieces: Sequence[ChunkBatch],
    ) -> _PlacedBucket:
        """Put a bucket where steps find it."""
        held = edges.shuffled(batches.order(self.device), self.device)
        slots: dict[End, PartitionRows] = {"src": self._slot("src", rows["src"])}
        slots["dst"] = slots["src"] if rows["src"] is rows["dst"] else self._slot("dst", rows["dst"])
        true = {
            side: TrueEnds(
                self._put(f"first {side}", each.first),
                self._put(f"count {side}", each.count),
                self._put(f"ends {side}", each.ends),
                each.where,
            )
            for side, each in self.steps.true_ends(held, rows).items()
        }
        weights: dict[End, Tensor] = {}
        keys: dict[End, Tensor] = {}
        for side in self.steps.objective.candidates.sides:
            keys[side] = self._put(f"key {side}", torch.tensor([signed(batches.keys[side])]))
            weight = batches.ends[side].weight
            if weight is not None:
                whole = torch.from_numpy(np.concatenate([[0.0], weight]))
                weights[side] = self._put(f"weight {side}", whole)[: len(whole)]
        return _PlacedBucket(
            rows=slots,
            ends={"src": self._put("src", held.src), "dst": self._put("dst", held.dst)},
            relation=self._put("relation", held.relation),
            true=true,
            keys=keys,
            weights=weights,
            plan=self._put("plan", _plan(pieces, batches.ends)),
        )

    def _slot(self, end: End, rows: PartitionRows) -> PartitionRows:
        return PartitionRows(self._put(f"values {end}", rows.values), self._put(f"total {end}", rows.total))

    def _put(self, name: str, given: Tensor) -> Tensor:
        """Return a copy of a tensor where one of its name always is, with whatever follows it there."""
        like = torch.empty(0, dtype=given.dtype, device=self.device)
        self._room.take(name, *given.shape, like=like).copy_(given)
        return self._room.all_of(name, *given.shape[1:])

    # Steps

    def _run(self, bucket: _PlacedBucket, shape: tuple[int, ...], optimizer: torch.optim.Optimizer) -> None:
        """Take a step, or replay it."""
        key = self._key(bucket, shape, optimizer)
        if not self._capture or key not in self._graphs:
            self._step(bucket, shape, optimizer)
            if self._capture:
                self._forget(key)
                # Memory that the step took anew is there now, and the next one of its kind is captured.
                self._graphs[self._key(bucket, shape, optimizer)] = None
            return
        graph = self._graphs[key]
        if graph is None:
            graph = self._graphs[key] = torch.cuda.CUDAGraph()
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            with gpu.capturing(graph, pool=self._pool):
                self._step(bucket, shape, optimizer)
        else:
            for state in optimizer.state.values():
                state["step"] += 1  # on the host, where a replay does not count
        graph.replay()

    def _forget(self, key: tuple[Any, ...]) -> None:
        """Let go of what was captured on memory, weights or a rate that are no more."""
        stale = [each for each in self._graphs if each[1:] != key[1:] or len(self._graphs) >= _MOST]
        for each in stale:
            del self._graphs[each]
        if not any(self._graphs.values()):
            self._pool = None  # it goes with the last graph that had it

    def _key(self, bucket: _PlacedBucket, shape: tuple[int, ...], optimizer: torch.optim.Optimizer) -> Any:
        """Return all that a captured step has fixed: what may change within a run, then what seldom does."""
        same = bucket.rows["src"] is bucket.rows["dst"]
        weighted = tuple(len(each) for each in bucket.weights.values())
        sums = (state["sum"].data_ptr() for state in optimizer.state.values())
        addresses = (each.data_ptr() for group in optimizer.param_groups for each in group["params"])
        grown = (self._room.grown, self.steps.space.grown)
        rate = float(optimizer.param_groups[0]["lr"])
        return (shape, same, weighted), grown, rate, tuple(addresses), tuple(sums)

    def _step(self, bucket: _PlacedBucket, shape: tuple[int, ...], optimizer: torch.optim.Optimizer) -> None:
        self._total += self.steps.step(self._pairs(bucket, shape), bucket.rows, optimizer)
        self._at += 1

    def _pairs(self, bucket: _PlacedBucket, shape: tuple[int, ...]) -> StepPairs:
        """Return the pairs of the step that the counter names, filled up to a shape."""
        chunks, chunk, *spans = shape
        known = dict(zip(_COLUMNS, bucket.plan.index_select(0, self._at)[0].unbind()))
        lanes = torch.arange(chunks * chunk, device=self.device)
        live = lanes < known["count"]
        places = known["first"] + torch.where(live, lanes, 0)
        numbers = known["number"] + torch.arange(chunks, device=self.device)
        drawn: dict[End, Tensor] = {}
        shifts: dict[End, Tensor | float] = {}
        how = self.steps.objective.candidates
        for side, span in (("dst", spans[1]), ("src", spans[0])):
            if side in bucket.keys:
                bounds = known[f"low_{side}"], known[f"high_{side}"]
                drawn[side] = self._drawn(bucket, side, numbers, bounds, span)
                if how.weighted:
                    shifts[side] = (
                        ((bounds[1] - bounds[0]).double() / how.drawn)
                        .log()
                        .to(bucket.rows[side].values.dtype)
                    )
        true = {
            side: TrueEnds(
                each.first.index_select(0, places),
                torch.where(live, each.count.index_select(0, places), 0),
                each.ends,
                each.where,
            )
            for side, each in bucket.true.items()
        }
        return StepPairs(
            ids={end: each.index_select(0, places) for end, each in bucket.ends.items()},
            relation=bucket.relation.index_select(0, places),
            drawn=drawn,
            true=true,
            shifts=shifts,
            live=live.to(bucket.rows["src"].values.dtype),
        )

    def _drawn(
        self, bucket: _PlacedBucket, side: End, numbers: Tensor, bounds: tuple[Tensor, Tensor], span: int
    ) -> Tensor:
        """Return what `EndPool.draw` does."""
        low, high = bounds
        count = self.steps.objective.candidates.count
        if count == "all":
            return (low + torch.arange(span, device=self.device)).expand(len(numbers), span)
        found = _bits(bucket.keys[side], numbers, count)
        if side not in bucket.weights:
            return low + (found * (high - low) >> 32)
        weight = bucket.weights[side]
        base = weight.index_select(0, low.view(1))
        whole = weight.index_select(0, high.view(1)) - base
        at = base + found.double() * 2.0**-32 * whole
        place = torch.searchsorted(weight[1:], at, right=True)
        return torch.where(whole > 0, torch.minimum(torch.maximum(place, low), high - 1), low)


def _plan(pieces: Sequence[ChunkBatch], ends: dict[End, EndPool]) -> Tensor:
    """Return what is known of each step, [steps, 7]."""
    rows = [
        (
            *(each.edges.start, each.edges.stop - each.edges.start, each.number),
            *(bound for end in ("src", "dst") for bound in ends[end].bounds(each.kinds[end])),
        )
        for each in pieces
    ]
    return torch.tensor(rows, dtype=torch.int64).view(-1, len(_COLUMNS))


def _bits(key: Tensor, ids: Tensor, lanes: int) -> Tensor:
    """Return the 32 bits of each id and lane, [n, lanes]."""
    if ids.is_cuda and gpu.available():
        from weft.kernels.triton.rows import bits  # where there is a GPU

        return bits(key, ids, lanes)
    return draw_by(key, ids[:, None], torch.arange(lanes, device=ids.device))
