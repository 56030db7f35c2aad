"""Which candidates of a chunk are no negatives: they are true ends of the same node and relation.

Candidates of a bucket lie in its partitions, so every edge that could make one true is in the bucket: its
own edges are enough.
"""

import ctypes
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from weft.kernels import gpu, native
from weft.tasks.ranking import LEFT_OUT

_P, _L, _I = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_SIGNATURE: dict[str, list[type]] = {"weft_leave_out": [_P, _P, _P, _P, _L, _L, _P, _L, _L, _P, _I, _I]}


@dataclass(frozen=True, eq=False)
class TrueEnds:
    """For each edge of a bucket the other ends that are true, as a run of `ends`."""

    first: Tensor
    """[edges] int64"""
    count: Tensor
    """[edges] int64"""
    ends: Tensor
    """[edges] rows of the other end's partition, sorted by what they are true of."""
    where: Tensor
    """[rows of that partition] int32, all -1: room for a table of candidates. None on a GPU."""

    @classmethod
    def of(cls, stays: Tensor, relation: Tensor, moves: Tensor, num_rows: int) -> "TrueEnds":
        """Return the true ends `moves` of each (stays, relation), one row per edge."""
        span = int(relation.max()) + 1 if len(relation) else 1
        asked = stays.long() * span + relation.long()
        _, place, sizes = torch.unique(asked, return_inverse=True, return_counts=True)
        starts = sizes.cumsum(0) - sizes
        where = torch.full((num_rows if stays.is_cpu else 0,), -1, dtype=torch.int32)
        return cls(starts[place], sizes[place], moves.long()[place.argsort(stable=True)], where)

    @classmethod
    def own(cls, ends: Tensor, num_rows: int) -> "TrueEnds":
        """Return the own end of each edge as its one true end."""
        where = torch.full((num_rows if ends.is_cpu else 0,), -1, dtype=torch.int32)
        return cls(torch.arange(len(ends), device=ends.device), torch.ones_like(ends), ends, where)

    def take(self, edges: Tensor | slice) -> "TrueEnds":
        """Return those of some edges."""
        return replace(self, first=self.first[edges], count=self.count[edges])

    def leave_out(self, scores: Tensor, candidates: Tensor) -> None:
        """Put -inf where scores [chunks, n, 1 + m] of these edges are those of true pairs.

        `candidates` are [chunks, m]; the edges are those of all chunks, one after the other. On a CPU scores
        may be those of candidates alone, [chunks, n, m].
        """
        if scores.is_cuda and gpu.available():
            from weft.kernels.triton.rows import leave_out  # where there is a GPU

            leave_out(scores, self.first, self.count, self.ends, candidates)
            return
        if scores.device.type != "cpu" or not native.available():
            before = scores.shape[2] - candidates.shape[1]
            scores.view(-1).index_fill_(0, self.places(candidates, before), LEFT_OUT)
            return
        native.declare(_SIGNATURE)
        chunks, rows, columns = scores.shape
        assert scores.is_contiguous()
        assert candidates.is_contiguous()
        assert len(self.first) == chunks * rows
        true_ends, kinds = (self.first, self.count, self.ends), native.DTYPE_CODES[scores.dtype]
        sizes = (chunks, rows, candidates, candidates.shape[1], columns, self.where, kinds)
        threads = native.threads()
        native.call("weft_leave_out", scores, *true_ends, *sizes, threads, what="candidates of a chunk")

    def places(self, candidates: Tensor, before: int = 1) -> Tensor:
        """Return where the scores of true pairs are, numbered one by one: what the core is held to.

        A row has so many numbers before those of candidates.
        """
        chunks, columns = candidates.shape
        first, count = self.first, self.count
        rows = len(first) // max(1, chunks)
        row = torch.repeat_interleave(count)
        at = torch.arange(len(row), device=row.device) + (first - (count.cumsum(0) - count))[row]
        # Chunk and node as one number: a candidate and a true end of the same chunk that are the same node.
        most = max(int(each.max()) if each.numel() else 0 for each in (self.ends, candidates))
        base = torch.arange(chunks, device=row.device) * (1 + most)
        ends = self.ends[at] + base[row // max(1, rows)]
        nodes, column = torch.sort((candidates + base[:, None]).flatten())
        low, high = torch.searchsorted(nodes, ends), torch.searchsorted(nodes, ends, right=True)
        hit = (high > low).nonzero().flatten()
        low, times, row = low[hit], (high - low)[hit], row[hit]
        again = torch.repeat_interleave(times)
        turn = torch.arange(len(again), device=again.device) - (times.cumsum(0) - times)[again]
        return row[again] * (before + columns) + before + column[low[again] + turn] % columns
