"""Small charts as HTML and SVG, drawn so that text never scales and colours follow the page.

The plot area is an SVG of 1000 × 1000 units stretched over whatever room there is; strokes do not scale with
it. Tick labels, legends and marks are HTML placed in per cent, so they keep their size on phones and paper.
Colours are classes (`t1` … `t6`) that the style sheet defines once for light and once for dark.

Every function returns a string of HTML; names and labels given to it are plain text and are escaped here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from weft.report.words import count, decimal

FULL = 1000.0
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """A scale from values to 0 … 1, with its ticks."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str = ""
    log: bool = False

    def at(self, value: float) -> float:
        """Where `value` lies: 0 at the low end, 1 at the high end, outside of that beyond the axis."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        return ((math.log10(value) if self.log else value) - low) / (high - low)


@dataclass(frozen=True)
class Line:
    """One curve: its name, its colour class and its points in the order of x."""

    name: str
    tone: str
    points: Sequence[Point]
    dashed: bool = False


@dataclass(frozen=True)
class Readout:
    """What the pointer reads off: positions on x, a heading for each, and one row of texts a series."""

    x: Sequence[float]
    heads: Sequence[str]
    rows: Sequence[tuple[str, str, Sequence[str]]]


def linear_axis(low: float, high: float, title: str = "", *, steps: int = 5, whole: bool = False) -> Axis:
    """An axis between the round numbers around `low` and `high`; `whole`: ticks at integers only."""
    if not high > low:
        pad = abs(low) / 2 or 0.5
        low, high = (low, low + 1) if whole else (low - pad, high + pad)
    step = _round_step((high - low) / steps)
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    values = [index * step for index in range(first, last + 1)]
    ticks = tuple((value, f"{value + 0.0:,.{digits}f}".replace("-", "−")) for value in values)
    return Axis(values[0], values[-1], ticks, title)


def epoch_axis(first: int, last: int) -> Axis:
    """The axis of epochs: as tight as the data, ticks at round epochs."""
    if first == last:
        return Axis(first - 0.5, first + 0.5, ((first, count(first)),), "epoch")
    room = 0.08 * (last - first)
    inner = [
        tick for tick in linear_axis(first, last, whole=True).ticks if first + room < tick[0] < last - room
    ]
    return Axis(first, last, ((first, count(first)), *inner, (last, count(last))), "epoch")


def log_axis(low: float, high: float, title: str = "") -> Axis:
    """A logarithmic axis from a little below `low` to a little above `high`, both above 0."""
    first, last = math.log10(low) - 0.06, math.log10(high) + 0.06
    if last - first < 0.5:
        first, last = first - 0.25, last + 0.25
    powers = range(math.ceil(first), math.floor(last) + 1)
    stride = max(1, math.ceil(len(powers) / 6))
    values = [10.0**power for power in powers[::stride]]
    if len(powers) < 3:
        finer = (m * 10.0**p for p in range(math.floor(first), math.floor(last) + 1) for m in (2, 5))
        values = sorted([*values, *(value for value in finer if first <= math.log10(value) <= last)])
    return Axis(
        10.0**first, 10.0**last, tuple((value, decimal(value, 1)) for value in values), title, log=True
    )


def thin(points: Sequence[Point], limit: int = 600) -> list[Point]:
    """About `limit` points that draw the same curve: of each stretch its lowest and its highest stay."""
    if len(points) <= limit:
        return list(points)
    kept = {0, len(points) - 1}
    width = 2 * len(points) / (limit - 2)
    for bucket in range((limit - 2) // 2):
        part = range(int(bucket * width), min(len(points), int((bucket + 1) * width)))
        finite = [index for index in part if math.isfinite(points[index][1])]
        kept.update(
            {min(finite, key=lambda i: points[i][1]), max(finite, key=lambda i: points[i][1])}
            if finite
            else {part[0]}
        )
    return [points[index] for index in sorted(kept)]


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    text: str,
    x: Axis,
    y: Axis,
    fill: bool = False,
    mark: tuple[float, str] | None = None,
    readout: Readout | None = None,
) -> str:
    """Curves over a common axis; gaps where a value is not finite; `mark` is a named position on x."""
    shapes = []
    for line in lines:
        runs = _finite_runs(thin(line.points), x, y)
        tone = f"{line.tone} dash" if line.dashed else line.tone
        if fill:
            shapes += [f'<path class="area {tone}" d="{_area(run)}"/>' for run in runs if len(run) > 1]
        path = "".join(_polyline(run) for run in runs if len(run) > 1)
        dots = "".join(_dot(*run[0]) for run in runs if len(run) == 1)
        shapes.append(f'<path class="line {tone}" d="{path}"/>' if path else "")
        shapes.append(f'<path class="dot {tone}" d="{dots}"/>' if dots else "")
        at = next((value for number, value in line.points if mark and number == mark[0]), math.nan)
        if mark and math.isfinite(at):
            shapes.append(f'<path class="dot {tone}" d="{_dot(*_place(mark[0], at, x, y))}"/>')
    return figure("".join(shapes), title=title, text=text, x=x, y=y, mark=mark, readout=readout)


def column_chart(
    layers: Sequence[tuple[str, Sequence[float]]],
    *,
    title: str,
    text: str,
    x: Axis,
    y: Axis,
    edges: Sequence[float],
    readout: Readout | None = None,
    gap: float = 0.12,
) -> str:
    """Stacked columns: `layers` are (tone, heights), bottom first; `edges` are the columns' sides on x."""
    base = [0.0] * (len(edges) - 1)
    shapes = []
    for tone, heights in layers:
        path = []
        for column, height in enumerate(heights):
            left, right = FULL * x.at(edges[column]), FULL * x.at(edges[column + 1])
            bottom, top = FULL * (1 - y.at(base[column])), FULL * (1 - y.at(base[column] + height))
            pad = gap * (right - left) / 2
            base[column] += height
            if height > 0:
                path.append(f"M{left + pad:.1f} {bottom:.1f}V{top:.1f}H{right - pad:.1f}V{bottom:.1f}Z")
        shapes.append(f'<path class="fill {tone}" d="{"".join(path)}"/>')
    # One slow epoch may be left to stick out of the axis; it is cut at the top.
    return figure("".join(shapes), title=title, text=text, x=x, y=y, readout=readout, clip=True)


