"""What the run cost: where an epoch's time went, and memory."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

from weft.report import words
from weft.report.markup import Bar, Section, bars, legend, panel, panels, small, strip, table
from weft.report.plots import (
    Axis,
    Line,
    Readout,
    column_chart,
    epoch_axis,
    line_chart,
    linear_axis,
    sample,
    stretches,
)
from weft.report.read import Run

PHASE_NAMES = {"optimizer": "optimiser", "evaluate": "evaluation"}
NUM_COLUMNS = 120


def timing(run: Run) -> Section | None:
    """Where an epoch's time goes: phases stacked, with medians and shares."""
    if not run.phases:
        return Section("Time", note="the events hold no phase times") if run.epochs else None
    timed = [epoch for epoch in run.epochs if epoch.seconds]
    names = [PHASE_NAMES.get(phase, phase) for phase in run.phases]
    held = [[_usable(epoch.seconds.get(phase)) for epoch in timed] for phase in run.phases]
    totals = [sum(values) for values in held]
    whole = sum(totals) or 1.0
    tones = [f"t{index % 6 + 1}" for index in range(len(names))]
    rows = []
    for name, values, total in zip(names, held, totals):
        spent = [value for value in values if value > 0]
        median, longest = (statistics.median(spent), max(spent)) if spent else (0.0, 0.0)
        rows.append(
            [
                name,
                words.seconds(median),
                words.seconds(longest),
                words.seconds(total),
                words.percent(total / whole),
            ]
        )
    shares = legend(
        [(tone, name, words.percent(t / whole, 0)) for tone, name, t in zip(tones, names, totals)]
    )
    chart, remark = _time_chart([epoch.number for epoch in timed], names, tones, held)
    largest = max(range(len(names)), key=totals.__getitem__)
    share = words.percent(totals[largest] / whole, 0)
    lead = f"{names[largest].capitalize()} takes the largest share, {share} of the measured time."
    medians = table(["phase", "median", "longest", "total", "share"], rows)
    stages = _stages(run)
    body = panels(
        panel("Time per epoch", chart + remark, wide=True, aside=shares),
        panel("By phase", strip(zip(tones, (t / whole for t in totals))) + medians),
        stages,
    )
    return Section("Time", body, lead=lead)


def _stages(run: Run) -> str:
    """What the run did outside of its epochs: the spans, added up by name."""
    spent: dict[str, float] = {}
    for event in run.all("span"):
        seconds = _usable(words.number(event.get("seconds")))
        if seconds and event.get("name") != "epoch":
            name = str(event.get("name"))
            spent[name] = spent.get(name, 0.0) + seconds
    longest = max(spent.values(), default=1.0)
    rows = [
        Bar(words.label(name), value / longest, words.seconds(value), "t6") for name, value in spent.items()
    ]
    return panel("Stages of the run", bars(rows)) if rows else ""


def _usable(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0


def _time_chart(
    numbers: list[int], names: list[str], tones: list[str], held: list[list[float]]
) -> tuple[str, str]:
    spans = stretches(len(numbers), NUM_COLUMNS)
    layers = [[statistics.fmean(values[a:b]) for a, b in spans] for values in held]
    stacks = [sum(column) for column in zip(*layers)]
    top, remark = _ceiling(stacks)
    unit, unit_name = words.time_unit(top)
    axis = linear_axis(0.0, top / unit, unit_name)
    y = Axis(0.0, axis.high * unit, tuple((v * unit, text) for v, text in axis.ticks), unit_name)
    edges = [numbers[a] - 0.5 for a, _ in spans] + [numbers[-1] + 0.5]
    inner = epoch_axis(numbers[0], numbers[-1])
    x = Axis(edges[0], edges[-1], inner.ticks, "epoch")
    heads = [_stretch(numbers[a], numbers[b - 1]) for a, b in spans]
    rows = [
        (name, tone, [words.seconds(v) for v in layer]) for name, tone, layer in zip(names, tones, layers)
    ]
    rows.append(("together", "", [words.seconds(v) for v in stacks]))
    middles = [(left + right) / 2 for left, right in pairwise(edges)]
    median = words.seconds(statistics.median(stacks))
    text = f"Seconds of each epoch by phase ({', '.join(names)}); the median epoch takes {median}."
    chart = column_chart(
        list(zip(tones, layers)),
        title="Time per epoch",
        text=text,
        x=x,
        y=y,
        edges=edges,
        readout=Readout(middles, heads, rows),
    )
    if len(spans) < len(numbers):
        remark = f"Each column is the mean of {spans[0][1]} epochs. {remark}"
    return chart, small(remark) if remark else ""


def _stretch(first: int, last: int) -> str:
    return (
        f"epoch {words.count(first)}"
        if first == last
        else f"epochs {words.count(first)} – {words.count(last)}"
    )


def _ceiling(stacks: list[float]) -> tuple[float, str]:
    """The top of the time axis. A slow first epoch (caches, transposes) must not flatten all the others."""
    highest = max(stacks) or 1e-6
    ordered = sorted(stacks)
    usual = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    if len(stacks) < 8 or usual <= 0 or highest <= 2.5 * usual:
        return highest, ""
    return 1.2 * usual, f"The tallest column leaves the chart: {words.seconds(highest)}."


def memory(run: Run) -> Section | None:
    """Resident memory by epoch."""
    points = [
        (e.number, e.memory_bytes) for e in run.epochs if e.memory_bytes is not None and e.memory_bytes >= 0
    ]
    points = [(number, held) for number, held in points if math.isfinite(held)]
    if not points:
        return Section("Memory", note="the events hold no memory_bytes") if run.epochs else None
    peak = max(words.number(run.summary.get("peak_memory_bytes")) or 0.0, max(held for _, held in points))
    unit, name = words.byte_unit(max(held for _, held in points))
    axis = linear_axis(0.0, max(held for _, held in points) / unit, name, steps=4)
    y = Axis(0.0, axis.high * unit, tuple((v * unit, text) for v, text in axis.ticks), name)
    x = epoch_axis(points[0][0], points[-1][0])
    picked = [points[i] for i in sample(len(points))]
    heads = [f"epoch {words.count(number)}" for number, _ in picked]
    readout = Readout(
        [n for n, _ in picked], heads, [("resident", "t4", [words.size(held) for _, held in picked])]
    )
    first, last = words.size(points[0][1]), words.size(points[-1][1])
    text = f"Resident memory by epoch, from {first} to {last}; peak {words.size(peak)}."
    line = Line("resident", "t4", [(float(number), held) for number, held in points])
    chart = line_chart([line], title="Resident memory", text=text, x=x, y=y, fill=True, readout=readout)
    entries = [("t4", "last epoch", words.size(points[-1][1]))]
    lead = f"The process held at most {words.size(peak)}."
    return Section(
        "Memory",
        panels(panel("Resident memory", chart, wide=True, aside=legend(entries, lines=True))),
        lead=lead,
    )
