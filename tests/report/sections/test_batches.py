"""The section of mini-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .test_learning import section

Draw = Callable[..., str]


def epochs(*batches: Any) -> list[dict[str, Any]]:
    return [{"event": "epoch", "epoch": i, "loss": 1.0, "batches": b} for i, b in enumerate(batches, start=1)]


def way(wait: float, **more: Any) -> dict[str, Any]:
    seconds = {"prepare": 0.4, "wait": wait, "transfer": 0.0, "compute": 0.9}
    return {"steps": 10, "nodes": 4000, "edges": 90000, "seconds": seconds, **more}


def test_the_wait_for_batches_and_the_way_of_one_are_told(draw: Draw) -> None:
    html = section(draw(None, epochs(way(0.1), way(0.1))), "batches")
    assert "Training waited for batches during 10.0 % of its time." in html
    assert ">40.0 ms<" in html  # prepare, a step
    assert ">9,000<" in html  # edges, a step
    assert "found near" not in html


def test_hit_rates_of_a_cache_are_drawn(draw: Draw) -> None:
    store = {"rows": 4000, "hits": 3000, "bytes": 1024 * 400, "hit_rate": 0.75}
    html = section(draw(None, epochs(way(0.1, store=store), way(0.2, store=store))), "batches")
    assert "75.0 % of the rows of features were found near." in html
    assert "400 KiB" in html
    assert "The share of rows found near by epoch" in html


def test_a_store_without_a_cache_tells_what_was_read(draw: Draw) -> None:
    store = {"rows": 4000, "hits": 0, "bytes": 1024, "hit_rate": 0.0}
    html = section(draw(None, epochs(way(0.1, store=store))), "batches")
    assert "1.00 KiB" in html
    assert "found near" not in html


def test_other_runs_and_odd_values_have_no_such_section(draw: Draw) -> None:
    assert 'id="batches"' not in draw(None, epochs(None, "many", {"seconds": "long"}))
