"""What the run cost: where an epoch's time went, and memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from weft.report import words
from weft.report.columns import epoch_columns
from weft.report.markup import Bar, Section, bars, legend, panel, panels, small, strip, table
from weft.report.plots import Axis, Line, Readout, epoch_axis, line_chart, linear_axis, sample
from weft.report.read import Run

PHASE_NAMES = {"optimizer": "optimiser", "evaluate": "evaluation"}


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
    shares = legend(
        [(tone, name, words.percent(t / whole, 0)) for tone, name, t in zip(tones, names, totals)]
    )
    chart = epoch_columns(
        [epoch.number for epoch in timed],
        list(zip(names, tones, held)),
        title="Time per epoch",
        text=f"Seconds of each epoch by phase ({', '.join(names)});",
    )
    largest = max(range(len(names)), key=totals.__getitem__)
    share = words.percent(totals[largest] / whole, 0)
    lead = f"{names[largest].capitalize()} takes the largest share, {share} of the measured time."
    body = panels(
        panel("Time per epoch", chart, wide=True, aside=shares),
        panel("By phase", strip(zip(tones, (t / whole for t in totals))) + _medians(names, held, whole)),
        _stages(run),
    )
    return Section("Time", body, lead=lead)


def _medians(names: Sequence[str], seconds: Sequence[Sequence[float]], whole: float) -> str:
    """Return the table of phases, of whose `seconds` there is a row each."""
    rows = []
    for name, values in zip(names, seconds):
        spent = [value for value in values if value > 0]
        median, longest = (statistics.median(spent), max(spent)) if spent else (0.0, 0.0)
        told = (words.seconds(value) for value in (median, longest, sum(values)))
        rows.append([name, *told, words.percent(sum(values) / whole)])
    return table(["phase", "median", "longest", "total", "share"], rows)


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
    who = "The process" if run.workers == 1 else "The largest worker"
    lead = f"{who} held at most {words.size(peak)}."
    return Section(
        "Memory",
        panels(panel("Resident memory", chart, wide=True, aside=legend(entries, lines=True)), _planned(run)),
        lead=lead,
    )


def _planned(run: Run) -> str:
    """What was decided for what each layer keeps for backward, where the run planned it."""
    told = run.last("memory_plan")
    if not told:
        return ""
    rows = [
        [
            f"layer {words.count(number)}",
            str(each.get("choice")),
            *(words.size(words.number(each.get(name))) for name in ("bytes", "again", "aside")),
            words.seconds(words.number(each.get("seconds"))),
        ]
        for number, each in enumerate(told.get("layers", []), start=1)
    ]
    head = ["", "decided", "keeps for backward", "of it made again", "put aside", "forward takes"]
    peak, memory, everything = (
        words.size(words.number(told.get(name))) for name in ("peak", "memory", "everything")
    )
    more = words.seconds(words.number(told.get("seconds")))
    remark = f"Planned: {peak} of {memory} given, {more} more a step; {everything} if all were kept."
    return panel("What layers keep", table(head, rows) + small(remark), wide=True)
