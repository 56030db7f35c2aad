"""The section of ranks by relation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .. import samples
from .test_learning import section

Draw = Callable[..., str]


def ranks(mrr: float, pairs: int) -> dict[str, Any]:
    kinds = {f"{kind}{name}": mrr for kind in ("", "raw_") for name in ("mrr", "hits@1", "hits@3", "hits@10")}
    return {**kinds, "pairs": pairs}


def told(count: int) -> dict[str, Any]:
    names = {f"r<{i}>": {**ranks(0.1 + i / 100, i + 1), "dst": ranks(0.5, 1)} for i in range(count)}
    return {"by_end": {"src": ranks(0.25, 7), "dst": ranks(0.75, 7)}, "by_relation": names}


def drawn(draw: Draw, details: Any) -> str:
    meta = samples.meta()
    meta["summary"] = {**meta["summary"], "details": details}
    return section(draw(meta), "relations")


def test_relations_of_most_pairs_come_first_and_all_open_on_request(draw: Draw) -> None:
    html = drawn(draw, {"test": told(20)})
    assert "tail asked for" in html
    assert "0.750" in html
    shown, rest = html.split("All relations")
    names = re.findall(r"r&lt;(\d+)&gt;", shown)
    assert names == [str(i) for i in range(19, 7, -1)]
    assert "r&lt;0&gt;" in rest
    assert "0.290" in shown
    assert "0.500" in shown


def test_what_is_missing_is_left_out(draw: Draw) -> None:
    assert "All relations" not in drawn(draw, {"val": told(2)})
    assert "validation pairs" in drawn(draw, {"val": told(2)})
    for nothing in ({}, {"test": {}}, {"test": {"by_relation": 3}}, None):
        assert not drawn(draw, nothing)
