"""The connections beneath a group: two process groups, the store, the heartbeat; opened and closed here."""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from weft.comm.attempt import Attempts
from weft.comm.failure import Failure
from weft.comm.heartbeat import Heartbeat, post_failure
from weft.comm.open_files import expect_open_files
from weft.comm.rendezvous import RankPlace, connect_store, join, open_store, use_loopback
from weft.comm.run_store import RunStore
from weft.comm.shutdown import bounded, farewell
from weft.comm.wire import Direct, Transit, Wire
from weft.errors import WorkerLost

_PATIENCE = (
    20.0  # of a collective's bound: how long members wait for each other where files are read or written
)
_TELL = 5.0  # seconds after which a user is told what a rank waits for


def backend_for(place: RankPlace, device: torch.device) -> str:
    """Return what carries the tensors of a rank: NCCL those of a GPU that it has for itself, else gloo.

    NCCL refuses ranks that share a GPU; gloo copies their tensors through the host.
    """
    if device.type != "cuda":
        return "gloo"
    shared = (place.local_size or place.size) > torch.cuda.device_count()
    return "gloo" if shared else "cpu:gloo,cuda:nccl"


class Link:
    """The connections of one group. Background traffic has its own process group: it delays nothing."""

    def __init__(
        self,
        place: RankPlace,
        store: RunStore,
        heart: Heartbeat,
        main: Wire,
        background: Wire,
        *,
        timeout: float,
        whole: bool,
    ) -> None:
        self.place, self.store, self.heart = place, store, heart
        self.main, self.background = main, background
        self.timeout = timeout
        self.whole = whole
        self.closed = False
        self.in_flight: list[Transit] = []
        self._gathered = 0

    @staticmethod
    def open(
        place: RankPlace, device: torch.device, *, timeout: float, stall: float, join_timeout: float
    ) -> "Link":
        expect_open_files(place.size)
        use_loopback(place)
        began, whole = time.monotonic(), RunStore(open_store(place, timeout=join_timeout))
        attempts = Attempts(whole, place)
        # A restarted run must not read the addresses of the attempt before: each has its own prefix.
        prefix = f"attempt{attempts.find(timeout=join_timeout)}"
        store = whole.within(prefix)
        beats = RunStore(connect_store(place, timeout=max(timeout, stall))).within(prefix)
        heart = Heartbeat(beats, place.rank, place.size, stall=stall, host=place.host)
        heart.start()

        def check() -> None:
            heart.check()
            attempts.answer()

        try:
            join(store, place, timeout=join_timeout, began=began, check=check)
            return Link._meet(attempts.agreed(store), device, store, heart, timeout)
        except (RuntimeError, WorkerLost) as error:
            lost = error if isinstance(error, WorkerLost) else heart.blame(error, "start")
            heart.stop()
            bounded(dist.destroy_process_group, seconds=2.0)
            raise lost from None

    @staticmethod
    def _meet(
        place: RankPlace, device: torch.device, store: RunStore, heart: Heartbeat, timeout: float
    ) -> "Link":
        bound = timedelta(seconds=timeout)
        dist.init_process_group(
            backend_for(place, device),
            store=store.plain,
            rank=place.rank,
            world_size=place.size,
            timeout=bound,
        )
        main = dist.group.WORLD
        background = dist.new_group(timeout=bound)
        assert main is not None, "the group was just made"
        return Link(place, store, heart, Direct(main), Direct(background), timeout=timeout, whole=True)

    def part(self, ranks: list[int], purpose: str) -> "Link":
        """Return new connections among some ranks."""
        bound = timedelta(seconds=self.timeout)
        self.heart.enter("subgroup")
        try:
            main, background = (
                Direct(dist.new_group(ranks, timeout=bound, use_local_synchronization=True)) for _ in range(2)
            )
        except RuntimeError as error:
            raise self.heart.blame(error, "subgroup") from None
        key = f"{purpose}-{'-'.join(map(str, ranks))}"
        store = self.store.within(key)
        return Link(self.place, store, self.heart, main, background, timeout=self.timeout, whole=False)

    def gather_text(self, rank: int, size: int, text: str) -> list[str]:
        """Return what every member wrote. Keys are removed one call later: then all have read them."""
        number, self._gathered = self._gathered, self._gathered + 1
        self.heart.enter("all_gather_json")
        keys = [f"text/{number}/{member}" for member in range(size)]
        try:
            self.store.set(keys[rank], text)
            texts = self._await(keys)
            if number:
                self.store.delete(f"text/{number - 1}/{rank}")
        except RuntimeError as error:
            raise self.heart.blame(error, "all_gather_json") from None
        return texts

    def _await(self, keys: list[str]) -> list[str]:
        # Members meet here before and after they read and write files, which one may take long to do; who is
        # lost or stalled is noticed by its heartbeat meanwhile.
        patience = _PATIENCE * self.timeout
        deadline = time.monotonic() + patience
        while (texts := self.store.read_all(keys)) is None:
            self.heart.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"Timed out after {patience:g} s")
            time.sleep(0.002)
        return texts

    def wait_for(self, key: str, *, told: str = "") -> str:
        """Return what is written under a key; however long that takes, but only while no rank is lost.

        `told` is a line for the user of a rank that waits for long.
        """
        self.heart.enter("expect")
        pause, tell_at = 0.001, time.monotonic() + _TELL
        try:
            while True:
                if told and time.monotonic() > tell_at:
                    sys.stderr.write(f"weft: {told}\n")
                    told = ""
                gone = self.heart.watch.gone()  # looked up first: who left may have written before
                text = self.store.read(key)
                if text is not None:
                    return text
                self.heart.check()
                if gone:
                    raise RuntimeError("nobody is left to write it")
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
        except RuntimeError as error:
            raise self.heart.blame(error, "expect") from None

    def take_background(self) -> list[Transit]:
        """Return the background work of this group, and forget it."""
        taken, self.in_flight = self.in_flight, []
        return taken

    def close(self) -> None:
        """Leave in order."""
        if self.closed:
            return
        self.closed = True
        self.heart.stop()
        patience = min(self.timeout, 10.0)
        bounded(lambda: farewell(self.store, self.place, timeout=patience), seconds=patience + 2.0)
        bounded(dist.destroy_process_group, seconds=self.timeout)

    def abandon(self, failure: Failure | None) -> None:
        """Leave after a failure: say so, then close what can be closed quickly."""
        if self.closed:
            return
        self.closed = True
        if failure is None:
            bounded(lambda: self.store.set(f"left/{self.place.rank}", "1"), seconds=2.0)
        if failure is not None:
            # Where the store is gone, or does not answer, the launcher still sees the exit code.
            bounded(lambda: post_failure(self.store, failure), seconds=2.0)
            # Others read it once a second; the store must not go before with the rank that serves it.
            bounded(lambda: farewell(self.store, self.place, timeout=3.0), seconds=4.0)
        self.heart.stop()
        bounded(dist.destroy_process_group, seconds=2.0)
