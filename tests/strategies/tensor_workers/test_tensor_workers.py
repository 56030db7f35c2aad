"""A run with tensor workers has the numbers of one without, and its own bits whatever happens to them."""

import os
import random
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest
import torch
from asynchronous_jobs import far, held, trained, whole

from weft.strategies.asynchronous.asynchronous import Asynchronous

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
