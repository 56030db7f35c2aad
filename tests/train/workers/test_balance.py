"""A worker that is slowed gives parts away while a run trains; the bits are those of a fixed run."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import elastic_jobs as jobs
import pytest

from weft.comm.elastic.balance import Decision, Move, Window, decide
from weft.report import write_report


@contextmanager
def slowed(pid: int, *, runs: float, stands: float) -> Iterator[None]:
    """Have a process stand still for a while, again and again, as on a core that it shares."""
    over = threading.Event()

    def pulse() -> None:
        with suppress(ProcessLookupError):
            while not over.wait(runs):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(stands)
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=pulse, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def made_again(line: str, past: list[Decision]) -> Decision | None:
    """Return the decision that follows from what a line of the log says was measured."""
    told = json.loads(line)
    windows = [
        Window(
            each["first"],
            each["last"],
            {int(worker): busy for worker, busy in each["busy"].items()},
            {int(part): ran for part, ran in each["parts"].items()},
        )
        for each in told["windows"]
    ]
    return decide(windows, dict(enumerate(told["holders"])), past)


def as_decided(line: str) -> Decision:
    told = json.loads(line)["decision"]
    return Decision(**{**told, "moves": [Move(**move) for move in told["moves"]]})


@pytest.mark.slow
def test_a_slow_worker_gives_parts_away_and_no_bit_changes(tmp_path: Path) -> None:
    sections = jobs.recipe(60, nodes=2000)
    log = tmp_path / "moves.jsonl"
    with jobs.Elastic(tmp_path / "moved", sections, moves=log) as run:
        run.after_epoch(1)
        with slowed(run.workers[1].pid, runs=0.02, stands=0.06):
            run.until(lambda: any("moved" in event for event in run.generations()))
        assert run.end() == 0, run.said
    first = run.generations()[1]
    assert first["workers"] == [0, 1]
    assert first["parts"].count(1) == 1, "one of its two parts went"
    assert first["moved"]["slow"] == 1
    lines = log.read_text().splitlines()
    past: list[Decision] = []
    for line in lines:
        assert made_again(line, past) == as_decided(line)
        past.append(as_decided(line))
    page = write_report(tmp_path / "moved").read_text()
    assert "Parts that moved" in page
    assert "worker 1 is slow" in page
    with jobs.Elastic(tmp_path / "fixed", sections, 1, most=1) as fixed:
        assert fixed.end() == 0, fixed.said
    assert jobs.came_to(tmp_path / "moved") == jobs.came_to(tmp_path / "fixed")
