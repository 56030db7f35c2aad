"""The seeds of pairs: each distinct end once, at each time that it is seen at."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.node_pairs import Pairs
from weft.samplers.base import Batch


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
    def of(cls, pairs: Pairs, negative: Tensor, *, times: Tensor | None = None) -> "EndRows":
        """Return those of pairs and negatives [n, k], [2 n, k] or [m]; with `times` [n] at those of pairs."""
        ends = torch.cat([pairs.src, pairs.dst, negative.flatten()])
        sizes = [len(pairs), len(pairs), negative.numel()]
        if times is None:
            seeds, rows = torch.unique(ends, return_inverse=True)
        else:
            values, rank = torch.unique(_times(times, negative), return_inverse=True)
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


@dataclass(eq=False, repr=False)
class AroundEnds:
    """What every batch of pairs has: the neighbourhood of their ends, which a model runs on."""

    nodes: Batch
    """The neighbourhood of all ends."""

    @property
    def blocks(self) -> list[Block]:
        """What a model takes."""
        return self.nodes.blocks

    @property
    def x(self) -> Any:
        """The features of the nodes."""
        return self.nodes.x

    @property
    def num_nodes(self) -> int:
        """The rows of x."""
        return self.nodes.num_nodes

    @property
    def num_edges(self) -> int:
        """The edges of all blocks."""
        return self.nodes.num_edges

    @property
    def device(self) -> torch.device:
        """Where the batch lies."""
        return self.nodes.device

    def fetch(self) -> Self:
        """Do now what a step would wait for."""
        self.nodes.fetch()
        return self

    def set_clock(self, clock: Tensor | None) -> None:
        """Give all blocks the (seed, epoch, step) that dropout is drawn by."""
        self.nodes.set_clock(clock)
