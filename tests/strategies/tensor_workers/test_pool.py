"""Tensor workers give what this process computes, whoever is killed, stopped or slow meanwhile."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping

import pytest
import torch
import torch.nn.functional as F
from near_workers import NearWorker

from weft.strategies.tensor_workers import deadlines, process_worker
from weft.strategies.tensor_workers import pool as pools
from weft.strategies.tensor_workers.frames import Frame
from weft.strategies.tensor_workers.pool import TensorPool

ROWS = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
WEIGHT = torch.randn(5, 8, generator=torch.Generator().manual_seed(2))
BIAS = torch.randn(5, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def pool() -> Iterator[TensorPool]:
    made = TensorPool(2)
    yield made
    processes = made.pids
    made.close()
    assert not any(alive(pid) for pid in processes)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def product(pool: TensorPool, version: int = 0) -> torch.Tensor:
    weights = {f"{version}.weight": WEIGHT + version, f"{version}.bias": BIAS}
    return pool.run("apply_vertex", [ROWS], weights)[0]


@pytest.mark.slow
def test_answers_are_the_bits_of_this_process_for_each_version_whatever_happens(pool: TensorPool) -> None:
    expected = [F.linear(ROWS, WEIGHT + version, BIAS) for version in range(3)]
    for version in (0, 1, 0, 2):
        assert torch.equal(product(pool, version), expected[version])
    towards = torch.ones(64, 5)
    rows, weight, bias = pool.run("apply_vertex_gradient", [ROWS, towards], {"w": WEIGHT, "b": BIAS})
    assert torch.equal(rows, towards @ WEIGHT)
    assert torch.equal(weight, towards.t() @ ROWS)
    assert torch.equal(bias, towards.sum(0))
    before = pool.take_counts()
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
    assert torch.equal(product(pool), expected[0])
    killed = pool.take_counts()
    assert killed["lost"] >= before["lost"] + 1
    assert killed["relaunched"] >= before["relaunched"] + 1
    stopped = pool.pids
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    assert torch.equal(product(pool), expected[0])
    assert pool.take_counts()["relaunched"] >= killed["relaunched"] + 1
    for pid in stopped:
        if alive(pid):
            os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + 20
    while not pool.take_counts()["late"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert pool.take_counts()["late"] >= 1
    assert torch.equal(product(pool), expected[0])


def test_who_waits_hears_of_the_end(pool: TensorPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_worker, "START", 0.5)
    told: list[str] = []

    def ask() -> None:
        try:
            for version in range(10_000):
                product(pool, version)
        except pools.TrainingError as error:
            told.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.2)
    pool.close()
    thread.join(20)
    assert told == ["tensor workers were ended while a task was under way"]


class Stillborn:
    """A worker that ends before it is ready, and takes a while to say of what."""

    pid = None

    def __init__(self) -> None:
        self.asked, self.known = threading.Event(), threading.Event()

    def start(self) -> None:
        raise ConnectionError("no room")

    def run(self, task: Frame, weights: Mapping[str, torch.Tensor]) -> process_worker.TaskDone:
        raise NotImplementedError

    def end(self, *, kill: bool) -> None: ...

    def reap(self, seconds: float) -> None: ...

    def was_killed(self) -> bool:
        self.asked.set()
        self.known.wait(10)
        return False


def test_nobody_waits_while_the_end_of_a_worker_is_looked_into() -> None:
    worker = Stillborn()
    pool = TensorPool(1, lambda: worker)
    assert worker.asked.wait(10)
    began = time.monotonic()
    pool.take_counts()
    assert time.monotonic() - began < 5
    worker.known.set()
    with pytest.raises(pools.TrainingError, match="end before they begin: no room"):
        product(pool)
    pool.close()


class Lossy:
    """Whose tries at tasks fail: by place among all tries a worker is lost, or late until it may answer."""

    def __init__(self, lost: set[int], late: set[int]) -> None:
        self.lost, self.late, self.tries = lost, late, 0
        self.may_answer = threading.Event()

    def before(self, task: Frame) -> None:
        place, self.tries = self.tries, self.tries + 1
        if place in self.lost:
            raise ConnectionError("gone")
        if place in self.late:
            self.may_answer.wait(20)


@pytest.mark.parametrize(("lost", "late"), [(set(), set()), ({0}, set()), ({0, 1, 4}, set()), ({1}, {3})])
def test_each_relaunch_is_counted_once(
    lost: set[int], late: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "FIRST", 30.0)
    failing = Lossy(lost, late)
    pool = TensorPool(2, lambda: NearWorker(failing.before))
    usual, expected_tries = pool.deadlines.of, 3 + len(lost) + len(late)

    def of(name: str) -> float:  # that of a try that is late is over at once, but only once
        over = failing.tries - 1 in late and pool.counts.relaunched < expected_tries - 3
        return 0.0 if over else usual(name)

    monkeypatch.setattr(pool.deadlines, "of", of)
    expected = F.linear(ROWS, WEIGHT, BIAS)
    for _ in range(3):
        assert torch.equal(product(pool), expected)
    counts = pool.take_counts()
    assert failing.tries == expected_tries
    assert counts["tasks"] == 3
    assert counts["lost"] == len(lost)
    assert counts["relaunched"] == len(lost) + len(late)
    failing.may_answer.set()
    deadline = time.monotonic() + 10
    while pool.take_counts()["late"] < len(late) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert pool.take_counts()["late"] == len(late)
    pool.close()
