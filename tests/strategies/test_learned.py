"""Learned rows: only those read are changed, each where its node's owner is, as one process and torch do."""

from typing import Any

import pytest
import torch
from halo_jobs import far
from learned_jobs import (
    BATCHES,
    CASES,
    bytes_of_a_big_table,
    equal_to_one_process,
    graph_without,
    in_torch,
    learned,
    model_for,
)
from ranks import run_ranks

from weft.strategies.minibatch.sampled import Sampled

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch's own Adagrad


@pytest.mark.parametrize(
    ("name", "rival"),
    [("adam", torch.optim.SparseAdam), ("adagrad", torch.optim.Adagrad), ("sgd", torch.optim.SGD)],
)
@pytest.mark.parametrize("case", range(3))
def test_rows_are_learned_as_torch_does_from_sparse_gradients(case: int, name: Any, rival: Any) -> None:
    layer, options, kind, _ = CASES[case]
    graph = graph_without(kind).to(dtype=torch.float64)

    def model() -> torch.nn.Module:
        return model_for(graph, layer, options, torch.float64)

    reference = in_torch(Sampled(graph, seed=3, **BATCHES), model(), rival)
    found = learned(Sampled(graph, seed=3, **BATCHES), model(), name)
    assert any("embeddings" in key for key in reference)
    for what, value in reference.items():
        assert far(found[what], value) < 1e-12, what


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_learn_the_rows_of_one_process(size: int) -> None:
    assert run_ranks(size, equal_to_one_process) == [[]] * size


def test_only_rows_that_were_read_travel() -> None:
    found = run_ranks(2, bytes_of_a_big_table)
    read, width, table = sum(held["read"] for held in found), found[0]["width"], found[0]["table"]
    assert all(held["read"] for held in found)
    assert table > 4 * read * width * 4, "most rows are not read"
    # A row goes there and back once, with its id; some are the worker's own, and stay.
    assert 0 < sum(held["sent"]["learned rows"] for held in found) < read * (8 + 2 * 4 * width)
    assert sum(sum(held["sent"].values()) for held in found) < table
