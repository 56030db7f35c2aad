"""Where the ranks of a rehearsal meet: threads of one process, with lanes that carry tensors between them.

Indices and counts are real and travel; tensors without values have nothing to carry, and only their shapes
are checked. The store is torch's own, in memory.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from weft.comm.failure import Failure
from weft.comm.group import Group
from weft.comm.link import Link
from weft.comm.rendezvous import RankPlace
from weft.comm.run_store import RunStore
from weft.errors import WorkerLost
from weft.plan.rehearse.course import BegunCall, Course, CourseLedger

PATIENCE = 300.0
"""Seconds that a rank of a rehearsal waits for another at most."""
_Key = tuple[Any, ...]


class RehearsalStage:
    """What the ranks of one rehearsal hand to each other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.store = RunStore(dist.HashStore())  # type: ignore[attr-defined]
        self.courses = [Course() for _ in range(size)]
        """What each rank does one after the other."""
        self.failure: BaseException | None = None
        self._posts: dict[_Key, dict[int, Any]] = {}
        self._reads: Counter[_Key] = Counter()
        self._change = threading.Condition()

    def post(self, key: _Key, member: int, value: Any) -> None:
        """Leave what a member contributes to a call."""
        with self._change:
            self._posts.setdefault(key, {})[member] = value
            self._change.notify_all()

    def collect(self, key: _Key, members: int, readers: int) -> dict[int, Any]:
        """Return what all members contributed, once they have; the last of so many readers clears it away."""
        with self._change:
            there = self._change.wait_for(
                lambda: self.failure is not None or len(self._posts.get(key, ())) == members, PATIENCE
            )
            if self.failure is not None:
                raise WorkerLost("another rank of the rehearsal failed")
            if not there:
                raise WorkerLost(f"a rank of the rehearsal did not come to {key} in {PATIENCE:g} s")
            posts = self._posts[key]
            self._reads[key] += 1
            if self._reads[key] == readers:
                del self._posts[key], self._reads[key]
            return posts

    def fail(self, error: BaseException) -> None:
        """Have every rank that waits, or will, give up."""
        with self._change:
            self.failure = self.failure or error
            self._change.notify_all()

    def group(self, rank: int) -> Group:
        """Return the group of all ranks, as one of them has it."""
        ranks = list(range(self.size))
        if self.size == 1:
            return Group.alone()
        link, ledger = StageLink.among(self, rank, ranks, "all"), CourseLedger(self.courses[rank])
        return Group(rank, ranks, timeout=PATIENCE, link=link, ledger=ledger)


class _Arrived:
    """A future whose callback is never needed: who waits does the work."""

    def add_done_callback(self, _: Callable[[Any], None]) -> None:
        """Forget it."""


class StageWork:
    """A call under way between threads."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish: Callable[[], None] | None = finish

    def get_future(self) -> _Arrived:
        """Return what takes callbacks."""
        return _Arrived()

    def is_completed(self) -> bool:
        """Return whether it was waited for."""
        return self._finish is None

    def wait(self) -> bool:
        """Take what the others left."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        return True


