"""What a bucket is trained on, step by step: its edges shuffled, in batches of chunks with their candidates.

The candidates of a chunk, for each side, are the other ends of its own edges, which come as often as in the
data, and nodes of the type that are drawn from the partition, uniformly or by degree^alpha. Every draw is a
function of (seed, epoch, bucket, place).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.config import Range
from weft.draw import Stream, draw, fold, permutation, signed, uniform
from weft.kernels.reference import draw_by

Ints = NDArray[np.int64]
End = Literal["src", "dst"]
_SIDES: dict[str, tuple[End, ...]] = {"both": ("dst", "src"), "dst": ("dst",), "src": ("src",)}


@dataclass(frozen=True)
class Candidates:
    """Which nodes true ends are compared with: those of `strategy.negatives`."""

    count: Annotated[int, Range(least=0)] | Literal["all"] = 50
    """Drawn from the partition for each chunk, or all nodes of the type that it has."""
    inbatch: bool | None = None
    """Whether other ends of the chunk's own edges are candidates, too: by default unless all nodes are."""
    side: Literal["both", "dst", "src"] = "both"
    """Which end is replaced."""
    alpha: Annotated[float, Range(least=0)] = 0.0
    """Nodes are drawn by (how often they are such an end)^alpha: 0 is uniform."""
    exclude: Literal["known", "own"] = "known"
    """What is no negative: any end that makes an edge of the training set, or the pair's own alone."""
    weighted: bool = False
    """Whether drawn nodes stand for all of the type in the partition: a softmax over count of N nodes counts
    each N / count times, and so estimates that over all of them."""

    @property
    def sides(self) -> tuple[End, ...]:
        """The ends that are replaced, in order."""
        return _SIDES[self.side]

    @property
    def drawn(self) -> int:
        """How many are drawn for each chunk."""
        return self.count if isinstance(self.count, int) else 0

    @property
    def others(self) -> bool:
        """Whether other ends of a chunk's own edges are candidates."""
        return self.count != "all" if self.inbatch is None else self.inbatch


@dataclass(frozen=True, eq=False)
class BucketEdges:
    """The edges of a bucket: rows within both partitions, relation and group, one row per edge.

    Edges of one group have ends of the same types, `kinds[group]` = (type of source, type of target).
    """

    src: Tensor
    dst: Tensor
    relation: Tensor
    group: Tensor
    kinds: list[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.src)

    def shuffled(self, order: Tensor, device: torch.device) -> "BucketEdges":
        """Return the edges in an order, on a device."""
        columns = (self.src, self.dst, self.relation, self.group)
        src, dst, relation, group = (each.to(device)[order].long() for each in columns)
        return BucketEdges(src, dst, relation, group, self.kinds)


@dataclass(frozen=True)
class ChunkBatch:
    """A batch: which of the shuffled edges, in how many chunks of equal size, of which types."""

    edges: slice
    chunks: int
    number: int
    """That of its first chunk, by which candidates are drawn."""
    kinds: dict[End, int]
    """The types of both ends."""


@dataclass(frozen=True, eq=False)
class EndPool:
    """The nodes of one side of a bucket: where rows of each type begin, and how often each is such an end."""

    starts: Ints
    weight: NDArray[np.float64] | None = None
    """[rows] cumulated weights of draws; None: uniform."""

    def bounds(self, kind: int) -> tuple[int, int]:
        """Return where the rows of a type begin and end."""
        return int(self.starts[kind]), int(self.starts[kind + 1])

    def draw(self, key: int, chunks: Ints, kind: int, count: int | Literal["all"]) -> Ints:
        """Return `count` rows of a type for each chunk, by its number, [chunks, count]; or all of them."""
        low, high = self.bounds(kind)
        if count == "all":
            return np.tile(np.arange(low, high), (len(chunks), 1))
        lanes = np.arange(count)
        if self.weight is None:
            bits = draw(key, chunks[:, None], lanes).astype(np.uint64)
            return low + (bits * np.uint64(high - low) >> np.uint64(32)).astype(np.int64)
        base = self.weight[low - 1] if low else 0.0
        whole = self.weight[high - 1] - base
        if whole <= 0.0:  # no node of the type is such an end
            return np.full((len(chunks), count), low)
        at = base + uniform(key, chunks[:, None], lanes) * whole
        found: Ints = np.clip(np.searchsorted(self.weight, at, side="right"), low, high - 1)
        return found


