"""What carries the calls of a group, in the order in which its members make them.

A `Direct` wire has one member a process and is torch's process group; `elastic/hub.py` has several members a
process.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor

REDUCTIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class Transit(Protocol):
    """A call under way, as torch has it."""

    def wait(self) -> Any:
        """Return when it is done; raises RuntimeError where it failed."""

    def is_completed(self) -> bool:
        """Return whether `wait` would not block."""

    def get_future(self) -> "Future":
        """Return what tells its end."""


class Future(Protocol):
    """What tells the end of a call."""

    def add_done_callback(self, call: Callable[[Any], None]) -> None:
        """Have a function called once, at the end."""


class Wire(Protocol):
    """One sequence of calls, which every member makes in the same order."""

    def all_to_all(
        self, received: Tensor, rows: Tensor, recv_counts: Sequence[int], send_counts: Sequence[int]
    ) -> Transit:
        """Send a block of rows to each member, and fill `received` with those of all."""

    def all_reduce(self, tensor: Tensor, op: str) -> Transit:
        """Reduce a contiguous tensor over all members, in place."""

    def broadcast(self, tensor: Tensor, rank: int) -> Transit:
        """Fill a contiguous tensor with that of a rank of the whole run."""

    def send(self, tensor: Tensor, rank: int) -> Transit:
        """Hand a tensor to a rank of the whole run."""

    def receive(self, into: Tensor, rank: int) -> Transit:
        """Fill a tensor with what a rank of the whole run sends."""


class Direct:
    """The calls of a process group of torch, each process a member."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group

    def all_to_all(
        self, received: Tensor, rows: Tensor, recv_counts: Sequence[int], send_counts: Sequence[int]
    ) -> Transit:
        """Send a block of rows to each member, and fill `received` with those of all."""
        return _begun(
            dist.all_to_all_single(
                received, rows, list(recv_counts), list(send_counts), group=self.group, async_op=True
            )
        )

    def all_reduce(self, tensor: Tensor, op: str) -> Transit:
        """Reduce a contiguous tensor over all members, in place."""
        return _begun(dist.all_reduce(tensor, REDUCTIONS[op], group=self.group, async_op=True))

    def broadcast(self, tensor: Tensor, rank: int) -> Transit:
        """Fill a contiguous tensor with that of a rank of the whole run."""
        return _begun(dist.broadcast(tensor, rank, group=self.group, async_op=True))

    def send(self, tensor: Tensor, rank: int) -> Transit:
        """Hand a tensor to a rank of the whole run."""
        return _begun(dist.isend(tensor, rank, group=self.group))

    def receive(self, into: Tensor, rank: int) -> Transit:
        """Fill a tensor with what a rank of the whole run sends."""
        return _begun(dist.irecv(into, rank, group=self.group))


def _begun(work: Any) -> Transit:
    assert work is not None, "asynchronous calls of a member give work"
    begun: Transit = work
    return begun