class StageLane:
    """A lane between the threads of a rehearsal."""

    def __init__(self, stage: RehearsalStage, rank: int, ranks: list[int], name: str) -> None:
        self.stage, self.rank, self.ranks, self.name = stage, rank, ranks, name
        self.course = stage.courses[rank]
        self._me = ranks.index(rank)
        self._calls = 0
        self._letters: Counter[tuple[int, int]] = Counter()

    def all_to_all(
        self, received: Tensor, rows: Tensor, recv_counts: Sequence[int], send_counts: Sequence[int]
    ) -> Any:
        """Leave the rows of every member, and take one's own."""
        given = None if _valueless(rows) else torch.split(rows, list(send_counts))

        def take(came: dict[int, Any]) -> None:
            if _valueless(received):
                return
            for place, held in zip(torch.split(received, list(recv_counts)), _in_order(came)):
                if held is not None:
                    place.copy_(held[self._me])

        width = rows[:1].numel() * rows.element_size() if len(rows) else 0
        sent = {peer: (float(width * count), 1.0) for peer, count in zip(self.ranks, send_counts) if count}
        return self._meet(given, take, sent)

    def all_reduce(self, tensor: Tensor, op: str) -> Any:
        """Leave a copy, and reduce those of all in member order."""
        given = None if _valueless(tensor) else tensor.clone()

        def take(came: dict[int, Any]) -> None:
            held = [each for each in _in_order(came) if each is not None]
            if held and not _valueless(tensor):
                stacked = torch.stack(held)
                tensor.copy_(
                    stacked.sum(0) if op == "sum" else stacked.amax(0) if op == "max" else stacked.amin(0)
                )

        turns = 2 * (len(self.ranks) - 1)  # a ring: each sends a part to the next
        after = self.ranks[(self._me + 1) % len(self.ranks)]
        return self._meet(given, take, {after: (_size(tensor) * turns / len(self.ranks), float(turns))})

    def broadcast(self, tensor: Tensor, root: int) -> Any:
        """Leave the root's, and take it."""
        given = None if _valueless(tensor) else tensor.clone()

        def take(came: dict[int, Any]) -> None:
            held = came[self.ranks.index(root)]
            if held is not None and not _valueless(tensor):
                tensor.copy_(held)

        # A tree: all have it when as many have been sent one after the other as it has levels.
        others, levels = [peer for peer in self.ranks if peer != root], math.log2(len(self.ranks))
        share = math.ceil(levels) / max(1, len(others))
        sent = {peer: (_size(tensor) * share, share) for peer in others if self.rank == root}
        return self._meet(given, take, sent)

    def send(self, tensor: Tensor, peer: int) -> Any:
        """Leave a tensor for a rank."""
        key = self._letter(self.rank, peer)
        self.course.begin(BegunCall(key, (self.rank, peer), {peer: (_size(tensor), 1.0)}))
        self.stage.post(key, 0, None if _valueless(tensor) else tensor.clone())
        return StageWork(lambda: self.course.wait(key))

    def receive(self, into: Tensor, peer: int) -> Any:
        """Take what a rank left."""
        key = self._letter(peer, self.rank)
        self.course.begin(BegunCall(key, (peer, self.rank)))

        def take() -> None:
            self.course.wait(key)
            held = self.stage.collect(key, 1, 1)[0]
            if held is not None and not _valueless(into):
                into.copy_(held)

        return StageWork(take)

    def _letter(self, sender: int, receiver: int) -> _Key:
        number = self._letters[sender, receiver]
        self._letters[sender, receiver] += 1
        return (self.name, "letter", sender, receiver, number)

    def _meet(
        self, given: Any, take: Callable[[dict[int, Any]], None], sent: dict[int, tuple[float, float]]
    ) -> StageWork:
        key = (self.name, tuple(self.ranks), self._calls)
        self._calls += 1
        sent.pop(self.rank, None)
        self.course.begin(BegunCall(key, tuple(self.ranks), sent))
        self.stage.post(key, self._me, given)
        size = len(self.ranks)

        def finish() -> None:
            self.course.wait(key)
            take(self.stage.collect(key, size, size))

        return StageWork(finish)


class StageLink(Link):
    """The connections of one group of threads."""

    stage: RehearsalStage
    ranks: list[int]
    rank: int

    @staticmethod
    def among(stage: RehearsalStage, rank: int, ranks: list[int], purpose: str) -> "StageLink":
        """Return those of a rank to others."""
        key = f"{purpose}-{'-'.join(map(str, ranks))}"
        lanes = [StageLane(stage, rank, ranks, f"{key}-{lane}") for lane in ("main", "background")]
        place = RankPlace(rank, stage.size, rank, stage.size, "rehearsal", 0, 0, True)
        heart: Any = _Heart(stage)
        store = stage.store.within(key)
        link = StageLink(place, store, heart, *lanes, timeout=PATIENCE, whole=purpose == "all")
        link.stage, link.rank, link.ranks = stage, rank, ranks
        return link

    def part(self, ranks: list[int], purpose: str) -> "StageLink":
        """Return connections among some ranks."""
        return StageLink.among(self.stage, self.rank, ranks, f"{purpose}.")

    def close(self) -> None:
        self.closed = True

    def abandon(self, failure: Failure | None) -> None:
        """Leave after a failure: the stage knows."""
        self.closed = True


class _Heart:
    """What stands for the heartbeat: threads of one process fail together."""

    doing = "start"

    def __init__(self, stage: RehearsalStage) -> None:
        self.stage, self.watch = stage, self

    def enter(self, doing: str) -> None:
        self.doing = doing

    def check(self) -> None:
        if self.stage.failure is not None:
            raise WorkerLost("another rank of the rehearsal failed")

    def gone(self) -> list[int]:
        return []

    def blame(self, error: Exception, doing: str) -> Exception:
        return error


def _in_order(came: dict[int, Any]) -> list[Any]:
    return [came[member] for member in range(len(came))]


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _valueless(tensor: Tensor) -> bool:
    return isinstance(tensor, FakeTensor)
