"""Liveness: every rank beats into the store each second and watches others; a silent rank ends the run.

This stands beside the bound on collectives. A stopped rank is noticed here, whatever the others do at that
time, and named; gloo would say "Timed out" on every survivor and name nobody. A beat also tells how many
collectives a rank has entered, so that of ranks that are all alive the one that others wait for can be named.

A machine that is gone without a word, or a link that is cut, closes no connection: calls of the store then
wait as long as TCP tries again, a quarter of an hour. So a second thread holds the first one to its time.
"""

import faulthandler
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from weft.comm.failure import STALL, Failure, Kind, clear_orphan, leave, tell
from weft.comm.run_store import RunStore
from weft.comm.shutdown import bounded
from weft.errors import InputError, WorkerLost

INTERVAL = 1.0
# Each rank watches this many successors; a failure that one finds is posted, and all read the post.
WATCHED = 8
# A rank that reads of a failure lets its own work end by the closed connections before it cuts it short.
GRACE = 5.0
# What a rank says that reads and cuts the graph while the others wait: Python code of one long call cannot
# beat, so such silence counts for less. That its machine is there the store tells, which answers by itself.
PREPARING = "prepare"
_PATIENCE = 20.0
_POST = "failure"
# What gloo and NCCL say where a connection ends.
_CLOSED = re.compile("closed by peer|reset by peer|broken pipe", re.IGNORECASE)
_CLOSED_HINT = (
    "; no rank is known to have failed, so the connection between them was closed from outside, as by a "
    "firewall that forgets it; continue from the last checkpoint with --resume"
)
_BEAT = re.compile(r"(\d{1,18}|done) (\d{1,18}) (\S.{0,99})")


class Beat(NamedTuple):
    """What a rank last said: a counter, the collectives it entered, the last of them; "done" when it left."""

    number: str
    calls: int
    doing: str


class Watch:
    """Tells how long ranks have been silent, in time during which the watcher was awake itself.

    A laptop that sleeps or a run stopped with Ctrl-Z as a whole makes nobody guilty.
    """

    def __init__(self, store: RunStore, ranks: list[int]) -> None:
        self.store = store
        self.beats: dict[int, Beat] = {}
        self.silence = dict.fromkeys(ranks, 0.0)
        self._looked = time.monotonic()

    def look(self, interval: float = INTERVAL) -> None:
        """Read the beats of all watched ranks; those who never beat are not waited for here."""
        now = time.monotonic()
        awake, self._looked = min(now - self._looked, 2 * interval), now
        for rank, silence in self.silence.items():
            said = _parse(self.store.read(f"beat/{rank}"))
            beat = said or self.beats.get(rank)
            if beat is None:
                continue
            fresh = self.beats.get(rank) != beat or beat.number == "done"
            counts = awake / _PATIENCE if beat.doing == PREPARING else awake
            self.silence[rank] = 0.0 if fresh else silence + counts
            self.beats[rank] = beat

    def silent(self, seconds: float) -> list[int]:
        """Return the ranks silent for so long, the longest first."""
        found = [rank for rank, silence in self.silence.items() if silence >= seconds]
        return sorted(found, key=lambda rank: -self.silence[rank])

    def gone(self) -> list[int]:
        """Return the ranks that said goodbye."""
        # A copy: the thread of the heartbeat may add a rank meanwhile.
        return [rank for rank, beat in list(self.beats.items()) if beat.number == "done"]


def post_failure(store: RunStore, failure: Failure) -> None:
    """Make a failure known to all ranks; the first one stays."""
    store.post(_POST, failure.to_json())


def read_failure(store: RunStore) -> Failure | None:
    """Return the first failure that was posted."""
    text = store.read(_POST)
    if text is None:
        return None
    try:
        return Failure.from_json(text)
    except InputError:  # what weft of another version wrote, or somebody where ranks have no token
        return None


