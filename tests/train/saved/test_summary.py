"""What a run came to survives JSON, and its scores are those of held-out targets."""

import json
import math
from typing import Any

import pytest
from torch import nn

from weft.events import dumps
from weft.train.saved.summary import Summary


def summary(**changes: Any) -> Summary:
    told: dict[str, Any] = {
        "loss": 0.1, "epochs": 3, "best_epoch": 2,
        "epoch_seconds_median": 0.1, "seconds": 1.0, "bytes_sent": 0, "messages": 0,
        "exposed_comm_seconds": 0.0, "batch_wait_share": None, "peak_memory_bytes": 1, "strategy": "single",
        "workers": 1, "out": None, "task": "node_classification", "metric": "accuracy",
        "metrics": {"val": {"accuracy": 0.75}, "test": {"accuracy": 0.5, "loss": 0.7}}, "stopped": "done",
        "model": nn.Identity(),
    }  # fmt: skip
    return Summary(**{**told, **changes})


def test_scores_are_of_the_test_or_of_validation_and_hold_no_loss() -> None:
    assert summary().scores == {"accuracy": 0.5}
    assert summary(metrics={"val": {"accuracy": 0.75, "loss": 1.0}}).scores == {"accuracy": 0.75}
    assert summary(metrics={}).scores == {}


def test_accuracy_is_told_where_the_task_knows_it() -> None:
    assert summary().to_dict()["test_accuracy"] == 0.5
    told = summary(metrics={"test": {"mae": 2.0}}).to_dict()
    assert told["mae"] == 2.0
    assert "test_accuracy" not in told
    assert "model" not in told


def test_what_json_gives_back_is_the_same_with_what_was_no_number() -> None:
    first = summary(metrics={"test": {"accuracy": 0.5, "roc_auc": math.nan}})
    again = Summary.from_dict(json.loads(dumps(first.to_dict())), first.model)
    assert math.isnan(again.metrics["test"].pop("roc_auc"))
    assert again.metrics["test"] == {"accuracy": 0.5}
    assert (again.epochs, again.batch_wait_share, again.model) == (3, None, first.model)
    with pytest.raises(AttributeError):
        again.epochs = 4  # type: ignore[misc]
