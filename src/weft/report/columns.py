"""Stacked columns by epoch: seconds by phase, bytes by purpose."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from weft.report import words
from weft.report.markup import small
from weft.report.plots import Axis, Readout, column_chart, epoch_axis, linear_axis, stretches

NUM_COLUMNS = 120
Layer = tuple[str, str, Sequence[float]]
"""Name, tone, and one value per epoch."""


def epoch_columns(
    numbers: Sequence[int],
    layers: Sequence[Layer],
    *,
    title: str,
    text: str,
    unit: Callable[[float], tuple[float, str]] = words.time_unit,
    show: Callable[[float], str] = words.seconds,
) -> str:
    """Return one column per epoch, or the mean of several where there are many, cut into the layers.

    `text` describes the chart to those who do not see it; the median epoch is added to it.
    """
    spans = stretches(len(numbers), NUM_COLUMNS)
    held = [[statistics.fmean(values[a:b]) for a, b in spans] for _, _, values in layers]
    stacks = [sum(column) for column in zip(*held)]
    top, remark = _ceiling(stacks, show)
    scale, unit_name = unit(top)
    axis = linear_axis(0.0, top / scale, unit_name)
    y = Axis(0.0, axis.high * scale, tuple((v * scale, told) for v, told in axis.ticks), unit_name)
    edges = [numbers[a] - 0.5 for a, _ in spans] + [numbers[-1] + 0.5]
    x = Axis(edges[0], edges[-1], epoch_axis(numbers[0], numbers[-1]).ticks, "epoch")
    rows = [(name, tone, [show(v) for v in values]) for (name, tone, _), values in zip(layers, held)]
    if len(layers) > 1:
        rows.append(("together", "", [show(v) for v in stacks]))
    heads = [_stretch(numbers[a], numbers[b - 1]) for a, b in spans]
    chart = column_chart(
        [(tone, values) for (_, tone, _), values in zip(layers, held)],
        title=title,
        text=f"{text} the median epoch: {show(statistics.median(stacks))}.",
        x=x,
        y=y,
        edges=edges,
        readout=Readout([(left + right) / 2 for left, right in pairwise(edges)], heads, rows),
    )
    if len(spans) < len(numbers):
        remark = f"Each column is the mean of {spans[0][1]} epochs. {remark}"
    return chart + (small(remark) if remark else "")


def _stretch(first: int, last: int) -> str:
    return (
        f"epoch {words.count(first)}"
        if first == last
        else f"epochs {words.count(first)} – {words.count(last)}"
    )


def _ceiling(stacks: list[float], show: Callable[[float], str]) -> tuple[float, str]:
    """The top of the axis. A heavy first epoch (caches, transposes) must not flatten all the others."""
    highest = max(stacks) or 1e-6
    ordered = sorted(stacks)
    usual = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    if len(stacks) < 8 or usual <= 0 or highest <= 2.5 * usual:
        return highest, ""
    return 1.2 * usual, f"The tallest column leaves the chart: {show(highest)}."
