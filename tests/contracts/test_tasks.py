"""What every task must do: say what it is, take its options, and train wherever its targets are known."""

import inspect
import math
from functools import cache
from typing import Any

import pytest
import torch

import weft
from weft.config import _constructors, bind, parameters
from weft.errors import RecipeError
from weft.partitioners.base import partitioners
from weft.strategies.base import strategies
from weft.tasks.base import SPLITS, chosen_loss, tasks
from weft.tasks.choose import TaskChoice
from weft.tasks.loss import Loss

# What a task needs beyond the usual on the graph below; and what y is where it is no class.
OPTIONS: dict[str, dict[str, Any]] = {
    "link_prediction": {"width": 4, "evaluate": {"name": "uniform", "count": 5}},
    "unsupervised": {"width": 4},
    "edge_classification": {"width": 4, "label": "label"},
    "edge_regression": {"width": 4, "label": "rating"},
}
CUT = {"parts": 2, "partitioner": "range"}
BATCH = {"fanout": [3, 2], "batch_size": 16}
STRATEGIES: dict[str, dict[str, Any]] = {
    "single": {},
    "halo": CUT,
    "sequential": CUT,
    "asynchronous": {**CUT, "intervals": 2},
    "grid": {"rows": 1, "columns": 1},
    "vertex_cut": {"parts": 2, "partitioner": "libra"},
    "staged": CUT,
    "sampled": BATCH,
    "control_variate": {"fanout": [1], "batch_size": 16},
    "clustered": {"clusters": 4, "together": 2, "partitioner": "range"},
    "saint": {"size": 20, "steps": 2},
    "sliced": {**BATCH, **CUT},
}
WHERE = [
    pytest.param(task, strategy, id=f"{task}-{strategy}")
    for task in tasks.names()
    for strategy in STRATEGIES
    if tasks[task].over in strategies[strategy].over
]


@cache
def graph(task: str) -> weft.Graph:
    """A graph of 60 nodes with what a task of any kind may ask for."""
    made = weft.datasets.open_dataset(name="community", nodes=60, degree=8, classes=3, features=4, seed=1)
    assert made.y is not None
    y = {
        "node_multilabel": torch.nn.functional.one_hot(made.y, 3).float(),
        "node_regression": made.y.double() + 0.5,
    }.get(task, made.y)
    number = torch.arange(made.num_edges)
    return weft.Graph.from_edges(
        made.edge_index,
        x=made.x,
        y=y,
        edge_data={"label": number % 3, "rating": (number % 5).double()},
        **{f"{split}_mask": getattr(made, f"{split}_mask") for split in SPLITS},
    )


def test_every_strategy_is_tried() -> None:
    # with the files that one reads, the only task of another, and the workers that stages need
    elsewhere = {"records", "buckets", "pipeline"}
    assert {*STRATEGIES} | elsewhere == {*strategies.names()}


@pytest.mark.parametrize("name", tasks.names())
def test_a_task_says_what_it_is(name: str) -> None:
    kind = tasks[name]
    assert kind.name == name, "messages and runs speak of it by this name"
    prose = inspect.cleandoc(kind.__doc__ or "")
    assert len(prose.split()) > 5
    missing = [option for option in parameters(kind, given=("loss",)) if f"`{option}`" not in prose]
    assert missing == [], "the reference of recipes is made of the docstring"
    assert kind.over in ("nodes", "pairs")
    assert any(kind.over in strategies[each].over for each in strategies.names())


@pytest.mark.parametrize("name", tasks.names())
def test_a_task_knows_its_metrics_and_losses(name: str) -> None:
    kind: Any = tasks[name]
    assert kind.metric in kind.metrics
    assert {*kind.watched} <= {*kind.metrics}
    assert not {*kind.measures} & {*kind.metrics}
    assert kind.losses
    for loss in kind.losses:
        assert isinstance(chosen_loss(kind(loss=loss), loss), Loss)
        assert TaskChoice.of({"name": name, "loss": loss}).loss == loss
    with pytest.raises(RecipeError, match=r"task\.loss: expected one of"):
        TaskChoice.of({"name": name, "loss": "no_such_loss"})


@pytest.mark.parametrize("name", tasks.names())
def test_options_are_checked_before_data_is_read(name: str) -> None:
    kind = tasks[name]
    stated = [inspect.signature(function).parameters.values() for function in _constructors(kind)]
    usual = {item.name: item.default for each in stated for item in each if item.kind is item.KEYWORD_ONLY}
    given = {key: value for key, value in usual.items() if key != "loss" and value is not None}
    assert bind(kind, given, "task", given=("loss",)) == given, "what is the default is accepted"
    with pytest.raises(RecipeError, match=r"task\.no_such_option"):
        TaskChoice.of({"name": name, "no_such_option": 1})


@pytest.mark.parametrize(("task", "strategy"), WHERE)
def test_a_task_trains_wherever_its_targets_are_known(
    task: str, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioners["libra"], "isolated", False)  # a child takes longer than all else
    summary = weft.train(
        graph(task),
        "gcn",
        layers=2,
        hidden=4,
        epochs=2,
        eval_every=2,
        task={"name": task, **OPTIONS.get(task, {})},
        strategy={"name": strategy, **STRATEGIES[strategy]},
    )
    kind = tasks[task]
    assert summary.task == task
    assert summary.metric == kind.metric
    assert math.isfinite(summary.loss)
    for split in ("val", "test"):
        assert {*kind.metrics, *kind.measures} <= {*summary.metrics[split]}
        assert math.isfinite(summary.metrics[split][kind.metric])
