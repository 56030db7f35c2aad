"""Leaving in order: nobody takes the store away while others need it, and nothing waits for ever."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from weft.comm.rendezvous import RankPlace
from weft.comm.run_store import RunStore


def farewell(store: RunStore, place: RankPlace, *, timeout: float) -> None:
    """Tell that this rank leaves; the rank that serves the store stays until all have told it."""
    with suppress(RuntimeError):  # another rank is already gone, and the store with it
        store.set(f"left/{place.rank}", "1")
        if place.rank == 0 and not place.hosted:
            everyone = [f"left/{rank}" for rank in range(place.size)]
            deadline = time.monotonic() + timeout
            while not store.has(*everyone) and time.monotonic() < deadline:
                time.sleep(0.02)


def bounded(call: Callable[[], None], *, seconds: float) -> None:
    """Run a call that may hang, for so long at most; then leave it to a thread that ends with the process."""

    def attempt() -> None:
        with suppress(RuntimeError, AssertionError, ValueError):  # already destroyed, or never made
            call()

    thread = threading.Thread(target=attempt, name="weft-shutdown", daemon=True)
    thread.start()
    thread.join(timeout=seconds)
