"""Workers that prepare batches together."""

import pytest
from loaders import loaded_graph

from weft.samplers import NeighborSampler
from weft.samplers.workers.worker_loaders import CollectiveLoader


@pytest.mark.parametrize("threads", [1, 3])
def test_workers_are_as_many_batches_ahead_as_they_are_told(threads: int) -> None:
    prepared: list[int] = []
    made = CollectiveLoader(
        NeighborSampler(loaded_graph(), [2], seed=7),
        range(40),
        batch_size=4,
        threads=threads,
        convert=lambda batch: prepared.append(batch.step) or batch,
    )
    steps = iter(made)
    assert next(steps).step == 0
    made.settle()
    assert prepared == list(range(1 + threads)), "in order, one begun as one is taken"
    steps.close()  # type: ignore[attr-defined]
