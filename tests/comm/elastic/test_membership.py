"""Who trains next, with processes that a test plays: several go, come and leave within one boundary."""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain

import pytest

from weft.comm.elastic import coordinator
from weft.comm.elastic.coordinator import run_elastic
from weft.comm.elastic.generation import Generation, latest_number, read_generation
from weft.comm.elastic.start import Size
from weft.comm.rendezvous import RankPlace, connect_store
from weft.comm.run_store import TOKEN, RunStore

PATIENCE = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Played:
    """A worker's process that does what the test says in its name."""

    placed, machine_lost = True, False

    def __init__(self, run: "Run", number: int) -> None:
        self.run, self.number = run, number

    def poll(self) -> int | None:
        return self.run.codes.get(self.number)

    def kill(self) -> None:
        self.run.codes = {self.number: -9, **self.run.codes}

    def wait(self) -> int:
        return self.run.codes[self.number]


class Run:
    """A launcher in a thread, whose workers say what the test has them say."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        """The exit codes of processes that have ended; replaced as a whole, so that several end at once."""
        self.started = 0
        self.said: list[str] = []
        self.wanted: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.code = run_elastic(
            [], Size(2, 4, 4), env={}, wanted=self._take, say=self.said.append, spawn=self._spawn
        )

    def _take(self) -> int | None:
        taken, self.wanted = self.wanted, None
        return taken

    def _spawn(self, env: dict[str, str]) -> Played:
        self.env, self.started = env, self.started + 1
        return Played(self, self.started - 1)

    def scaled(self, number: int, *, started: int) -> None:
        self.wanted = number
        until(lambda: self.started == started)

    def connect(self) -> None:
        until(lambda: self.started == 2)
        place = RankPlace.from_environment(self.env)
        assert place is not None
        self.store = RunStore(connect_store(place, timeout=30.0), self.env[TOKEN])

    def say(self, word: str, *workers: int) -> None:
        for worker in workers:
            self.store.set(f"{word}/{worker}", "1")

    def generation(self, number: int, *, up: bool = True) -> Generation:
        """Wait for a generation, and have its workers train."""
        until(lambda: latest_number(self.store) >= number)
        found = read_generation(self.store, number)
        self.say(f"up/{number}", *(found.members if up else ()))
        if up:
            time.sleep(0.1)  # several looks of the launcher
        return found


@pytest.fixture
def run() -> Iterator[Run]:
    """Two workers that train, and two more."""
    run = Run()
    run.connect()
    run.say("ready", 0, 1)
    assert run.generation(1).members == [0, 1]
    run.scaled(4, started=4)
    run.say("ready", 2, 3)
    assert run.generation(2).members == [0, 1, 2, 3]
    yield run
    run.codes = dict.fromkeys(range(run.started), -9)
    run.thread.join(PATIENCE)
    assert not run.thread.is_alive()


def test_two_that_are_killed_at_once_are_followed_by_those_who_live(run: Run) -> None:
    run.codes = {0: -9, 3: -9}
    until(lambda: read_generation(run.store, latest_number(run.store)).members == [1, 2])
    followed = run.generation(latest_number(run.store))
    assert sorted(followed.holds(1) + followed.holds(2)) == [0, 1, 2, 3]
    assert "was lost" in followed.why
    # The launcher may have seen one of them go before the other: then there is a generation in between.
    broken = [read_generation(run.store, number).breaks for number in range(3, followed.number + 1)]
    assert sorted(chain(*broken)) == [*range(2, followed.number)]


def test_who_comes_and_who_leaves_do_so_at_one_boundary(run: Run) -> None:
    run.codes = {3: -9}
    run.generation(3)
    run.scaled(4, started=5)
    run.say("leave", 1)
    until(lambda: any("worker 1 leaves" in text for text in run.said))
    time.sleep(0.3)
    assert latest_number(run.store) == 3, "one is on its way"
    run.say("ready", 4)
    changed = run.generation(4)
    assert changed.members == [0, 2, 4]
    assert changed.breaks == []
    assert changed.why == "worker 4 came, worker 1 left"
    run.codes = {**run.codes, 1: 0}
    time.sleep(0.3)
    assert latest_number(run.store) == 4, "it left in order"


def test_one_that_is_killed_on_its_way_changes_nothing(run: Run) -> None:
    run.codes = {3: -9}
    assert run.generation(3).members == [0, 1, 2]
    run.scaled(4, started=5)
    run.codes = {**run.codes, 4: -9}
    until(lambda: any("worker 4" in text for text in run.said))
    time.sleep(0.3)
    assert latest_number(run.store) == 3


def test_one_that_is_killed_as_its_generation_begins_ends_that_one_alone(run: Run) -> None:
    """Those of the generation before have not come to the boundary: they go on to the next one there."""
    run.codes = {3: -9}
    run.generation(3)
    run.scaled(4, started=5)
    run.say("ready", 4)
    assert run.generation(4, up=False).members == [0, 1, 2, 4]
    run.codes = {**run.codes, 4: -9}
    after = run.generation(5)
    assert after.members == [0, 1, 2]
    assert after.breaks == [4], "the third generation ends at its boundary"


def test_workers_that_lost_each_other_begin_anew_so_often(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_SETTLE", 0.4)
    for number in range(2, 5):
        began = time.monotonic()
        run.say(f"broken/{number}", 0, 3)
        mended = run.generation(number + 1)
        assert time.monotonic() - began > 0.4, "one of them may be found to be gone"
        assert (mended.members, mended.breaks) == ([0, 1, 2, 3], [number])
        assert mended.why == "workers lost each other"
    run.say("broken/5", 0)
    run.thread.join(PATIENCE)
    assert run.code == 3
    assert "workers lose each other again and again" in run.said[-1]


def test_a_worker_that_is_silent_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_STALL", "1")
    run = Run()
    run.connect()
    run.store.within("members").set("beat/0", "1 1 forward")  # the other never was there
    run.thread.join(PATIENCE)
    assert run.codes[0] == -9
    assert "weft: worker 0 has sent no heartbeat for 1 s and is ended" in run.said
    assert run.code == 3
