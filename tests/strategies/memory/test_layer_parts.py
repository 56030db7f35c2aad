"""A model as stages: what runs again counts once."""

from typing import Any

import torch
from planned_runs import planned, trained, wide_graph

from weft.strategies.single import Single
from weft.train.model import build_model


def test_norms_count_rows_once() -> None:
    graph, options = wide_graph(500), {"layers": 3, "norm": "batch", "hidden": 16}
    strategy, _ = trained(graph, "sage", options, activation="auto", memory="1GiB")
    model: Any = build_model(graph, "sage", options, seed=1)
    strategy = Single(graph, activation="auto", memory=planned(strategy).least)
    strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert [int(norm.num_batches_tracked) for norm in model.norms] == [1, 1]
