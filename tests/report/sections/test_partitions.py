"""The section of learned rows in partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .test_learning import section

Draw = Callable[..., str]
TOLD = {"swaps": 5, "bytes_read": 4096, "bytes_written": 2048, "disk_wait_share": 0.25}
VISITS = [[[0, 1]], [[0, 2], [1, 3]], [[2, 3]]]


def epochs(*buckets: Any) -> list[dict[str, Any]]:
    return [{"event": "epoch", "epoch": i, "loss": 1.0, "buckets": b} for i, b in enumerate(buckets, start=1)]


def test_the_disk_and_the_order_are_shown(draw: Draw) -> None:
    html = section(draw(None, epochs({**TOLD, "visits": VISITS}, {**TOLD, "visits": VISITS})), "partitions")
    assert "Training waited for the disk during 25.0 % of its time." in html
    assert ">5<" in html
    assert "4.00 KiB" in html
    assert "2.00 KiB" in html
    assert "partitions 1 and 3: round 2" in html
    assert "partitions 3 and 3: round 2" in html
    assert "Order of buckets, epoch 2" in html


def test_ages_of_relations_are_shown_where_workers_took_buckets_as_they_came(draw: Draw) -> None:
    more = {"relation_age_mean": 1.25, "relation_age_max": 3, "lock_wait_share": 0.125}
    html = section(draw(None, epochs({**TOLD, **more, "visits": VISITS})), "partitions")
    assert "1.2, 3 at most" in html
    assert "12.5 %" in html
    assert "age of relations" not in draw(None, epochs({**TOLD, "visits": VISITS}))


def test_a_partition_that_is_there_all_the_time_is_drawn_where_it_is_met(draw: Draw) -> None:
    visits = [[[0, 1, 3]], [[0, 2, 3]], [[1, 2, 3]]]
    html = section(draw(None, epochs({**TOLD, "visits": visits})), "partitions")
    for a, b, number in ((0, 1, 1), (1, 2, 3), (0, 3, 1), (2, 3, 2), (3, 3, 1)):
        assert f"partitions {a} and {b}: round {number}" in html


@pytest.mark.parametrize("visits", [None, "all", [[0, 1]], [[["a", 1]]], [[[0, 10**9]]], [[[0]]]], ids=str)
def test_an_order_that_cannot_be_drawn_is_left_out(draw: Draw, visits: Any) -> None:
    html = section(draw(None, epochs({**TOLD, "visits": visits})), "partitions")
    assert "Order of buckets" not in html
    assert "25.0 %" in html


def test_other_runs_have_no_such_section(draw: Draw) -> None:
    assert "Training waited for the disk" not in draw(None, [{"event": "epoch", "epoch": 1, "loss": 1.0}])