def bin_chart(
    layers: Sequence[tuple[str, Sequence[tuple[float, float, float]]]],
    *,
    title: str,
    text: str,
    x: Axis,
    y: Axis,
    readout: Readout | None = None,
) -> str:
    """Bins of (low, high, height): those of the first layer as columns, of the others as outlines."""
    shapes = []
    for index, (tone, bins) in enumerate(layers):
        path = []
        for low, high, height in bins:
            left, right, top = FULL * x.at(low), FULL * x.at(high), FULL * (1 - y.at(height))
            pad = 0.04 * (right - left)
            path.append(f"M{left + pad:.1f} 1000V{top:.1f}H{right - pad:.1f}V1000" + ("" if index else "Z"))
        shapes.append(f'<path class="{"line" if index else "fill"} {tone}" d="{"".join(path)}"/>')
    return figure("".join(shapes), title=title, text=text, x=x, y=y, readout=readout)


def figure(
    shapes: str,
    *,
    title: str,
    text: str,
    x: Axis,
    y: Axis,
    mark: tuple[float, str] | None = None,
    readout: Readout | None = None,
    clip: bool = False,
) -> str:
    """The frame of a chart: grid, tick labels, the mark, and what the pointer reads off."""
    ys = [(100 * (1 - y.at(value)), label) for value, label in y.ticks]
    xs = [(100 * x.at(value), label) for value, label in x.ticks]
    grid = "".join(f'<path class="grid" d="M0 {10 * top:.1f}H1000"/>' for top, _ in ys)
    flag = ""
    if mark and 0 <= x.at(mark[0]) <= 1:
        left = 100 * x.at(mark[0])
        grid += f'<path class="mark" d="M{10 * left:.1f} 0V1000"/>'
        side = " left" if left > 75 else " right" if left < 25 else ""
        flag = f'<span class="flag{side}" style="left:{left:.2f}%">{escape(mark[1])}</span>'
    gutter = max((len(label) for _, label in ys), default=1)
    y_ticks = "".join(f'<span style="top:{top:.2f}%">{escape(label)}</span>' for top, label in ys)
    x_ticks = "".join(f'<span style="left:{left:.2f}%">{escape(label)}</span>' for left, label in xs)
    kind = ' class="clip"' if clip else ""
    svg = (
        f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img"{kind}>'
        f"<title>{escape(title)}</title><desc>{escape(text)}</desc>{grid}{shapes}</svg>"
    )
    return (
        f'<div class="frame" style="--gutter:{gutter}ch"{_readout(readout, x)}>'
        f'<div class="unit">{escape(y.title)}</div>'
        f'<div class="ys" aria-hidden="true">{y_ticks}</div><div class="plot">{svg}{flag}</div>'
        f'<div class="xs" aria-hidden="true">{x_ticks}</div><div class="xt">{escape(x.title)}</div></div>'
    )


def sample(length: int, limit: int = 200) -> list[int]:
    """At most `limit` of the indices below `length`, evenly spread, first and last among them."""
    if length <= limit:
        return list(range(length))
    return sorted({round(i * (length - 1) / (limit - 1)) for i in range(limit)})


def stretches(length: int, limit: int) -> list[tuple[int, int]]:
    """The (start, end) of at most `limit` stretches of equal length, the last one perhaps shorter."""
    size = math.ceil(length / limit)
    return [(start, min(length, start + size)) for start in range(0, length, size)]


def _round_step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * (1 - 1e-9))


def _place(x: float, y: float, x_axis: Axis, y_axis: Axis) -> Point:
    return FULL * x_axis.at(x), FULL * (1 - y_axis.at(y))


def _finite_runs(points: Sequence[Point], x: Axis, y: Axis) -> list[list[Point]]:
    """The placed points, cut wherever one cannot be drawn."""
    runs: list[list[Point]] = [[]]
    for number, value in points:
        if math.isfinite(value) and (value > 0 or not y.log):
            runs[-1].append(_place(number, value, x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _polyline(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _area(points: Sequence[Point]) -> str:
    return f"{_polyline(points)}V{FULL:.0f}H{points[0][0]:.1f}Z"


def _dot(x: float, y: float) -> str:
    # A stroke of no length with round ends: a circle would be squeezed with the plot, this is not.
    return f"M{x:.1f} {y:.1f}h0"


def _readout(readout: Readout | None, x: Axis) -> str:
    if readout is None or not readout.x:
        return ""
    held = {
        "x": [round(100 * x.at(value), 2) for value in readout.x],
        "heads": list(readout.heads),
        "rows": [[name, tone, list(texts)] for name, tone, texts in readout.rows],
    }
    return f' data-readout="{escape(json.dumps(held, ensure_ascii=False, separators=(",", ":")))}"'
