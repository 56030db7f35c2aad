"""The block of an interval, and what brings it the rows of others: the board of its worker."""

from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.base import Arrival, Exchange, Later
from weft.exchanges.features import stack_rows
from weft.graph.sparse import SparseFeatures
from weft.strategies.asynchronous.intervals import REMOTE, Interval
from weft.strategies.asynchronous.post import Post
from weft.strategies.halo.block import HaloBlock


class BoardExchange(Exchange):
    """Hands out own rows of an epoch and reads those of others, of the epochs that the board chooses."""

    def __init__(self, interval: Interval, post: Post, clock: Tensor) -> None:
        halo = interval.shard.halo_ids
        none = torch.zeros(0, dtype=torch.int64)
        # Nothing of it is sent by a group: the plan says how many rows there are, and which.
        plan = HaloPlan(len(interval.shard.node_ids), none, none, [0], halo, [len(halo)], None)
        super().__init__(plan, Group.alone(), clock)
        self.interval, self.post = interval, post

    @property
    def epoch(self) -> int:
        """The epoch that this interval is in."""
        return int(self.clock[1])

    def pull(self, h: Tensor, slot: int) -> Arrival:
        """Hand out own rows, and read the halo when it is asked for."""
        own, epoch = self.interval, self.epoch
        self.post.give("features", slot, own.number, epoch, h.detach()[own.boundary])
        return Later(lambda: self._halo(h, slot))

    def push(self, gradient: Tensor, slot: int) -> Arrival:
        """Hand out the gradients of the halo, and read those of own rows when they are asked for."""
        own, epoch = self.interval, self.epoch
        self.post.give("gradients", slot, own.number, epoch, gradient.detach())
        return Later(lambda: self._returned(gradient, slot))

    def _halo(self, h: Tensor, slot: int) -> Tensor:
        own = self.interval
        sources = [source for source, _ in own.sources]
        held = self.post.board.read(own.number, self.epoch, "features", slot, sources)
        if not held:
            return h.new_zeros(0, *h.shape[1:])
        return torch.cat([rows[places] for rows, (_, places) in zip(held, own.sources)])

    def _returned(self, gradient: Tensor, slot: int) -> Tensor:
        own, size = self.interval, self.interval.stop - self.interval.start
        readers = [reader for reader, _, _ in own.readers]
        remote = [REMOTE] if self.post.group.size > 1 else []
        held = self.post.board.read(own.number, self.epoch, "gradients", slot, [*readers, *remote])
        total = gradient.new_zeros(size, *gradient.shape[1:])
        for rows, (_, chosen, places) in zip(held, own.readers):
            total.index_add_(0, places, rows[chosen])
        return total.add_(held[-1][own.start : own.stop]) if remote else total


class IntervalBlock(HaloBlock):
    """The edges into the rows of an interval. Inputs do not change: their halo is the worker's, read once."""

    def __init__(self, interval: Interval, of: HaloBlock, x: Any, exchange: BoardExchange) -> None:
        super().__init__(interval.shard, exchange, Group.alone(), clock=exchange.clock)
        self.interval, self._of, self._x = interval, of, x
        self._own: Any = None

    def constant(self, h: Any) -> bool:
        """Return whether `h` is the features: what a layer makes of them is brought anew in each epoch."""
        return super().constant(h) and h is self._own

    def mark_constant(self, h: Any) -> None:
        """Take the features of own rows as constant, the first that are marked."""
        if self._own is None:
            self._own = h
            super().mark_constant(h)

    def aggregates_sparse(self, h: SparseFeatures) -> bool:
        """Return whether the aggregate of a constant stays sparse; decided for all workers together."""
        ours = self.constant(h) or any(joined is h for _, joined in self.joined_inputs)
        return ours and self._of.aggregates_sparse(self._x)

    def join_constant(self, h: Any) -> Any:
        """Return the features of own rows with those of the halo below them."""
        for held, joined in self.joined_inputs:
            if held is h:
                return joined
        with torch.inference_mode(False), torch.no_grad():
            every = self._of.join_constant(self._x)
            if isinstance(h, SparseFeatures):
                joined = stack_rows(h, every.rows(self.interval.halo))
            else:
                joined = torch.cat([h, every[self.interval.halo]])
        self.joined_inputs.append((h, joined))
        return joined
