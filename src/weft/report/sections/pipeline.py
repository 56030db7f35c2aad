"""Stages of layers: which micro-batch was where when, what was in flight, and how long stages stood idle."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from weft.report import words
from weft.report.markup import Section, facts, legend, panel, panels, small, table
from weft.report.pictures import Bar as Lane
from weft.report.pictures import timeline
from weft.report.read import Epoch, Run
from weft.report.words import number

_TONES = {"forward": "t1", "backward": "t2", "update": "t3"}
_LANES = 16


def pipeline(run: Run) -> Section | None:
    """The stages of a run that had any."""
    told = [epoch for epoch in run.epochs if _workers(epoch)]
    if not told:
        return None
    body = panels(
        _picture(told),
        panel("By worker", _by_worker(told)),
        panel("An epoch", _epoch(told)),
        _planned(told[-1]),
    )
    return Section("Pipeline", body, lead=_lead(told))


def _lead(told: list[Epoch]) -> str:
    last = told[-1].pipeline
    stages = len({each.get("stage") for each in _workers(told[-1])})
    idle, formula = _median(told, "bubble"), number(last.get("bubble_expected")) or 0.0
    return (
        f"{words.plural(stages, 'stage')} on {words.plural(len(_workers(told[-1])), 'worker')} by "
        f"{last.get('schedule')}: workers stood idle {words.percent(idle)} of the time between the first job "
        f"of a round and its last; for equal stages (K − 1) / (M + K − 1) says {words.percent(formula)}."
    )


def _picture(told: list[Epoch]) -> str:
    """The jobs of each worker of an epoch that tells them: the second where there is one, else the first."""
    shown = [epoch for epoch in told if any(each.get("jobs") for each in _workers(epoch))]
    if not shown:
        return ""
    epoch = shown[min(1, len(shown) - 1)]
    workers = _workers(epoch)[:_LANES]
    lanes: list[Lane] = []
    for row, each in enumerate(workers):
        for job in each.get("jobs", []):
            if isinstance(job, list) and len(job) == 4 and job[0] in _TONES:
                lanes.append((row, _TONES[job[0]], float(job[2]), float(job[3]) - float(job[2])))
    length = max((start + seconds for _, _, start, seconds in lanes), default=0.0)
    if not length:
        return ""
    names = [f"stage {words.count(each['stage'])} · {words.count(each['replica'])}" for each in workers]
    chart = timeline(
        lanes,
        names=names if any(each.get("replica") for each in workers) else [name[:-4] for name in names],
        ends=[length],
        title="Stages over time",
        text=f"What each stage did in the first jobs of epoch {epoch.number}.",
    )
    keys = legend([(tone, name, "") for name, tone in _TONES.items()])
    remark = small("One bar a job, in the order of micro-batches; what is left empty is idle time.")
    return panel(f"Which stage ran when: epoch {epoch.number}", chart + remark, wide=True, aside=keys)


def _by_worker(told: list[Epoch]) -> str:
    rows = []
    for rank, each in enumerate(_workers(told[-1])):
        first, stop = each["layers"]
        layers = f"{first} – {stop - 1}" if stop - first > 1 else str(first)
        counts = [words.count(each["in_flight"]), words.count(each["versions"]), words.percent(each["share"])]
        rows.append([f"rank {rank}", words.count(each["stage"]), layers, *counts])
    head = ["", "stage", "layers", "most in flight", "most versions", "busy"]
    return table(head, rows) + small(
        "In flight: micro-batches between forward and backward at the same time."
    )


def _epoch(told: list[Epoch]) -> str:
    last = told[-1].pipeline
    return facts(
        [
            ("schedule", str(last.get("schedule"))),
            ("versions of weights", str(last.get("versions_kept"))),
            ("forward again in backward", "yes" if last.get("recompute") else "no"),
            ("micro-batches", words.count(_median(told, "micro_batches"))),
            ("times the pipeline ran empty", words.count(_median(told, "rounds"))),
            ("idle, measured", words.percent(_median(told, "bubble"))),
            ("idle, (K − 1) / (M + K − 1)", words.percent(_median(told, "bubble_expected"))),
        ]
    )


def _planned(epoch: Epoch) -> str:
    """What the stages were planned from, one row per layer."""
    held = epoch.pipeline.get("measured")
    if not isinstance(held, Mapping):
        return ""
    columns = [held.get(name, []) for name in ("seconds", "activations", "weights")]
    rows = [
        [f"layer {place}", words.seconds(seconds), words.size(rows), words.size(weights)]
        for place, (seconds, rows, weights) in enumerate(zip(*columns))
    ]
    head = ["", "forward and backward", "rows behind it", "weights"]
    remark = (
        f"Of one micro-batch, measured at the start; links of {words.size(held.get('bandwidth', 0.0))}/s."
    )
    return panel("What the stages were planned from", table(head, rows) + small(remark))


def _workers(epoch: Epoch) -> list[dict[str, Any]]:
    held = epoch.pipeline.get("workers")
    return [each for each in held if isinstance(each, dict)] if isinstance(held, list) else []


def _median(told: list[Epoch], name: str) -> float:
    return statistics.median(number(epoch.pipeline.get(name)) or 0.0 for epoch in told)
