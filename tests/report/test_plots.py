from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from weft.report import plots
from weft.report.plots import Line, Readout


def svg_of(html: str) -> ElementTree.Element:
    found = re.search(r"<svg.*?</svg>", html, re.DOTALL)
    assert found
    return ElementTree.fromstring(found.group())


def paths(html: str, kind: str) -> list[str]:
    return [
        path.get("d", "")
        for path in svg_of(html).iter("path")
        if (path.get("class") or "").split()[0] == kind
    ]


def chart(lines: list[Line], **options: object) -> str:
    x, y = plots.epoch_axis(0, 10), plots.linear_axis(0.0, 1.0)
    return plots.line_chart(lines, title="Loss", text="falls", x=x, y=y, **options)  # type: ignore[arg-type]


def test_linear_ticks_are_round_and_hold_the_data() -> None:
    axis = plots.linear_axis(0.13, 1.94)
    assert [text for _, text in axis.ticks] == ["0.0", "0.5", "1.0", "1.5", "2.0"]
    assert (axis.at(0.0), axis.at(2.0)) == (0.0, 1.0)


def test_linear_axis_of_one_value_has_a_width() -> None:
    axis = plots.linear_axis(3.0, 3.0)
    assert axis.low < 3.0 < axis.high
    assert plots.linear_axis(0.0, 0.0).high > 0


def test_ticks_of_whole_numbers_do_not_repeat() -> None:
    assert [text for _, text in plots.epoch_axis(0, 2).ticks] == ["0", "1", "2"]
    assert [text for _, text in plots.epoch_axis(7, 7).ticks] == ["7"]


def test_log_axis_places_decades_evenly() -> None:
    axis = plots.log_axis(1, 10_000)
    places = [axis.at(value) for value, _ in axis.ticks]
    steps = [b - a for a, b in pairwise(places)]
    assert [text for _, text in axis.ticks] == ["1", "10", "100", "1,000", "10,000"]
    assert steps == pytest.approx([steps[0]] * 4)
    assert places[0] > 0
    assert places[-1] < 1


@pytest.mark.parametrize(("low", "high"), [(1, 1), (3, 4), (1, 1e9), (2e-7, 5e-7)])
def test_log_axis_always_has_ticks_within_it(low: float, high: float) -> None:
    axis = plots.log_axis(low, high)
    assert 1 <= len(axis.ticks) <= 9
    assert all(0 <= axis.at(value) <= 1 for value, _ in axis.ticks)


def test_line_is_placed_from_the_bottom_left() -> None:
    html = chart([Line("train", "t1", [(0, 0.0), (10, 1.0)])])
    assert paths(html, "line") == ["M0.0 1000.0L1000.0 0.0"]


def test_line_breaks_where_a_value_is_not_finite() -> None:
    html = chart(
        [
            Line(
                "train",
                "t1",
                [(0, 0.0), (1, 0.1), (2, math.nan), (3, 0.2), (4, math.inf), (5, 0.1), (6, 0.1)],
            )
        ]
    )
    assert paths(html, "line")[0].count("M") == 2
    assert len(paths(html, "dot")) == 1  # the lone third epoch


def test_marked_epoch_has_a_rule_a_flag_and_a_dot() -> None:
    html = chart([Line("val", "t2", [(0, 0.0), (5, 0.5)])], mark=(5.0, "best <epoch>"))
    assert paths(html, "mark") == ["M500.0 0V1000"]
    assert paths(html, "dot") == ["M500.0 500.0h0"]
    assert "best &lt;epoch&gt;" in html


def test_columns_stand_on_each_other() -> None:
    x, y = plots.epoch_axis(0, 2), plots.linear_axis(0.0, 4.0)
    layers = [("t1", [1.0, 2.0]), ("t2", [3.0, 0.0])]
    html = plots.column_chart(layers, title="Time", text="", x=x, y=y, edges=[0, 1, 2], gap=0.0)
    assert paths(html, "fill") == [
        "M0.0 1000.0V750.0H500.0V1000.0ZM500.0 1000.0V500.0H1000.0V1000.0Z",
        "M0.0 750.0V0.0H500.0V750.0Z",
    ]


def test_bins_are_columns_and_those_of_a_second_layer_outlines() -> None:
    x, y = plots.Axis(1, 100, (), log=True), plots.Axis(1, 100, (), log=True)
    layers = [("t1", [(1, 10, 10)]), ("t2", [(10, 100, 100)])]
    html = plots.bin_chart(layers, title="Degrees", text="", x=x, y=y)
    assert paths(html, "fill") == ["M20.0 1000V500.0H480.0V1000Z"]
    assert paths(html, "line") == ["M520.0 1000V0.0H980.0V1000"]


def test_thinning_keeps_ends_and_extremes() -> None:
    points = [(float(i), math.sin(i / 50)) for i in range(10_000)]
    points[4321] = (4321.0, 9.0)
    points[77] = (77.0, -9.0)
    kept = plots.thin(points, 200)
    assert len(kept) <= 200
    assert {points[0], points[-1], points[4321], points[77]} <= set(kept)
    assert kept == sorted(kept)


def test_thinning_keeps_gaps() -> None:
    points = [(float(i), math.nan if 3000 <= i < 6000 else 1.0) for i in range(9000)]
    assert any(math.isnan(value) for _, value in plots.thin(points, 100))


def test_samples_are_evenly_spread() -> None:
    assert plots.sample(5) == [0, 1, 2, 3, 4]
    assert plots.sample(101, 5) == [0, 25, 50, 75, 100]


def test_stretches_cover_everything_once() -> None:
    assert plots.stretches(7, 3) == [(0, 3), (3, 6), (6, 7)]
    assert plots.stretches(2, 120) == [(0, 1), (1, 2)]


def test_charts_say_what_they_show_and_escape_it() -> None:
    readout = Readout([0, 10], ["<b>", "c"], [('"><script>', "t1", ["1", "2"])])
    x, y = plots.epoch_axis(0, 10), plots.linear_axis(0.0, 1.0, "<unit>")
    html = plots.figure("", title="<Loss>", text="a & b", x=x, y=y, readout=readout)
    svg = svg_of(html)
    assert (svg.findtext("title"), svg.findtext("desc"), svg.get("role")) == ("<Loss>", "a & b", "img")
    assert "<script>" not in html
    assert "<unit>" not in html
