"""Tensor workers as a run sees them: tasks go to who is free, and again where one is late or gone.

Each worker, a process of this machine or an actor of Ray, has a thread here that hands it one task after the
other. The first answer of a task counts; what answers later is dropped.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Any

from torch import Tensor

from weft.errors import FormatError, TrainingError
from weft.strategies.tensor_workers.deadlines import Deadlines
from weft.strategies.tensor_workers.frames import Frame
from weft.strategies.tensor_workers.operators import JOINED
from weft.strategies.tensor_workers.process_worker import LEAVE, START, ProcessWorker, TensorWorker

_TRIES = 25
"""How often a task is begun before the run ends; workers that die at once never finish one."""
_STILLBORN = 3
"""Workers in a row that end before they are ready: no further one is tried."""
_LOOK = 0.1


@dataclass
class Counts:
    """What tensor workers did."""

    workers: int = 0
    tasks: int = 0
    joined: int = 0
    """Tasks that did a loss and gradients with a product, one round trip instead of two."""
    pulls: int = 0
    """Weights that workers asked for."""
    relaunched: int = 0
    late: int = 0
    lost: int = 0
    bytes: int = 0


@dataclass(eq=False)
class _TensorTask:
    """A task, and its answer."""

    frame: Frame
    weights: dict[str, Tensor]
    tries: int = 0
    begun: float | None = None
    """When the last try began; None: nobody has taken it yet."""
    answer: Sequence[Tensor] | None = None


@dataclass(eq=False)
class _Hand:
    """A worker and the thread that hands it tasks."""

    worker: TensorWorker
    thread: Thread | None = None
    begun: float | None = None
    """Since when it is at a task."""
    name: str = ""
    leaves: bool = False


class TensorPool:
    """Runs named operators on workers; any thread may ask, and waits for its answer."""

    def __init__(self, count: int, make: Callable[[], TensorWorker] = ProcessWorker) -> None:
        self._make = make
        self.counts, self.deadlines = Counts(), Deadlines()
        self._todo: SimpleQueue[_TensorTask | None] = SimpleQueue()
        self._changed = Condition()
        self._hands: list[_Hand] = []
        self._wanted = self._number = 0
        self._closed = False
        self._stillborn = self._killed = 0
        self._why = ""
        self.resize(count)

    @property
    def pids(self) -> list[int]:
        """The processes of the workers of this machine that are there."""
        with self._changed:
            return [pid for each in self._hands if (pid := each.worker.pid) is not None]

    def resize(self, count: int) -> None:
        """Have so many workers from now on; those too many leave after their task."""
        with self._changed:
            self._wanted = self.counts.workers = count
            self._fill()

    def run(self, name: str, arrays: Sequence[Tensor], weights: dict[str, Tensor]) -> Sequence[Tensor]:
        """Return what an operator makes of arrays and weights, the latter by name and version."""
        with self._changed:
            self._number += 1
            self.counts.tasks += 1
            self.counts.joined += name in JOINED
            frame = Frame("task", self._number, name, [*weights], arrays)
            work = _TensorTask(frame, weights)
            self._todo.put(work)
            while work.answer is None:
                self._changed.wait(_LOOK)
                if self._closed and work.answer is None:
                    raise TrainingError("tensor workers were ended while a task was under way")
                if self._hopeless:
                    raise TrainingError(f"tensor workers end before they begin: {self._why}")
                self._relaunch(work)
            return work.answer

    def close(self) -> None:
        """End all workers; those that do not leave are killed."""
        with self._changed:
            self._closed, self._wanted = True, 0
            hands, self._hands = self._hands, []
            self._changed.notify_all()
        for _ in hands:
            self._todo.put(None)
        for each in hands:
            each.worker.end(kill=each.begun is not None)
        until = time.monotonic() + LEAVE
        for each in hands:
            _leave(each, until)

    # Underneath, with the lock held

    def _relaunch(self, work: _TensorTask) -> None:
        """Give a task that is late to another worker as well; have another where all are late."""
        deadline, now = self.deadlines.of(work.frame.name), time.monotonic()
        if work.begun is not None and now - work.begun > deadline:
            if work.tries >= _TRIES:
                raise TrainingError(f"{work.frame.name}: {_TRIES} tensor workers in turn gave no answer")
            work.begun = None
            self.counts.relaunched += 1
            self._todo.put(work)
        self._fill()

    def _fill(self) -> None:
        """Start workers in the place of those that are gone, or late at what they do."""
        if self._closed or self._hopeless:
            return
        able = [each for each in self._hands if not (each.leaves or self._is_late(each))]
        for each in able[self._wanted :]:
            each.leaves = True
            self._todo.put(None)
        for _ in range(self._wanted - len(able)):
            late = [each for each in self._hands if self._is_late(each)]
            if len(late) > self._wanted:  # stopped for good, or nearly: its thread takes it for lost
                late[0].worker.end(kill=True)
            hand = _Hand(self._make())
            hand.thread = Thread(target=self._serve, args=(hand,), daemon=True, name="weft tensor worker")
            self._hands.append(hand)
            hand.thread.start()

    @property
    def _hopeless(self) -> bool:
        return self._stillborn >= _STILLBORN or self._killed >= _TRIES

    def _note_birth(self, by_others: bool, why: BaseException) -> None:
        """Count workers in a row that end before they are ready, those apart that somebody killed."""
        self._why = str(why)
        self._killed, self._stillborn = self._killed + by_others, self._stillborn + (not by_others)

    def _is_late(self, hand: _Hand) -> bool:
        begun = hand.begun
        limit = START if not hand.name else self.deadlines.of(hand.name)
        return begun is not None and time.monotonic() - begun > limit

    # The thread of a worker

    def _serve(self, hand: _Hand) -> None:
        work: _TensorTask | None = None
        born = False
        try:
            hand.begun = time.monotonic()
            hand.worker.start()
            self._stillborn, self._killed, born = 0, 0, True
            while not (hand.leaves or self._closed):
                hand.begun = None
                work = self._todo.get()
                if work is None:
                    if hand.leaves or self._closed:
                        break
                    continue
                if work.answer is None:
                    self._hand_over(hand, work)
                work = None
        except (OSError, ConnectionError, TrainingError, FormatError) as error:
            by_others = not (born or self._closed) and hand.worker.was_killed()  # which may take a moment
            with self._changed:
                if not self._closed:
                    self.counts.lost += 1
                if not (self._closed or born):
                    self._note_birth(by_others, error)
                if work is not None and work.answer is None and not self._closed:
                    self.counts.relaunched += 1
                    work.begun = None
                    self._todo.put(work)
        finally:
            with self._changed:
                if hand in self._hands:
                    self._hands.remove(hand)
                self._fill()
                self._changed.notify_all()
            hand.worker.end(kill=True)
            hand.worker.reap(LEAVE)

    def _hand_over(self, hand: _Hand, work: _TensorTask) -> None:
        """Have a worker do a task."""
        with self._changed:
            work.tries += 1
            hand.name = work.frame.name
            began = work.begun = hand.begun = time.monotonic()
        done = hand.worker.run(work.frame, work.weights)
        frame = done.answer
        if frame.kind != "answer" or frame.number != work.frame.number:
            raise TrainingError("a tensor worker answered another task than its own")
        with self._changed:
            self.counts.pulls += done.pulls
            self.counts.bytes += done.sent + sum(each.numel() * each.element_size() for each in frame.arrays)
            if work.answer is None:
                work.answer = frame.arrays
                self.deadlines.took(work.frame.name, time.monotonic() - began)
                self._changed.notify_all()
            else:
                self.counts.late += 1

    def take_counts(self) -> dict[str, Any]:
        """Return what was done so far."""
        with self._changed:
            return asdict(self.counts)


def _leave(hand: _Hand, until: float) -> None:
    """Wait for a worker and its thread to be gone."""
    if hand.thread is not None:
        hand.thread.join(max(0.1, until - time.monotonic()))
    hand.worker.reap(max(0.1, until - time.monotonic()))
