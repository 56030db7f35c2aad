"""A plan is made in the memory given, or refused with what would do."""

import pytest
import torch
from planned_runs import wide_graph

from weft.errors import RecipeError
from weft.strategies.single import Single
from weft.train.model import build_model


def test_too_little_memory_is_said_with_what_would_do() -> None:
    graph = wide_graph()
    model = build_model(graph, "sage", {"layers": 2}, seed=1)
    strategy = Single(graph, activation="auto", memory="64KiB")
    with pytest.raises(RecipeError, match=r"strategy.memory: a layer alone takes .* MiB .*, got 64 KiB"):
        strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.01))
