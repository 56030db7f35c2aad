"""The section of intervals that do not wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .test_learning import section

Draw = Callable[..., str]


def epochs(**more: Any) -> list[dict[str, Any]]:
    own = {
        "ages": {"-1": 2, "0": 6, "1": 8},
        "ahead": 1,
        "versions": 3,
        "waited": 0.25,
        "spans": [[0, 0, 5.0, 6.0], [1, 0, 5.0, 7.0], [0, 1, 6.0, 8.0]],
        **more,
    }
    told = {"form": "free", "staleness": 1, "intervals": 2, "workers": [own, own]}
    return [{"event": "epoch", "epoch": number, "loss": 1.0, "asynchronous": told} for number in (1, 2)]


def test_ages_and_who_was_where_are_shown(draw: Draw) -> None:
    tasks = {
        "workers": 2,
        "tasks": 40,
        "relaunched": 3,
        "late": 1,
        "lost": 1,
        "bytes": 2048,
        "tuned": "2 pay",
    }
    html = section(draw(None, epochs(tasks=tasks)), "asynchrony")
    assert "2 intervals a worker, free, at most 1 epoch apart: 50.0 % of what was read" in html
    for shown in (
        "1 epoch ahead",
        "of this epoch",
        "1 epoch old",
        "rank 0 · 1",
        ">40<",
        ">3<",
        "500 ms",
        "2 pay",
    ):
        assert shown in html
    assert "Which interval was in which epoch when" in html
    assert 'class="fill t1"' in html
    assert 'class="fill t2"' in html


@pytest.mark.parametrize("spans", [None, [["x"]], [[0, 0, "a", 1.0]], "all"], ids=str)
def test_what_cannot_be_drawn_is_left_out(draw: Draw, spans: Any) -> None:
    html = section(draw(None, epochs(spans=spans, ages=spans)), "asynchrony")
    assert "Which interval was in which epoch" not in html
    assert "2 intervals a worker" in html
