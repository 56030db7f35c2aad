"""The seeds of pairs: each distinct end once, at each time that it is seen at."""

from typing import NamedTuple

import torch
from torch import Tensor

from weft.errors import InputError
from weft.graph.node_pairs import Pairs


class EndRows(NamedTuple):
    """The distinct ends of pairs and of their negatives, and where each end stands among them."""

    seeds: Tensor
    """[s] int64 global, rising, and so by type."""
    times: Tensor | None
    """[s] when each is seen, where times matter."""
    src: Tensor
    """[n] rows of seeds."""
    dst: Tensor
    """[n]"""
    negative: Tensor
    """In the shape of the negatives."""

    @classmethod
    def of(cls, pairs: Pairs, negative: Tensor, *, timed: bool) -> "EndRows":
        """Return those of pairs and negatives [n, k], [2 n, k] or [m]; with `timed` at the pairs' times."""
        ends = torch.cat([pairs.src, pairs.dst, negative.flatten()])
        sizes = [len(pairs), len(pairs), negative.numel()]
        if not timed or pairs.time is None:
            seeds, rows = torch.unique(ends, return_inverse=True)
            times = None
        else:
            values, rank = torch.unique(_times(pairs.time, negative), return_inverse=True)
            count = max(1, len(values))
            keys, rows = torch.unique(ends * count + rank, return_inverse=True)
            seeds, times = keys // count, values[keys % count]
        src, dst, others = torch.split(rows, sizes)
        return cls(seeds, times, src, dst, others.reshape(negative.shape))


def _times(time: Tensor, negative: Tensor) -> Tensor:
    """Return the time of each end: sources, targets, negatives."""
    if negative.dim() == 1:
        raise InputError(
            "negatives: pairs of different times cannot share them; draw some for each pair, or use a "
            "sampler that is not temporal"
        )
    sides = len(negative) // max(1, len(time))
    return torch.cat([time, time, time.repeat(sides).repeat_interleave(negative.shape[1])])
