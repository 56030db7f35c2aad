from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .. import samples
from .test_learning import section

Draw = Callable[..., str]


def epochs(*seconds: dict[str, Any], memory: float = 2**20) -> list[dict[str, Any]]:
    return [
        {"event": "epoch", "epoch": i, "loss": 1.0, "seconds": held, "memory_bytes": i * memory}
        for i, held in enumerate(seconds, start=1)
    ]


def test_medians_and_shares_of_phases_are_right(draw: Draw) -> None:
    held = [
        {"forward": 0.010, "backward": 0.030},
        {"forward": 0.020, "backward": 0.030},
        {"forward": 0.030, "backward": 0.080},
    ]
    html = section(draw(None, epochs(*held)), "time")
    rows = re.findall(r"<tr><th scope=\"row\">(\w+)</th>(.*?)</tr>", html)
    cells = {name: re.findall(r">([^<>]+)</td>", row) for name, row in rows}
    assert cells["forward"] == ["20.0 ms", "30.0 ms", "60.0 ms", "30.0 %"]
    assert cells["backward"] == ["30.0 ms", "80.0 ms", "140 ms", "70.0 %"]
    assert "Backward takes the largest share, 70 % of the measured time." in html


def test_evaluation_every_few_epochs_has_the_median_of_those_epochs(draw: Draw) -> None:
    held = [{"forward": 0.01}, {"forward": 0.01}, {"forward": 0.01, "evaluate": 0.5}]
    html = section(draw(None, epochs(*held)), "time")
    assert '<th scope="row">evaluation</th><td class="num">500 ms</td>' in html


def test_slow_first_epoch_leaves_the_chart_and_is_told(draw: Draw) -> None:
    held = [{"forward": 1.0}] + [{"forward": 0.01}] * 20
    html = section(draw(None, epochs(*held)), "time")
    assert "The tallest column leaves the chart: 1.00 s." in html


def test_many_epochs_share_columns(draw: Draw) -> None:
    html = section(draw(None, epochs(*[{"forward": 0.01}] * 1000)), "time")
    assert "Each column is the mean of 9 epochs." in html


def test_unknown_phases_are_shown_too(draw: Draw) -> None:
    html = section(draw(None, epochs({"forward": 0.01, "exchange": 0.02})), "time")
    assert '<th scope="row">exchange</th>' in html


def test_stages_are_added_up_by_name(draw: Draw) -> None:
    spans = [
        {"event": "span", "name": "load", "seconds": 0.5},
        {"event": "span", "name": "load", "seconds": 1.0},
    ]
    html = section(draw(None, [*spans, *epochs({"forward": 0.01})]), "time")
    assert "Load" in html
    assert "1.50 s" in html


def test_memory_says_its_peak(draw: Draw) -> None:
    meta = samples.meta(summary={"peak_memory_bytes": 5 * 2**20})
    html = section(draw(meta, epochs({}, {}, {})), "memory")
    assert "The process held at most 5.00 MiB." in html
    assert "last epoch <b>3.00 MiB</b>" in html


def test_runs_without_times_or_memory_say_so(draw: Draw) -> None:
    html = draw(None, [{"event": "epoch", "epoch": 1, "loss": 1.0}])
    assert "Time: the events hold no phase times" in html
    assert "Memory: the events hold no memory_bytes" in html


def test_what_layers_keep_is_a_table(draw: Draw) -> None:
    layer = {"choice": "recompute", "bytes": 2048, "again": 2048, "aside": 0, "seconds": 0.002}
    plan = {"memory": 4096, "peak": 3072, "everything": 8192, "seconds": 0.002, "layers": [layer]}
    html = section(draw(None, [{"event": "memory_plan", **plan}, *epochs({"forward": 0.01})]), "memory")
    assert "What layers keep" in html
    assert "recompute" in html
    assert "Planned: 3.00 KiB of 4.00 KiB given, 2.00 ms more a step; 8.00 KiB if all were kept." in html
