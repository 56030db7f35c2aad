"""What is sent in some epochs and not in others is forecast by its mean over a whole period."""

from typing import Any

import pytest
from plan_jobs import SMALL
from plan_machine import machine

from weft.config import make_recipe
from weft.plan.forecast import Forecast
from weft.plan.planning import make_plan


def planned(strategy: dict[str, Any], epochs: int | None = None, **train: Any) -> Forecast:
    name = strategy["name"]
    by = {} if name == "vertex_cut" else {"partitioner": "hash"}
    train = {**SMALL["train"], **train}
    recipe = make_recipe({**SMALL, "train": train, "model": {"hidden": 8}, "strategy": {**by, **strategy}})
    (found,) = make_plan(recipe, machine=machine(), workers=[2], only=[name], epochs=epochs).configurations
    return found


def halo(exchange: Any, **more: Any) -> dict[str, Any]:
    return {"name": "halo", "exchange": exchange, **more}


@pytest.mark.parametrize(
    ("strategy", "period"),
    [
        (halo({"name": "skip", "interval": 2}), 2),
        pytest.param(halo({"name": "skip", "interval": 3, "age": 4}), 3, marks=pytest.mark.slow),
        pytest.param(halo({"name": "skip", "age": 2, "gradients": True}), 3, marks=pytest.mark.slow),
        pytest.param({"name": "vertex_cut", "exchange": "delayed"}, 5, marks=pytest.mark.slow),
    ],
)
def test_bytes_repeat_after_a_period_and_their_mean_is_told(strategy: dict[str, Any], period: int) -> None:
    found = planned(strategy, 1 + 2 * period)
    first, second = found.bytes_of_epochs[1 : 1 + period], found.bytes_of_epochs[1 + period :]
    assert found.period == period
    assert first == second
    assert len(set(first)) > 1, "otherwise any epoch would tell"
    assert found.bytes_per_epoch == pytest.approx(sum(first) / period)
    assert sum(map(sum, found.bytes_by_pair)) == pytest.approx(found.bytes_per_epoch)
    assert found.training_bytes_per_epoch + found.evaluation_bytes_per_epoch == pytest.approx(
        sum(first) / period
    )


def test_skip_is_forecast_with_the_rows_that_it_sends() -> None:
    skip = planned(halo("skip"))
    most, least = max(skip.bytes_of_epochs[1:]), min(skip.bytes_of_epochs[1:])
    assert skip.bytes_of_epochs[1:] == [least, least, least, most]  # rows every fourth time
    assert skip.bytes_per_epoch == pytest.approx(least + (most - least) / 4)


def test_evaluations_count_as_often_as_they_are_made() -> None:
    often, seldom = planned(halo("exact")), planned(halo("exact"), eval_every=4)
    assert seldom.evaluation_bytes_per_epoch == often.evaluation_bytes_per_epoch / 4
    assert seldom.evaluation_seconds == pytest.approx(often.evaluation_seconds / 4)
    assert seldom.training_bytes_per_epoch == often.training_bytes_per_epoch
