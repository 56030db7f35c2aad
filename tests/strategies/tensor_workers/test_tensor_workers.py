"""A run with tensor workers has the numbers of one without, and its own bits whatever happens to them."""

import os
import random
import re
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest
import torch
from asynchronous_jobs import far, held, trained, whole
from near_workers import NearWorker

from weft.strategies.asynchronous.asynchronous import Asynchronous
from weft.strategies.tensor_workers import tensor_workers
from weft.strategies.tensor_workers.pool import TensorPool
from weft.strategies.tensor_workers.tuning import Tuning

GIVEN: dict[str, Any] = {"seed": 3, "intervals": 3, "staleness": 1}


def run(
    layer: str, workers: Any, disturb: Any = None, epochs: int = 7
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    graph, model = held("hub", layer, torch.float64)
    strategy = Asynchronous(whole(graph), tensor_workers=workers, **GIVEN)
    told: dict[str, Any] = {}
    evaluate = strategy.evaluate

    def last(*given: Any) -> Any:
        told.update(strategy.batching.epoch_fields()["asynchronous"]["workers"][0])
        return evaluate(*given)

    strategy.evaluate = last  # type: ignore[method-assign]
    over = threading.Event()
    thread = threading.Thread(target=disturb, args=(strategy, over), daemon=True)
    if disturb is not None:
        thread.start()
    try:
        return trained(strategy, model, epochs), told
    finally:
        over.set()
        if disturb is not None:
            thread.join(10)


def test_products_are_made_elsewhere_with_the_same_numbers() -> None:
    expected, _ = run("gat", 0)
    found, told = run("gat", 1)
    assert far(found, expected) < 1e-12
    # two layers, three intervals, seven epochs, forward and backward
    assert told["tasks"]["tasks"] == 2 * 3 * 7 * 2
    assert told["tasks"]["lost"] == 0


def test_a_number_that_is_looked_for_is_found_while_the_run_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    had: list[int] = []
    resize = TensorPool.resize

    def noted(pool: TensorPool, count: int) -> None:
        had.append(count)
        resize(pool, count)

    monkeypatch.setattr(tensor_workers, "ProcessWorker", NearWorker)
    monkeypatch.setattr(TensorPool, "resize", noted)
    monkeypatch.setattr(Tuning, "best", lambda tuning: 1)  # the clock would settle it
    expected, _ = run("gat", 0, epochs=20)
    had.clear()
    found, told = run("gat", "auto", epochs=20)
    assert far(found, expected) < 1e-12
    assert had == [0, 1, 2, 1], "none to begin with; more; and one of two leaves"
    assert told["tasks"]["workers"] == 1
    # two layers, three intervals, forward and backward: but for the epochs without
    assert 2 * 3 * 2 * 10 < told["tasks"]["tasks"] < 2 * 3 * 2 * 20
    assert re.fullmatch(r"An epoch took .* with 0, .* with 1, .* with 2: 1 stays\.", told["tasks"]["tuned"])


def harm(strategy: Any, over: threading.Event) -> None:
    """Kill, stop and slow workers at random times."""
    clock, stopped = random.Random(1), []
    while not over.wait(0.5 + clock.random()):  # they need time to begin at all
        tensors = strategy.batching._tensors
        pids = [] if tensors is None else tensors.pool.pids
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        stopped = []
        if pids:
            kind = clock.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGSTOP])
            with suppress(ProcessLookupError):
                os.kill(pid := clock.choice(pids), kind)
                stopped = [pid] if kind == signal.SIGSTOP else []


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["gcn", "gat"])
def test_the_bits_are_the_same_whoever_is_killed_stopped_or_slow(layer: str) -> None:
    expected, _ = run(layer, 1, epochs=150)
    found, told = run(layer, 2, harm, epochs=150)
    assert far(found, expected) == 0.0
    assert told["tasks"]["lost"] + told["tasks"]["relaunched"] > 0
