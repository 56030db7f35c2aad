"""Leaving in order: a call that hangs is left, and the rank with the store waits for others, not for ever."""

import threading
import time
from dataclasses import replace

from weft.comm.rendezvous import RankPlace, bound_socket, host_store
from weft.comm.run_store import RunStore
from weft.comm.shutdown import bounded, farewell

FIRST = RankPlace(0, 2, 0, 2, "127.0.0.1", 0, 0, hosted=False)


def store() -> RunStore:
    return RunStore(host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=10.0))


def test_the_rank_that_serves_the_store_waits_until_all_have_left() -> None:
    held = store()
    began = time.monotonic()
    farewell(held, replace(FIRST, rank=1), timeout=30.0)
    assert time.monotonic() - began < 5, "others do not wait"
    farewell(held, FIRST, timeout=30.0)
    assert time.monotonic() - began < 10
    assert held.has("left/0", "left/1")


def test_it_does_not_wait_for_ever_nor_where_a_launcher_serves() -> None:
    began = time.monotonic()
    farewell(store(), FIRST, timeout=0.2)
    waited = time.monotonic() - began
    assert 0.2 <= waited < 10
    began = time.monotonic()
    farewell(store(), replace(FIRST, hosted=True), timeout=60.0)
    assert time.monotonic() - began < 30


def test_a_call_that_hangs_is_left_and_one_that_fails_is_no_error() -> None:
    never, began = threading.Event(), time.monotonic()
    bounded(lambda: never.wait(60) and None, seconds=0.1)
    assert 0.1 <= time.monotonic() - began < 30
    never.set()

    def destroyed() -> None:
        raise RuntimeError("already destroyed")

    bounded(destroyed, seconds=10.0)
