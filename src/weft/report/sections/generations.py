"""Workers that came and went: who trained when, and what each part of the graph cost whom."""

from __future__ import annotations

import statistics
from typing import Any

from weft.report import words
from weft.report.markup import panel, small, table
from weft.report.read import Run


def generations(run: Run) -> str:
    """Who trained when."""
    rows = [
        [
            str(event.get("generation", "")),
            str(event.get("epoch", "")),
            ", ".join(map(str, event.get("workers", ()))),
            ", ".join(map(str, event.get("parts", ()))),
            str(event.get("why", "")),
            words.seconds(float(event.get("seconds", 0.0))),
        ]
        for event in run.all("generation")
    ]
    head = ["generation", "after epoch", "workers", "worker of each part", "why", "until it trained"]
    return panel("Who trained when", table(head, rows), wide=True) if rows else ""


def part_costs(run: Run) -> str:
    """What an epoch of each part costs, and of each worker with the parts that it held last."""
    costs = _costs(run)
    holders = _holders(run)
    if not costs or not set(costs) <= set(holders):
        return ""
    whole = sum(costs.values()) or 1.0
    by_part = [
        [f"part {part}", f"worker {holders[part]}", words.seconds(cost), words.percent(cost / whole)]
        for part, cost in sorted(costs.items())
    ]
    workers = sorted({holders[part] for part in costs})
    sums = {
        worker: sum(cost for part, cost in costs.items() if holders[part] == worker) for worker in workers
    }
    mean = statistics.fmean(sums.values()) or 1.0
    by_worker = [
        [
            f"worker {worker}",
            ", ".join(str(part) for part in sorted(costs) if holders[part] == worker),
            words.seconds(cost),
            f"{cost / mean:.2f}",
        ]
        for worker, cost in sums.items()
    ]
    remark = small(
        "Seconds an epoch in which the thread of a part ran, waiting left out; the median of epochs since "
        "workers last changed. A worker far above 1 is the one that others wait for."
    )
    return panel(
        "What each part costs",
        table(["", "held by", "an epoch", "of all"], by_part)
        + table(["", "parts", "an epoch", "of the mean worker"], by_worker)
        + remark,
    )


def moved_parts(run: Run) -> str:
    """Which parts went away from a slow worker, when, why, and what that gained."""
    rows = []
    changes = list(run.all("generation"))
    for place, event in enumerate(changes):
        moved = event.get("moved")
        if not isinstance(moved, dict) or not place:
            continue
        before = _epoch_seconds(run, changes[place - 1], event)
        after = _epoch_seconds(run, event, changes[place + 1] if place + 1 < len(changes) else {})
        gained = None if not before or after is None else 1.0 - after / before
        took, expected = (words.number(moved.get(name)) for name in ("seconds", "expected"))
        rows.append(
            [
                str(event.get("epoch", "")),
                _moves_told(moved),
                f"worker {moved.get('slow')} is slow",
                f"{words.seconds(took)} → {words.seconds(expected)}",
                f"{words.seconds(before)} → {words.seconds(after)}",
                words.percent(gained),
            ]
        )
    head = ["after epoch", "what moved", "why", "slowest worker, as expected", "an epoch, measured", "gained"]
    remark = small(
        "Measured are medians of the epochs between one change and the next; the slowest worker's seconds "
        "are those in which it computed and others waited."
    )
    return panel("Parts that moved", table(head, rows) + remark, wide=True) if rows else ""


def _moves_told(moved: dict[str, Any]) -> str:
    told = [move for move in moved.get("moves", ()) if isinstance(move, dict)]
    return ", ".join(
        f"part {move.get('part')}: worker {move.get('source')} → {move.get('target')}" for move in told
    )


def _epoch_seconds(run: Run, begins: dict[str, Any], ends: dict[str, Any]) -> float | None:
    """The median of the epochs from one change of workers to the next."""
    first, last = words.number(begins.get("epoch")) or 0.0, words.number(ends.get("epoch"))
    took = [
        sum(epoch.seconds.values())
        for epoch in run.epochs
        if first < epoch.number and (last is None or epoch.number <= last)
    ]
    return statistics.median(took) if took else None


def _holders(run: Run) -> dict[int, Any]:
    """The worker of each part in the last generation."""
    told = run.last("generation").get("parts")
    return dict(enumerate(told)) if isinstance(told, list) else {}


def _costs(run: Run) -> dict[int, float]:
    """The seconds of an epoch by part, as the parts told them since workers last changed."""
    since = words.number(run.last("generation").get("epoch")) or 0.0
    held: dict[int, dict[int, float]] = {}
    for record in run.traffic.records if run.traffic is not None else ():
        if record.cost is not None and record.epoch > since:
            held.setdefault(record.rank, {})[record.epoch] = record.cost
    return {part: statistics.median(costs.values()) for part, costs in held.items()}
