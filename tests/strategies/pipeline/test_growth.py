"""Batches grow with epochs, or when the loss has stopped to fall, also in a run that is continued."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from run_watch import events

import weft
from weft.errors import RecipeError
from weft.strategies.pipeline.growth import BatchSize, Growth


def sizes(growth: dict[str, Any], losses: list[float]) -> list[int]:
    made, found = BatchSize(10, Growth.of(growth)), []
    for epoch, loss in enumerate(losses):
        found.append(made.of(epoch))
        made.epoch_ended(loss)
        again = BatchSize(10, made.growth)
        again.load_state(made.state())
        made = again
    return found


def test_batches_grow_when_the_loss_has_not_been_smaller_for_some_epochs() -> None:
    losses = [3.0, 2.0, 2.5, 2.0, 1.9, 2.0, 2.0, 2.0, 2.0]
    assert sizes({"patience": 2, "most": 30}, losses) == [10, 10, 10, 10, 20, 20, 20, 30, 30]
    assert sizes({"every": 4, "factor": 1.5}, losses) == [10] * 4 + [15] * 4 + [22]
    assert sizes({"patience": 2}, [3.0, 2.0, 1.0]) == [10, 10, 10]


def test_batches_that_grow_for_ever_hold_every_node_in_the_end() -> None:
    assert Growth(every=1).size(8, 10) == 8192
    assert Growth(every=1).size(8, 5000) == Growth(every=1).size(8, 6000) > 1 << 32
    assert Growth(every=1, most=100).size(8, 5000) == 100


def test_growth_says_when() -> None:
    assert Growth.of(None) is None
    for given in ({"factor": 2.0}, {"every": 3, "patience": 3}):
        with pytest.raises(RecipeError, match=r"after how many epochs\? give every, .* or patience"):
            Growth.of(given)


def test_a_run_that_is_continued_has_the_batches_and_bits_of_one_that_was_not(tmp_path: Path) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=60, degree=5, classes=3, features=6, seed=1)
    section: dict[str, Any] = {"name": "pipeline", "stages": 1, "fanout": [2, 2], "batch_size": 10}
    section |= {"grow": {"patience": 1, "factor": 1.5}}
    given: dict[str, Any] = {"hidden": 4, "lr": 3.0, "strategy": section, "epochs": 7, "checkpoint_every": 1}
    through = weft.train(graph, "sage", out=tmp_path / "through", **given)
    ticks = itertools.count(1)
    first = weft.train(graph, "sage", out=tmp_path / "stopped", stop=lambda: next(ticks) == 14, **given)
    again = weft.train(graph, "sage", out=tmp_path / "stopped", resume=True, **given)
    told = [events(tmp_path / name, "epoch") for name in ("through", "stopped")]
    grown = [[event["pipeline"]["batch_size"] for event in each] for each in told]
    assert grown[0] == grown[1]
    assert first.epochs < 4
    assert grown[0][-1] > grown[0][first.epochs], "it grew after it was stopped"
    assert again.loss == through.loss
    expected = through.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in again.model.state_dict().items())
