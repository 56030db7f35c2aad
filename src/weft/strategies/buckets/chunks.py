"""What a bucket is trained on, step by step: its edges shuffled, in batches of chunks with their candidates.

The candidates of a chunk, for each side, are the other ends of its own edges, which come as often as in the
data, and nodes of the type that are drawn from the partition, uniformly or by degree^alpha. Every draw is a
function of (seed, epoch, bucket, place).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.config import Range
from weft.draw import Stream, draw, fold, permutation, uniform

Ints = NDArray[np.int64]
End = Literal["src", "dst"]
_SIDES: dict[str, tuple[End, ...]] = {"both": ("dst", "src"), "dst": ("dst",), "src": ("src",)}


@dataclass(frozen=True)
class Candidates:
    """Which nodes true ends are compared with: those of `strategy.negatives`."""

    count: Annotated[int, Range(least=0)] = 50
    """Drawn from the partition for each chunk."""
    inbatch: bool = True
    """Whether other ends of the chunk's own edges are candidates, too."""
    side: Literal["both", "dst", "src"] = "both"
    """Which end is replaced."""
    alpha: Annotated[float, Range(least=0)] = 0.0
    """Nodes are drawn by (how often they are such an end)^alpha: 0 is uniform."""
    exclude: Literal["known", "own"] = "known"
    """What is no negative: any end that makes an edge of the training set, or the pair's own alone."""

    @property
    def sides(self) -> tuple[End, ...]:
        """The ends that are replaced, in order."""
        return _SIDES[self.side]


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
        src, dst, relation = (each[order].long().to(device) for each in (self.src, self.dst, self.relation))
        return BucketEdges(src, dst, relation, self.group[order], self.kinds)


@dataclass(frozen=True)
class ChunkBatch:
    """Places `edges` of the shuffled edges, in `chunks` of equal size, and candidates drawn for each side."""

    edges: slice
    chunks: int
    drawn: dict[End, Tensor]
    """By side: [chunks, count] rows of the side's partition."""


@dataclass(frozen=True, eq=False)
class EndPool:
    """The nodes of one side of a bucket: where rows of each type begin, and how often each is such an end."""

    starts: Ints
    weight: NDArray[np.float64] | None = None
    """[rows] cumulated weights of draws; None: uniform."""

    def draw(self, key: int, chunks: Ints, kind: int, count: int) -> Ints:
        """Return `count` rows of a type for each chunk, by its number, [chunks, count]."""
        low, high = int(self.starts[kind]), int(self.starts[kind + 1])
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
        self._edges, self._ends, self._candidates = edges, ends, candidates
        self._batch, self._chunk = max(batch // chunk, 1) * chunk, chunk
        self._key = fold(seed, Stream.SHUFFLE, epoch, bucket, 1)
        self._keys = {end: fold(seed, Stream.NEGATIVE, epoch, bucket, place) for place, end in _PLACES}
        shuffled = permutation(self._key, len(edges))
        group = edges.group.numpy()[shuffled]
        self.order = torch.from_numpy(shuffled[np.argsort(group, kind="stable")])
        """[edges] by group, shuffled within each."""
        self._sizes = np.bincount(group, minlength=len(edges.kinds))

    def __iter__(self) -> Iterator[ChunkBatch]:
        """Give batches, each of one group: those of all groups in random order."""
        pieces = [*self._pieces()]
        for place in permutation(self._key + 1, len(pieces)).tolist():
            yield self._made(*pieces[place])

    def _pieces(self) -> Iterator[tuple[slice, int, tuple[int, int], int]]:
        """Give which edges a batch has, in how many chunks, of which types, and the number of the first."""
        first = number = 0
        for kinds, size in zip(self._edges.kinds, self._sizes.tolist()):
            for start in range(first, first + size, self._batch):
                stop = min(start + self._batch, first + size)
                whole = (stop - start) // self._chunk
                middle = start + whole * self._chunk
                if whole:
                    yield slice(start, middle), whole, kinds, number
                if middle < stop:
                    yield slice(middle, stop), 1, kinds, number + whole
                number += whole + 1
            first += size

    def _made(self, edges: slice, chunks: int, kinds: tuple[int, int], number: int) -> ChunkBatch:
        held = self._candidates
        numbers = np.arange(number, number + chunks)
        kind: dict[End, int] = {"src": kinds[0], "dst": kinds[1]}
        drawn = {
            side: torch.from_numpy(self._ends[side].draw(self._keys[side], numbers, kind[side], held.count))
            for side in held.sides
        }
        return ChunkBatch(edges, chunks, drawn)


_PLACES: tuple[tuple[int, End], ...] = ((0, "dst"), (1, "src"))