class Heartbeat:
    """The thread of a rank that beats and watches; `stall` seconds without a beat of another end this one."""

    def __init__(
        self, store: RunStore, rank: int, size: int, *, stall: float = STALL, host: str = "its host"
    ) -> None:
        self.store = store
        self.rank = rank
        self.stall = stall
        self.host = host
        """Who serves the store, in words."""
        self.failure: Failure | None = None
        self.calls = 0
        self.doing = "start"
        nearest = min(size - 1, WATCHED)
        self.watch = Watch(store, [(rank + step) % size for step in range(1, nearest + 1)])
        self._count = 0
        self._interval = INTERVAL
        self._waiting = 0.0
        self._ending = False
        self._stacks: int | None = None
        self._wake, self._over = threading.Event(), threading.Event()
        self._unanswered = 0.0
        self._thread = threading.Thread(target=self._run, name="weft-heartbeat", daemon=True)
        self._guard = threading.Thread(target=self._watch_store, name="weft-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to beat. Stacks can be asked for by SIGUSR2 from now on, where weft launched the ranks."""
        self._stacks = _open_stacks()
        if self._stacks is not None:
            faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)
        self._guard.start()
        self._beat()
        self._thread.start()

    def enter(self, doing: str) -> None:
        """Note that this rank enters a collective."""
        self.calls += 1
        self.doing = doing

    def check(self) -> None:
        """Raise when a failure of any rank is known."""
        if self.failure is not None:
            raise self._told(self.failure, self.doing)

    def stop(self) -> None:
        """Say goodbye and end the threads; a rank that left is not silent."""
        if self._ending:
            return
        self._ending = True
        self._wake.set()
        self._over.set()
        for thread in (self._thread, self._guard):
            if thread.is_alive():
                thread.join(timeout=5.0)
        # The store may be gone with the failure that ends this rank, or not answer.
        bounded(lambda: self.store.set(f"beat/{self.rank}", "done 0 end"), seconds=2.0)
        if self._stacks is not None:
            faulthandler.unregister(signal.SIGUSR2)
            os.close(self._stacks)
            self._stacks = None

    def blame(self, error: Exception, doing: str, *, patience: float = 4.0) -> WorkerLost:
        """Return the error to raise for a failed collective; waits a little to learn who is guilty."""
        self._interval = 0.2
        self._wake.set()
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self.failure is None and not self.watch.silent(3.0):
            if self.watch.gone():
                deadline = min(deadline, time.monotonic() + 0.5)  # a failure that it posted may still come
            time.sleep(0.05)
        if self.failure is not None:
            return self._told(self.failure, doing)
        for rank in self.watch.silent(2.0):
            return WorkerLost(f"rank {rank} has gone silent (seen by rank {self.rank} in {doing})", rank=rank)
        for rank in self.watch.gone():
            return WorkerLost(f"rank {rank} has left while rank {self.rank} waits in {doing}", rank=rank)
        return self._nobody(str(error), doing)

    def _told(self, failure: Failure, doing: str) -> WorkerLost:
        return WorkerLost(f"{failure.told} (seen by rank {self.rank} in {doing})", rank=failure.rank)

    def _nobody(self, text: str, doing: str) -> WorkerLost:
        first = text.strip().splitlines()[0] if text.strip() else "no reason given"
        if "timed out" in text.lower() or "timeout" in text.lower():
            beats = list(self.watch.beats.items())  # a copy, as the thread may add a rank
            behind, beat = min(beats, key=lambda held: held[1].calls, default=(-1, None))
            if beat is not None and beat.calls < self.calls:
                return WorkerLost(
                    f"rank {behind} is alive but did not join {doing} in time: it has entered {beat.calls} "
                    f"collectives ({beat.doing} last), rank {self.rank} {self.calls}; if it is only slow, "
                    "raise WEFT_TIMEOUT (seconds)",
                    rank=behind,
                )
        lost = f"rank {self.rank} lost its peers in {doing}: {first}"
        if _CLOSED.search(text) is None:
            return WorkerLost(lost)
        # Posted, as the others would see no more than that this rank has left.
        failure = Failure(-1, "lost", lost + _CLOSED_HINT)
        bounded(lambda: post_failure(self.store, failure), seconds=2.0)
        return WorkerLost(failure.message)

    # The thread

    def _run(self) -> None:
        while not self._ending:
            self._wake.wait(self._interval)
            self._wake.clear()
            try:
                self._turn()
            except RuntimeError:
                # The store went with its host. Without it nobody could be named, nor end together.
                if not self._ending:
                    clear_orphan()
                    self._end(Failure(-1, "lost", f"rank {self.rank} lost the store: {self.host} is gone"))

    def _watch_store(self) -> None:
        """End this rank when the store has not answered a turn of the other thread in time."""
        looked = time.monotonic()
        while not self._over.wait(INTERVAL / 2):
            now = time.monotonic()
            # As in `Watch`: time in which this process was stopped makes nobody guilty.
            self._unanswered += min(now - looked, 2 * INTERVAL)
            looked = now
            if self._unanswered > self.stall + INTERVAL and not self._ending:
                silent = f"rank {self.rank} has had no answer from the store for {self.stall:g} s"
                cause = f"{self.host} is gone or stopped, or the network to it is cut"
                self._end(Failure(-1, "lost", f"{silent}: {cause}"))

    def _turn(self) -> None:
        if self._ending:
            return
        self._beat()
        self.watch.look(self._interval)
        self.failure = self.failure or read_failure(self.store)
        self._unanswered = 0.0
        if self.failure is None:
            for rank in self.watch.silent(self.stall):
                post_failure(self.store, Failure(rank, "stalled", silence(self.stall)))
                self.failure = read_failure(self.store)
        if self.failure is not None:
            self._waiting += self._interval
            if self.failure.kind == "stalled" or self._waiting > GRACE:
                self._end(self.failure)

    def _beat(self) -> None:
        self._count += 1
        self.store.set(f"beat/{self.rank}", f"{self._count} {self.calls} {self.doing}")

    def _end(self, failure: Failure) -> None:
        if failure.kind == "stalled":
            with suppress(OSError, ValueError):
                faulthandler.dump_traceback(file=self._stacks or sys.stderr, all_threads=True)
        kind: Kind = "stalled" if failure.kind == "stalled" else "lost"
        tell(Failure(failure.rank, kind, failure.message if kind == "stalled" else failure.told))
        leave(WorkerLost.exit_code)


def silence(seconds: float) -> str:
    """Return what is said of a rank that has been silent for so long."""
    return f"stalled: no heartbeat for {seconds:g} s; it is stopped or busy, or its machine cannot be reached"


def _open_stacks() -> int | None:
    """Return a descriptor of this rank's file of stacks; it stays open, as a signal handler writes to it."""
    folder = os.environ.get("WEFT_FAILURES")
    if folder is None:
        return None
    path = Path(folder) / f"{os.environ['RANK']}.stacks"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _parse(text: str | None) -> Beat | None:
    """Return a beat; None for what is none, which somebody may write where ranks have no token."""
    found = _BEAT.fullmatch(text or "")
    return None if found is None else Beat(found[1], int(found[2]), found[3])
