"""Rows that go to other workers: a call leaves once all intervals of this worker have made their part of it.

Intervals come to the calls of a step in one order, so calls are complete in that order too, the same on all
workers. Nobody waits for what travels but a thread, which puts it on the board.
"""

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Event, Lock, Thread

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.pending import Pending
from weft.comm.plan import HaloPlan, placed
from weft.strategies.asynchronous.board import Board, Ended, RowsKey, What
from weft.strategies.asynchronous.intervals import REMOTE, Interval, places_of

_PATIENCE = 35.0
_LOOK = 0.2
"""Seconds between two looks whether the run has failed."""


class Post:
    """Sends what the intervals of this worker make, and puts on the board what those of others made."""

    def __init__(self, board: Board, plan: HaloPlan, intervals: Sequence[Interval], group: Group) -> None:
        self.board, self.plan, self.intervals, self.group = board, plan, intervals, group
        self._send = places_of(plan.send_rows, intervals)
        self._made: dict[tuple[What, int, int], dict[int, Tensor]] = {}
        self._lock = Lock()
        self._under_way: SimpleQueue[tuple[RowsKey, int, Pending] | Event | None] = SimpleQueue()
        self._thread: Thread | None = None
        if group.size > 1:
            self._thread = Thread(target=self._receive, name="weft post", daemon=True)
            self._thread.start()

    def give(self, what: What, slot: int, interval: int, epoch: int, rows: Tensor) -> None:
        """Hand out what an interval made: here at once, to other workers with that of all intervals."""
        self.board.put(RowsKey(what, slot, interval), epoch, rows)
        if self._thread is None:
            return
        with self._lock:
            made = self._made.setdefault((what, slot, epoch), {})
            made[interval] = rows
            if len(made) < len(self.intervals):
                return
            del self._made[what, slot, epoch]
            every = [made[number] for number in range(len(self.intervals))]
            start: Callable[..., Pending] = self._features if what == "features" else self._gradients
            self._under_way.put((RowsKey(what, slot, REMOTE), epoch, start(slot, every)))

    def settle(self) -> None:
        """Wait until all that left has arrived and stands on the board; every interval is between epochs."""
        if self._thread is not None:
            arrived = Event()
            self._under_way.put(arrived)
            while not arrived.wait(_LOOK):
                self.board.check()

    def close(self) -> None:
        """End the thread, when what is under way has arrived or cannot any more."""
        self._under_way.put(None)
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _features(self, slot: int, handed: list[Tensor]) -> Pending:
        plan, rows = self.plan, torch.cat(handed)[self._send]
        moved = self.group.all_to_all(rows, plan.send_counts, plan.recv_counts, label=Label("halo", slot))
        return moved.then(lambda received: placed(received, plan.order))

    def _gradients(self, slot: int, of_halos: list[Tensor]) -> Pending:
        plan, own = self.plan, self.plan.num_rows
        total = of_halos[0].new_zeros(plan.num_halo, *of_halos[0].shape[1:])
        for interval, gradient in zip(self.intervals, of_halos):
            remote = interval.halo >= own
            total.index_add_(0, interval.halo[remote] - own, gradient[remote])
        rows = total if plan.order is None else total[plan.order]
        moved = self.group.all_to_all(
            rows, plan.recv_counts, plan.send_counts, label=Label("halo", slot, "backward")
        )
        return moved.then(plan.sum_at_owner)

    def _receive(self) -> None:
        try:
            while (coming := self._under_way.get()) is not None:
                if isinstance(coming, Event):
                    coming.set()
                    continue
                key, epoch, pending = coming
                self.board.put(key, epoch, pending.wait())
        except Ended:
            pass
        except BaseException as error:
            self.board.end(error)