class BucketBatches:
    """The batches of one bucket in one epoch; `order` is how its edges were shuffled."""

    def __init__(
        self,
        edges: BucketEdges,
        ends: dict[End, EndPool],
        candidates: Candidates,
        *,
        batch: int,
        chunk: int,
        seed: int,
        epoch: int,
        bucket: int,
    ) -> None:
        self._edges, self._candidates, self.ends = edges, candidates, ends
        chunk = batch if candidates.count == "all" else chunk
        self.chunk, self.chunks = chunk, max(batch // chunk, 1)
        """Edges of a chunk, and chunks of a batch, at most."""
        self._key = fold(seed, Stream.SHUFFLE, epoch, bucket, 1)
        self.keys = {end: fold(seed, Stream.NEGATIVE, epoch, bucket, place) for place, end in _PLACES}
        """By side, that of draws of candidates."""

    def order(self, device: torch.device) -> Tensor:
        """Return how the edges are shuffled, [edges] on a device: by group, by chance within each."""
        order = shuffled(self._key, len(self._edges), device)
        if len(self._edges.kinds) == 1:
            return order
        return order[self._edges.group.to(device)[order].argsort(stable=True)]

    def __iter__(self) -> Iterator[ChunkBatch]:
        """Give batches, each of one group: those of all groups in random order."""
        pieces = [*self._pieces()]
        for place in permutation(self._key + 1, len(pieces)).tolist():
            yield pieces[place]

    def _pieces(self) -> Iterator[ChunkBatch]:
        first = number = 0
        sizes = torch.bincount(self._edges.group, minlength=len(self._edges.kinds)).tolist()
        most = self.chunks * self.chunk
        for (src, dst), size in zip(self._edges.kinds, sizes):
            kinds: dict[End, int] = {"src": src, "dst": dst}
            for start in range(first, first + size, most):
                stop = min(start + most, first + size)
                whole = (stop - start) // self.chunk
                middle = start + whole * self.chunk
                if whole:
                    yield ChunkBatch(slice(start, middle), whole, number, kinds)
                if middle < stop:
                    yield ChunkBatch(slice(middle, stop), 1, number + whole, kinds)
                number += whole + 1
            first += size

    def drawn(self, batch: ChunkBatch) -> dict[End, Tensor]:
        """Return by side the candidates of a batch that are drawn, [chunks, count] rows of the partition."""
        numbers = np.arange(batch.number, batch.number + batch.chunks)
        return {
            side: torch.from_numpy(
                self.ends[side].draw(self.keys[side], numbers, batch.kinds[side], self._candidates.count)
            )
            for side in self._candidates.sides
        }

    def shifts(self, batch: ChunkBatch) -> dict[End, float]:
        """Return by side the logarithm of how many nodes a candidate stands for; nothing where for itself."""
        how = self._candidates
        if not how.weighted:
            return {}
        spans = {side: self.ends[side].bounds(batch.kinds[side]) for side in how.sides}
        return {side: log((high - low) / how.drawn) for side, (low, high) in spans.items()}


_PLACES: tuple[tuple[int, End], ...] = ((0, "dst"), (1, "src"))


def shuffled(key: int, count: int, device: torch.device) -> Tensor:
    """Return `weft.draw.permutation`, made where it is asked for."""
    if device.type == "cpu":
        return torch.from_numpy(permutation(key, count))
    ids = torch.arange(count, device=device)
    high, low = (draw_by(ids.new_tensor(signed(key)), ids, ids.new_tensor(lane)) for lane in (0, 1))
    return ((high << 32 | low) ^ -(1 << 63)).argsort(stable=True)  # the order of numbers without a sign
