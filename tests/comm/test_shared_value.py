"""A value that members change in turn: no change is lost, and who waits does not wait for ever."""

import threading
from typing import Any

import pytest

from weft.comm import shared_value
from weft.comm.heartbeat import Heartbeat
from weft.comm.rendezvous import bound_socket, host_store
from weft.comm.run_store import RunStore
from weft.comm.shared_value import SharedValue
from weft.errors import WorkerLost


def members_of(count: int, **options: Any) -> list[SharedValue]:
    """Return the same value as several members see it, each by a connection of its own."""
    host = host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=5.0)
    made = []
    for _ in range(count):
        store = RunStore(host)
        made.append(SharedValue(store, "k", Heartbeat(store, 0, 1), timeout=10.0, **options))
    return made


def test_no_change_is_lost() -> None:
    members = members_of(4)

    def add(member: SharedValue) -> None:
        for _ in range(25):
            member.change(lambda value: ((value or 0) + 1, True))

    threads = [threading.Thread(target=add, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert members[0].read() == 100


def test_who_waits_goes_on_when_there_is_an_answer() -> None:
    one, other = members_of(2)
    threading.Timer(0.05, lambda: other.change(lambda _: ("there", True))).start()
    assert one.wait(lambda value: (value, value)) == "there"


def test_a_value_that_nobody_changes_ends_the_wait() -> None:
    (one,) = members_of(1, still=0.1)
    with pytest.raises(WorkerLost, match="none has finished anything"):
        one.wait(lambda value: (value, None))
    assert shared_value.STILL > 600
