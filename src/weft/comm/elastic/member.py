"""A worker of a run whose workers come and go: it trains in each generation that lists it."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from weft.comm.elastic.generation import END, STOP, Generation, latest_number, read_generation
from weft.comm.elastic.hub import Hub
from weft.comm.elastic.notice import Notice, NoticeSource
from weft.comm.failure import LOAD, STALL, clear_orphan, leave, orphaned, seconds
from weft.comm.group import TIMEOUT
from weft.comm.heartbeat import Heartbeat
from weft.comm.rendezvous import RankPlace, connect_store, use_loopback
from weft.comm.run_store import RunStore
from weft.errors import WorkerLost

MEMBER = "WEFT_MEMBER"
POLL = 0.05


class Member:
    """This process among the workers of the run."""

    def __init__(self, notice: NoticeSource | None = None) -> None:
        """`notice` is asked whether this worker is to leave."""
        place = RankPlace.from_environment(os.environ)
        assert place is not None, "the launcher sets the environment"
        use_loopback(place)
        self.number = int(os.environ[MEMBER])
        self.timeout = seconds("WEFT_TIMEOUT", TIMEOUT)
        self.stall = seconds("WEFT_STALL", STALL)
        self.store = RunStore(connect_store(place, timeout=LOAD))
        self._watched = RunStore(connect_store(place, timeout=LOAD))
        patience = max(self.timeout, self.stall)
        beats = RunStore(connect_store(place, timeout=patience)).within("members")
        # It watches nobody: the launcher does, and says who trains on.
        self.heart = Heartbeat(beats, self.number, 1, stall=self.stall, host=place.host)
        self.running: Generation | None = None
        self.up = False
        """Whether all workers of the generation have met."""
        self.hub: Hub | None = None
        self.stopping = False
        """Whether the run is to end after this epoch."""
        self._ended = False
        self._latest = 0
        self._leaving = ""
        """What asked this worker to leave."""
        self._notice = None if notice is None else Notice(notice, self._noticed)
        self._told_leaving = False
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="weft-member", daemon=True)

    @contextmanager
    def present(self) -> Iterator["Member"]:
        """Be one of the workers, until told to leave."""
        before = signal.signal(signal.SIGTERM, self._warned)
        self.heart.start()
        self._watcher.start()
        if self._notice is not None:
            self._notice.start()
        self.store.set(f"ready/{self.number}", "1")
        try:
            yield self
        finally:
            self._closing.set()
            if self._notice is not None:
                self._notice.stop()
            self._watcher.join(timeout=2.0)
            self.heart.stop()
            signal.signal(signal.SIGTERM, before)

    def next(self, after: int) -> Generation | None:
        """Wait for a later generation with this worker; None where the run has ended or goes on without.

        It waits as long as the launcher lives: a boundary may be far away. Without one the heartbeat ends
        this process.
        """
        while True:
            if self._ended:
                return None
            if self._latest > after:
                generation = read_generation(self.store, self._latest)
                if self.number in generation.members:
                    return generation
                if self.running is not None:
                    return None
                after = generation.number
            time.sleep(POLL / 5)

    def form(self, generation: Generation) -> Hub:
        """Return the hub of a generation."""
        store = self.store.within(f"g{generation.number}")
        place = generation.members.index(self.number)
        self.up = False
        self.hub = Hub(store, place, generation.deal, timeout=self.timeout)
        self.running = generation
        if self._latest > generation.number:  # which the watcher may have seen a moment ago
            self.hub.give_up("another generation has followed")
        return self.hub

    def following(self) -> int:
        """Return the number of the generation that is to follow at a boundary; 0 where none is."""
        running = self.running.number if self.running is not None else 0
        return self._latest if self._latest > running else 0

    def say(self, what: str) -> None:
        """Tell the launcher how far this worker is with its generation: up, done, broken or finished."""
        assert self.running is not None, "there is one"
        self.store.set(f"{what}/{self.running.number}/{self.number}", "1")

    def meet(self, what: str, *, patience: float) -> None:
        """Wait until all workers of the generation have said so, for a while, and as long as it stands."""
        assert self.running is not None, "there is one"
        keys = [f"{what}/{self.running.number}/{member}" for member in self.running.members]
        deadline = time.monotonic() + patience
        while not self.store.has(*keys) and time.monotonic() < deadline and not self._outdated():
            time.sleep(POLL / 10)

    def _outdated(self) -> bool:
        return self.hub is None or bool(self.hub.broken)

    # The watcher, and the signal

    def _watch(self) -> None:
        while not self._closing.wait(POLL):
            # The store is gone: the heartbeat says so, and ends this process. Or somebody wrote over a
            # generation, which is then looked for again.
            with suppress(RuntimeError, WorkerLost):
                self._look()

    def _look(self) -> None:
        if orphaned():  # on a cluster the store outlives who started this process
            clear_orphan()
            leave(WorkerLost.exit_code)
        if self._leaving and not self._told_leaving:
            self._told_leaving = True
            self._watched.set(f"leave/{self.number}", self._leaving)
        self.stopping = self.stopping or self._watched.has(STOP)
        latest = latest_number(self._watched)
        running = self.running
        if latest > self._latest and running is not None and self.hub is not None:
            for number in range(max(self._latest, running.number) + 1, latest + 1):
                generation = read_generation(self._watched, number)
                if running.number in generation.breaks or not self.up:
                    self.hub.give_up(generation.why)
        self._latest = latest
        self._ended = self._ended or self._watched.has(END)

    def _warned(self, number: int, frame: FrameType | None) -> None:
        self._leaving = self._leaving or "SIGTERM"

    def _noticed(self) -> None:
        self._leaving = self._leaving or "its machine is to be taken back"
