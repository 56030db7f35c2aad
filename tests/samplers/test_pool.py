"""Threads that prepare batches."""

import time

import pytest
from loaders import loader, running

from weft.errors import GraphError
from weft.samplers import Batch, Loader


def test_threads_stay_only_so_far_ahead() -> None:
    prepared: list[int] = []
    made = loader(2, ahead=3, convert=lambda batch: prepared.append(batch.step) or batch)
    steps = iter(made)
    next(steps)
    deadline = time.monotonic() + 20
    while len(prepared) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert sorted(prepared) == [0, 1, 2]
    steps.close()  # type: ignore[attr-defined]
    assert not running()


def test_what_a_thread_raises_reaches_the_caller_at_once() -> None:
    def fail(batch: Batch) -> Batch:
        if batch.step == 2:
            raise ValueError("broken features")
        return batch

    made = loader(2, convert=fail)
    with pytest.raises(ValueError, match="broken features"):
        list(made)
    assert made.step <= 2
    assert not running()
    with pytest.raises(GraphError, match="seed 100"):
        list(Loader(made.sampler, [5, 100], batch_size=1))


def test_a_loader_that_is_dropped_leaves_no_thread() -> None:
    steps = iter(loader(4))
    next(steps)
    del steps
    assert not running()
