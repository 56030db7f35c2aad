"""A worker of a run whose workers come and go: which generations it trains in, and when it leaves one."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weft.comm.elastic.generation import END, STOP, Generation, write_generation
from weft.comm.elastic.hub import Hub
from weft.comm.elastic.member import Member
from weft.comm.elastic.start import Home, Size
from weft.comm.rendezvous import bound_socket, host_store
from weft.comm.run_store import RunStore, new_token

PATIENCE = 30.0


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """The store of a launcher whose worker 3 is this process."""
    listener = bound_socket("127.0.0.1")
    home = Home("127.0.0.1", listener.getsockname()[1], tmp_path, 15.0, new_token())
    served = host_store(listener, "127.0.0.1", timeout=PATIENCE)
    for name, value in {**home.told(3, Size(1, 4, 4)), "WEFT_LAUNCHER": str(os.getppid())}.items():
        monkeypatch.setenv(name, value)
    return RunStore(served, home.token)


@pytest.fixture
def member(store: RunStore) -> Iterator[Member]:
    with Member().present() as member:
        yield member


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def told(store: RunStore, number: int, members: list[int], breaks: list[int] | None = None) -> Generation:
    made = Generation(number, members, [0] * len(members), f"generation {number}", breaks or [])
    write_generation(store, made)
    return made


def test_it_waits_for_the_generation_that_lists_it_and_trains_in_it(store: RunStore, member: Member) -> None:
    assert store.has("ready/3")
    told(store, 1, [0, 1])
    until(lambda: member._latest == 1)
    found: list[Generation | None] = []
    waiting = threading.Thread(target=lambda: found.append(member.next(0)), daemon=True)
    waiting.start()
    time.sleep(0.1)
    assert not found, "the first is of others"
    mine = told(store, 2, [0, 3])
    waiting.join(PATIENCE)
    assert found == [mine]
    hub = member.form(mine)
    assert (hub.me, hub.parts, hub.broken) == (1, [], "")
    member.say("up")
    assert store.has("up/2/3")
    assert member.following() == 0
    member.up = True
    told(store, 3, [0])
    until(lambda: member.following() == 3)
    assert hub.broken == "", "it ends at a boundary"
    assert member.next(2) is None, "it has trained, and goes on without it"


@pytest.mark.parametrize("late", [False, True])
def test_it_leaves_a_generation_at_once_where_one_is_lost_or_it_never_began(
    store: RunStore, member: Member, late: bool
) -> None:
    hub = member.form(told(store, 1, [0, 3]))
    until(lambda: member._latest == 1)
    member.up = not late
    told(store, 2, [0, 3])
    told(store, 3, [0, 3], [] if late else [1])
    until(lambda: member.following() == 3)
    assert hub.broken == ("generation 2" if late else "generation 3")
    assert member.form(told(store, 2, [0, 3])).broken == "another generation has followed"


def test_a_warning_is_told_once_and_the_end_is_heard(store: RunStore, member: Member) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    until(lambda: store.has("leave/3"))
    assert store.read("leave/3") == "SIGTERM"
    member._noticed()
    time.sleep(0.2)
    assert store.read("leave/3") == "SIGTERM", "the first reason"
    assert not member.stopping
    store.set(STOP, "1")
    until(lambda: member.stopping)
    store.set(END, "1")
    assert member.next(0) is None


def test_it_meets_the_others_for_a_while_and_as_long_as_the_generation_stands(
    store: RunStore, member: Member
) -> None:
    hub = member.form(told(store, 1, [0, 3]))
    member.say("done")
    began = time.monotonic()
    member.meet("done", patience=0.3)
    assert time.monotonic() - began >= 0.3
    threading.Timer(0.2, hub.give_up, ["worker 0 was lost"]).start()
    member.meet("done", patience=PATIENCE)
    assert hub.broken
    store.set("done/1/0", "1")
    member.hub = Hub(store, 0, [0], timeout=PATIENCE)
    member.meet("done", patience=PATIENCE)
    assert time.monotonic() - began < PATIENCE
