"""Ranks that were restarted different numbers of times find each other, and nothing of the time before."""

import threading
import time
from collections.abc import Sequence

import pytest

from weft.comm.attempt import Attempts
from weft.comm.rendezvous import RankPlace, bound_socket, connect_store, host_store, join
from weft.comm.run_store import RunStore
from weft.errors import WorkerLost


def place(port: int, rank: int, size: int, restarts: int, *, told: bool = False) -> RankPlace:
    return RankPlace(rank, size, rank, size, "127.0.0.1", port, restarts, hosted=True, told=told)


def meet(port: int, restarts: Sequence[int], *, late: int = -1) -> list[tuple[int, int]]:
    """Return the number and the attempt that each of some ranks found, by how often each was restarted."""
    found: dict[int, tuple[int, int]] = {}

    def rank(here: RankPlace) -> None:
        time.sleep(0.5 if here.rank == late else 0.0)
        store = RunStore(connect_store(here, timeout=20.0))
        attempts = Attempts(store, here)
        number = attempts.find(timeout=20.0)
        own = store.within(f"attempt{number}")
        join(own, here, timeout=20.0, check=attempts.answer)
        found[here.rank] = number, attempts.agreed(own).attempt

    size = len(restarts)
    threads = [threading.Thread(target=rank, args=(place(port, r, size, n),)) for r, n in enumerate(restarts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    return [found[each] for each in range(size)]


def test_ranks_with_other_counts_of_restarts_agree_and_leave_the_words_of_before() -> None:
    listener = bound_socket("127.0.0.1")
    port = listener.getsockname()[1]
    host = host_store(listener, "127.0.0.1", timeout=20.0)
    assert meet(port, [0, 0, 0]) == [(0, 0)] * 3
    assert meet(port, [0, 2, 1], late=1) == [(1, 2)] * 3
    assert meet(port, [3, 2], late=0) == [(2, 3)] * 2, "the third rank of before is not waited for"
    del host


def test_a_launcher_that_tells_all_the_same_is_believed_and_a_first_rank_that_is_missing_is_named() -> None:
    listener = bound_socket("127.0.0.1")
    port = listener.getsockname()[1]
    host = host_store(listener, "127.0.0.1", timeout=20.0)
    store = RunStore(host)
    told = Attempts(store, place(port, 1, 2, 4, told=True))
    assert (told.find(timeout=0.1), told.agreed(store).attempt) == (4, 4)
    with pytest.raises(WorkerLost, match=r"rank 1 waited 0\.1 s for 2 ranks; missing: 0") as caught:
        Attempts(store, place(port, 1, 2, 4)).find(timeout=0.1)
    assert caught.value.rank == 0
