"""What the launcher of workers that come and go does with processes that never train."""

import json
import sys
import threading

import pytest

from weft.comm.elastic import coordinator
from weft.comm.elastic.coordinator import run_elastic
from weft.comm.elastic.start import Process, Size, started_here
from weft.comm.rendezvous import RankPlace, connect_store
from weft.comm.run_store import TOKEN, RunStore


def code_of(program: str, **options: int) -> tuple[int, list[str]]:
    said: list[str] = []
    command = [sys.executable, "-c", program]
    code = run_elastic(command, Size(1, 2, 2), env={}, wanted=lambda: None, say=said.append, **options)
    return code, said


def test_a_worker_that_ends_at_once_ends_the_run_and_is_replaced_as_often_as_may_be() -> None:
    code, said = code_of("import sys; sys.exit(7)", max_restarts=1)
    assert code == 3
    assert said[:2] == ["weft: worker 0 ended with exit code 7", "weft: worker 1 ended with exit code 7"]
    assert "fewer than 1 workers are left" in said[2]


def test_the_users_mistake_is_told_in_one_line() -> None:
    record = {"rank": 0, "kind": "refused", "message": "train.lr: no", "exit_code": 2}
    program = f"import os; open(os.environ['WEFT_FAILURES'] + '/0.json', 'w').write({json.dumps(record)!r}); "
    assert code_of(program + "os._exit(2)") == (2, ["weft: error: train.lr: no"])


def test_records_lie_in_a_folder_that_workers_without_a_launcher_remove() -> None:
    made = "'/weft-launch-' in os.path.dirname(os.environ['WEFT_FAILURES'])"
    program = f"import os, sys; sys.exit(9 if {made} else 7)"
    assert code_of(program)[1][0] == "weft: worker 0 ended with exit code 9"


def test_a_worker_that_has_finished_but_does_not_leave_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_EXIT", 0.1)
    monkeypatch.setattr(coordinator, "_DRAW", 0.2)
    said: list[str] = []

    def speak(env: dict[str, str]) -> None:
        place = RankPlace.from_environment(env)
        assert place is not None
        store = RunStore(connect_store(place, timeout=30.0), env[TOKEN])
        for word in ("ready/0", "up/1/0", "finished/1/0"):
            store.set(word, "1")

    def spawn(env: dict[str, str]) -> Process:
        threading.Thread(target=speak, args=(env,), daemon=True).start()
        return started_here([sys.executable, "-S", "-c", "import time; time.sleep(60)"], env)

    code = run_elastic([], Size(1, 2, 2), env={}, wanted=lambda: None, say=said.append, spawn=spawn)
    assert code == 3
    assert said == [
        "weft: error: worker 0, which writes the end of the run, has not left within 0.2 s and is ended; "
        "continue from the last checkpoint with --resume"
    ]


class Elsewhere:
    """A process on a cluster: it may wait for a machine, and be lost with it."""

    def __init__(self, code: int | None, *, placed: bool = True, machine_lost: bool = False) -> None:
        self.code, self.placed, self.machine_lost = code, placed, machine_lost

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.code = -9

    def wait(self) -> int:
        assert self.code is not None
        return self.code


def code_elsewhere(*processes: Elsewhere) -> tuple[int, list[str]]:
    said: list[str] = []
    left = iter(processes)
    code = run_elastic(
        [], Size(1, 2, 2), env={}, wanted=lambda: None, say=said.append, spawn=lambda env: next(left)
    )
    return code, said


def test_a_worker_that_is_lost_with_its_machine_is_replaced_whatever_may_be_restarted() -> None:
    code, said = code_elsewhere(Elsewhere(-9, machine_lost=True), Elsewhere(7))
    assert code == 3
    assert said[:2] == ["weft: worker 0 was lost with its machine", "weft: worker 1 ended with exit code 7"]
    assert "fewer than 1 workers are left" in said[2]


def test_a_machine_that_is_never_found_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JOIN", "0.2")
    code, said = code_elsewhere(Elsewhere(None, placed=False))
    assert code == 3
    assert said[0] == "weft: no machine was found for worker 0 in 0.2 s"
    assert "fewer than 1 workers are left" in said[1]
