"""The partitions that are in memory, and a thread that brings the next ones and takes old ones back.

Which partition comes and which goes before a visit is planned for an epoch (`orders.swaps`). While a visit
is trained, what the next one needs is read into room of its own, and what the last one left is written.
"""

import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from weft.errors import TrainingError
from weft.strategies.buckets.orders import swaps
from weft.strategies.buckets.partition_files import PartitionFiles
from weft.strategies.buckets.training import PartitionRows

PATIENCE = 600.0
"""Seconds in which no partition was read or written, after which the disk is said to hang."""


@dataclass(eq=False)
class _Held:
    rows: PartitionRows
    version: int
    saved: bool = True
    """Whether a file holds this version."""
    ready: threading.Event | None = None
    """Set when the rows are there; None: they are."""


class Buffer:
    """At most `capacity` partitions in memory, beside those on their way: to the next visit, or to files.

    `versions` says which version of each partition is the last one, whoever trained it.
    """

    def __init__(
        self,
        files: PartitionFiles,
        capacity: int,
        *,
        device: torch.device | None = None,
        background: bool = True,
    ) -> None:
        self.files, self.capacity = files, capacity
        self._device = torch.device("cpu") if device is None else device
        self.versions = [0] * files.division.partitions
        self.waited = 0.0
        """Seconds in which training waited for partitions."""
        self._held: dict[int, _Held] = {}
        self._plan: list[tuple[list[int], list[int]]] = []
        self._worker = _Worker() if background else None
        self._brought = 0

    @property
    def swaps(self) -> int:
        """How many partitions were read after the buffer was filled."""
        return max(0, self._brought - min(self.capacity, len(self.versions)))

    def begin(self, visits: Sequence[Sequence[int]]) -> None:
        """Plan the visits that follow."""
        for partition in [one for one, held in self._held.items() if held.version != self.versions[one]]:
            del self._held[partition]  # another worker has trained it since
        self._plan = swaps(visits, self.capacity, self._held)

    def visit(self, number: int, partitions: Sequence[int]) -> dict[int, PartitionRows]:
        """Return the rows of the partitions of a visit, the `number`-th of those that were planned."""
        for partition in self._plan[number][1]:
            self._evict(partition)
        for partition in partitions:
            self._bring(partition)
        return {partition: self._ready(partition) for partition in partitions}

    def prefetch(self, number: int, *, unless: Collection[int] = ()) -> None:
        """Begin to read what a later visit needs, but for partitions that others train until then."""
        if self._worker is None or number >= len(self._plan):
            return
        for partition in self._plan[number][0]:
            if partition not in unless:
                self._bring(partition)

    def trained(self, partitions: Sequence[int], version: int) -> None:
        """Note that the rows of partitions were changed here: they are a new version."""
        for partition in partitions:
            self.versions[partition] = version
            held = self._held[partition]
            held.version, held.saved = version, False

    def hand_over(self, partitions: Sequence[int]) -> None:
        """Write partitions that another worker trains next, and let go of them; they are there on return."""
        for partition in partitions:
            self._evict(partition)
        self._settle()

    def save(self, partitions: Collection[int]) -> None:
        """Write of these what no file holds, and keep them; they are there on return."""
        for partition in partitions:
            self._ready(partition)
            self._save(partition, self._held[partition])
        self._settle()

    def flush(self) -> None:
        """Write whatever no file holds, and keep it."""
        self.save([*self._held])

    def current(self) -> list[int]:
        """Return the partitions of which the last version is in memory."""
        return [one for one, held in self._held.items() if held.version == self.versions[one]]

    def rows(self, partition: int) -> PartitionRows | None:
        """Return the rows of the last version of a partition where they are in memory; else None."""
        held = self._held.get(partition)
        if held is None or held.version != self.versions[partition]:
            return None
        return self._ready(partition)

    def restore(self, versions: Sequence[int]) -> None:
        """Go on from versions that files hold."""
        self._settle()
        self._held.clear()
        self.versions[:] = versions

    def close(self) -> None:
        """End the thread."""
        if self._worker is not None:
            self._worker.close()

    def _bring(self, partition: int) -> None:
        """Have the last version read, unless it is here or on its way."""
        if partition in self._held:
            return
        version = self.versions[partition]
        held = _Held(self.files.empty(partition), version, ready=threading.Event())
        self._held[partition] = held
        self._brought += 1
        self._do(lambda: self.files.read(partition, version, held.rows), held.ready)

    def _evict(self, partition: int) -> None:
        held = self._held.pop(partition, None)
        if held is not None:
            self._save(partition, held)

    def _save(self, partition: int, held: _Held) -> None:
        if not held.saved:
            version, rows, held.saved = held.version, held.rows.to(torch.device("cpu")), True
            self._do(lambda: self.files.write(partition, version, rows))

    def _do(self, work: Callable[[], None], done: threading.Event | None = None) -> None:
        if self._worker is not None:
            self._worker.put(work, done)
            return
        work()
        if done is not None:
            done.set()

    def _ready(self, partition: int) -> PartitionRows:
        held = self._held[partition]
        if held.ready is not None:
            self._wait(held.ready, f"partition {partition}")
            held.ready, held.rows = None, held.rows.to(self._device)
        return held.rows

    def _settle(self) -> None:
        """Wait until everything that was begun is done."""
        done = threading.Event()
        self._do(lambda: None, done)
        self._wait(done, "writing partitions")

    def _wait(self, event: threading.Event, what: str) -> None:
        begun = time.perf_counter()
        if self._worker is not None:
            self._worker.wait(event, what)
        self.waited += time.perf_counter() - begun


class _Worker:
    """A thread that reads and writes in turn; what it failed at is raised where somebody waits for it."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], None], threading.Event | None] | None]
        self._work = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._done = 0
        self._thread = threading.Thread(target=self._run, name="weft-partitions", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None], done: threading.Event | None) -> None:
        self._check()
        self._work.put((work, done))

    def wait(self, event: threading.Event, what: str) -> None:
        done = self._done
        while not event.wait(PATIENCE):  # for all that was asked before, perhaps many large partitions
            if self._done == done:
                raise TrainingError(
                    f"{what}: the disk gave no answer in {PATIENCE:.0f} s; see to it, and continue"
                )
            done = self._done
        self._check()

    def close(self) -> None:
        self._work.put(None)
        self._thread.join(PATIENCE)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            try:
                if self._error is None:  # after a failure nothing more is changed
                    work()
            except BaseException as error:
                self._error = error
            self._done += 1
            if done is not None:
                done.set()
