"""Watching others: silence is counted fairly, the first failure stays."""

import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import HashStore, TCPStore

from weft.comm import heartbeat
from weft.comm.failure import Failure
from weft.comm.heartbeat import Beat, Heartbeat, Watch, post_failure, read_failure
from weft.comm.run_store import RunStore


class Clock:
    """Time that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(heartbeat.time, "monotonic", lambda: self.now)


def test_a_rank_that_stops_beating_becomes_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = Clock(monkeypatch), RunStore(HashStore())
    watch = Watch(store, [0, 1, 2])
    for second in range(6):
        clock.now = float(second)
        store.set("beat/0", f"{second} 3 all_to_all")
        store.set("beat/1", "1 2 barrier")
        watch.look()
    assert watch.silent(5.0) == [1]
    assert watch.silence[2] == 0.0, "a rank that has not come yet is not silent"
    assert watch.beats[1].doing == "barrier"


def test_sleep_of_the_watcher_makes_nobody_guilty(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = Clock(monkeypatch), RunStore(HashStore())
    store.set("beat/1", "1 0 start")
    watch = Watch(store, [1])
    watch.look()
    clock.now = 3600.0
    watch.look()
    assert watch.silence[1] <= 2.0


def test_a_rank_that_left_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = Clock(monkeypatch), RunStore(HashStore())
    store.set("beat/1", "done 0 end")
    watch = Watch(store, [1])
    for second in range(100):
        clock.now = float(second)
        watch.look()
    assert watch.silent(1.0) == []
    assert watch.gone() == [1]


def test_the_first_failure_posted_stays() -> None:
    store = RunStore(HashStore())
    assert read_failure(store) is None
    post_failure(store, Failure(1, "raised", "ValueError: first"))
    post_failure(store, Failure(0, "raised", "ValueError: second"))
    found = read_failure(store)
    assert found is not None
    assert (found.rank, found.told) == (1, "rank 1 raised ValueError: first")


@pytest.mark.parametrize("text", ["", "1", "x 1 y", "1 x y", "-1 0 y", f"{'9' * 5000} 0 y", "done"])
def test_a_beat_that_is_none_is_as_if_it_had_not_come(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = Clock(monkeypatch), RunStore(HashStore())
    watch = Watch(store, [1])
    store.set("beat/1", text)
    watch.look()
    assert watch.beats == {}
    store.set("beat/1", "1 2 barrier")
    watch.look()
    store.set("beat/1", text)
    clock.now = 1.0
    watch.look()
    assert (watch.beats[1], watch.silence[1]) == (Beat("1", 2, "barrier"), 1.0)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"rank": "1"}', '{"rank": 1, "kind": "odd"}'])
def test_a_failure_that_is_none_ends_nobody(text: str) -> None:
    store = RunStore(HashStore())
    store.set("failure", text)
    assert read_failure(store) is None


class Left(Exception):
    """Instead of the end of the process."""


def test_a_rank_that_sees_another_silent_says_so_to_all_and_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def leave(code: int) -> None:
        raise Left(code)

    clock, store = Clock(monkeypatch), RunStore(HashStore())
    monkeypatch.setattr(heartbeat, "leave", leave)
    monkeypatch.delenv("WEFT_FAILURES", raising=False)
    heart, other = Heartbeat(store, 0, 3, stall=5.0), Heartbeat(store, 2, 3, stall=5.0)
    store.set("beat/1", "1 2 barrier")
    for second in range(5):
        clock.now = float(second)
        heart._turn()
        other._beat()
    assert read_failure(store) is None
    clock.now = 6.0
    with pytest.raises(Left, match="3"):
        heart._turn()
    found = read_failure(store)
    assert found is not None
    assert (found.rank, found.kind) == (1, "stalled")
    with pytest.raises(Left, match="3"):
        other._turn()
    assert "rank 1 stalled: no heartbeat for 5 s" in capfd.readouterr().err


def test_a_rank_that_notices_a_closed_connection_second_tells_the_cause_too() -> None:
    store = RunStore(HashStore())
    first, second = Heartbeat(store, 0, 2), Heartbeat(store, 1, 2)
    reset = RuntimeError("[pair.cc:553] Connection reset by peer")
    cause = str(first.blame(reset, "all_to_all", patience=0.0))
    assert "closed from outside" in cause
    first.stop()
    second._turn()
    assert second.watch.gone() == [0]
    told = str(second.blame(RuntimeError("Connection closed by peer"), "all_reduce", patience=0.0))
    assert told == f"{cause} (seen by rank 1 in all_reduce)"


def test_each_rank_watches_its_successors_only() -> None:
    assert list(Heartbeat(RunStore(HashStore()), 3, 4).watch.silence) == [0, 1, 2]
    assert list(Heartbeat(RunStore(HashStore()), 14, 16).watch.silence) == [15, 0, 1, 2, 3, 4, 5, 6]


class Meddling:
    """A beat during whose reading another rank comes, as the thread of the heartbeat may have it."""

    doing = "barrier"

    def __init__(self, beats: dict[int, Beat], number: str, calls: int) -> None:
        self.beats, self._number, self._calls = beats, number, calls

    @property
    def number(self) -> str:
        self._insert()
        return self._number

    @property
    def calls(self) -> int:
        self._insert()
        return self._calls

    def _insert(self) -> None:
        self.beats[len(self.beats) + 10] = Beat("1", 99, "start")


def test_a_rank_that_comes_while_beats_are_read_is_no_error() -> None:
    heart = Heartbeat(RunStore(HashStore()), 0, 3)
    beats: dict[int, Any] = heart.watch.beats
    beats |= {1: Meddling(beats, "done", 2), 2: Meddling(beats, "4", 3)}
    heart.calls = 5
    assert heart.watch.gone() == [1]
    lost = heart._nobody("Timed out waiting", "all_reduce")
    assert (lost.rank, "it has entered 2 collectives" in str(lost)) == (1, True)


SERVE = """
import sys
from weft.comm.rendezvous import bound_socket, host_store
store = host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=30.0)
print(store.port, flush=True)
sys.stdin.read()
"""


def test_a_store_that_stops_to_answer_ends_a_rank_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is stopped, so no connection is closed: as where a machine is gone, or a link is cut."""
    told: list[Failure] = []
    monkeypatch.setattr(Heartbeat, "_end", lambda self, failure: told.append(failure))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SERVE], text=True, **pipes) as host:  # type: ignore[call-overload]
        try:
            port = int(host.stdout.readline())
            store = TCPStore("127.0.0.1", port, timeout=timedelta(seconds=30), wait_for_workers=False)
            heart = Heartbeat(RunStore(store), 1, 2, stall=1.0, host="rank 0 at m1")
            heart.start()
            host.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + 20.0
            while not told and time.monotonic() < deadline:
                time.sleep(0.05)
            began = time.monotonic()
            heart.stop()  # which the store does not answer either
            assert time.monotonic() - began < 10.0
        finally:
            host.kill()
    assert told[0].kind == "lost"
    assert "rank 1 has had no answer from the store for 1 s: rank 0 at m1 is gone" in told[0].message


def test_a_rank_that_prepares_may_be_silent_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = Clock(monkeypatch), RunStore(HashStore())
    store.set("beat/1", f"1 1 {heartbeat.PREPARING}")
    watch = Watch(store, [1])
    for second in range(60):
        clock.now = float(second)
        watch.look()
    assert watch.silent(15.0) == []
    assert watch.silent(1.0) == [1]


def test_no_thread_is_left_when_a_rank_has_said_goodbye() -> None:
    heart = Heartbeat(RunStore(HashStore()), 0, 1)
    heart.start()
    named = [thread for thread in threading.enumerate() if thread.name in ("weft-heartbeat", "weft-watchdog")]
    assert len(named) == 2
    heart.stop()
    assert not any(thread.is_alive() for thread in named)
