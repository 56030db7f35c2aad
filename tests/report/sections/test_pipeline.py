"""The section of stages of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .test_learning import section

Draw = Callable[..., str]


def worker(stage: int, jobs: Any) -> dict[str, Any]:
    return {
        "stage": stage,
        "replica": 0,
        "layers": [stage, stage + 2],
        "in_flight": 7 - stage,
        "versions": 3 + stage,
        "share": 0.5,
        "jobs": jobs,
    }


def epochs(jobs: Any, **more: Any) -> list[dict[str, Any]]:
    told = {
        "schedule": "1f1b",
        "versions_kept": "stash",
        "recompute": True,
        "micro_batches": 12,
        "rounds": 1,
        "bubble": 0.375,
        "bubble_expected": 0.25,
        "workers": [worker(0, jobs), worker(1, [])],
        **more,
    }
    return [{"event": "epoch", "epoch": number, "loss": 1.0, "pipeline": told} for number in (1, 2)]


def test_stages_are_shown_with_what_was_in_flight_and_idle(draw: Draw) -> None:
    costs = {"seconds": [0.25, 0.5], "activations": [2048, 64], "weights": [4096, 8], "bandwidth": 1024.0}
    jobs = [["forward", 0, 0.0, 1.0], ["backward", 0, 2.0, 3.0]]
    html = section(draw(None, epochs(jobs, measured=costs)), "pipeline")
    assert "2 stages on 2 workers by 1f1b: workers stood idle 37.5 % of the time" in html
    assert "(K − 1) / (M + K − 1) says 25.0 %" in html
    assert "Which stage ran when: epoch 2" in html
    assert html.count('class="fill t1"') == html.count('class="fill t2"') == 1
    for shown in (">7<", ">6<", ">3<", ">4<", "0 – 1", "stash", "250 ms", "2.00 KiB", "1.00 KiB/s"):
        assert shown in html


@pytest.mark.parametrize("jobs", [None, [], [["forward"]], [["rest", 0, 0.0, 1.0]], "all"], ids=str)
def test_jobs_that_cannot_be_drawn_are_left_out(draw: Draw, jobs: Any) -> None:
    html = section(draw(None, epochs(jobs)), "pipeline")
    assert "Which stage ran when" not in html
    assert "37.5 %" in html


def test_other_runs_have_no_such_section(draw: Draw) -> None:
    assert "stood idle" not in draw(None, [{"event": "epoch", "epoch": 1, "loss": 1.0}])
