"""Learned rows: only those read are changed, each where its node's owner is, as one process and torch do."""

import os
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

from weft.layers.learned import LearnedRows
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.single import Single

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


@pytest.mark.parametrize("size", [*(pytest.param(size, marks=pytest.mark.slow) for size in (1, 2)), 4])
def test_ranks_learn_the_rows_of_one_process(size: int) -> None:
    assert run_ranks(size, equal_to_one_process) == [[]] * size


@pytest.mark.gpu
@pytest.mark.skipif(
    os.environ.get("WEFT_TEST_DEVICE") != "cuda", reason="needs a GPU; run by `make test-gpu`"
)
@pytest.mark.parametrize("on_host", [False, True])
def test_a_gpu_learns_the_rows_of_the_host(on_host: bool) -> None:
    graph = graph_without("bare").to(dtype=torch.float64)
    options: dict[str, Any] = {**BATCHES, "seed": 3}
    reference = learned(Sampled(graph, **options), model_for(graph, "sage", {}, torch.float64), "adam")
    model = model_for(graph, "sage", {}, torch.float64)
    for table in model.modules():
        if isinstance(table, LearnedRows):
            table.on_host = on_host
    found = learned(Sampled(graph, device=torch.device("cuda"), **options), model.to("cuda"), "adam")
    for what, value in reference.items():
        assert far(found[what].cpu(), value) < 1e-9, what


@pytest.mark.parametrize("case", [1, 2])
def test_rows_stay_parameters_where_chunks_are_run_again(case: int) -> None:
    layer, options, kind, name = CASES[case]
    graph = graph_without(kind).to(dtype=torch.float64)
    found = []
    for activation in ("keep", "offload"):
        model = model_for(graph, layer, options, torch.float64)
        strategy = Single(graph, seed=3, activation=activation, memory=10**8 if found else None)  # type: ignore[arg-type]
        if found:
            strategy.learn_rows(model, name, lr=0.02)
            assert not strategy.learned
        optimizer = torch.optim.Adam(strategy.parameters(model), lr=0.02)
        strategy.epoch(model, optimizer)
        found.append(model.state_dict())
    for what, value in found[0].items():
        assert far(found[1][what], value) < 1e-9, what


def test_only_rows_that_were_read_travel() -> None:
    found = run_ranks(2, bytes_of_a_big_table)
    read, width, table = sum(held["read"] for held in found), found[0]["width"], found[0]["table"]
    assert all(held["read"] for held in found)
    assert table > 4 * read * width * 4, "most rows are not read"
    # A row goes there and back once, with its id; some are the worker's own, and stay.
    assert 0 < sum(held["sent"]["learned rows"] for held in found) < read * (8 + 2 * 4 * width)
    assert sum(sum(held["sent"].values()) for held in found) < table
