"""Intervals that do not wait for each other: who was in which epoch when, and how old what was read is."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft.report import words
from weft.report.markup import Bar, Section, bars, legend, panel, panels, small, table
from weft.report.pictures import Bar as Lane
from weft.report.pictures import timeline
from weft.report.read import Epoch, Run
from weft.report.words import number

_LANES = 24
_TONES = ("t1", "t2", "t3")


def asynchrony(run: Run) -> Section | None:
    """How intervals went through the epochs, of a run that had any."""
    told = [epoch for epoch in run.epochs if _workers(epoch)]
    if not told:
        return None
    body = panels(
        _picture(told),
        panel("Age of what was read", _ages(told)),
        panel("By worker", _by_worker(told)),
        _tasks(told),
    )
    return Section("Asynchrony", body, lead=_lead(told))


def _lead(told: list[Epoch]) -> str:
    last = told[-1].asynchronous
    reads = _reads(told)
    old = sum(count for age, count in reads.items() if age > 0)
    intervals, apart = (number(last.get(name)) or 0 for name in ("intervals", "staleness"))
    share = words.percent(old / max(1, sum(reads.values())))
    return (
        f"{words.plural(intervals, 'interval')} a worker, {last.get('form')}, at most "
        f"{words.plural(apart, 'epoch')} apart: {share} of what was read of others was of an earlier epoch."
    )


def _reads(told: list[Epoch]) -> Counter[int]:
    """Return the reads of the whole run by age in epochs."""
    found: Counter[int] = Counter()
    for epoch in told:
        for each in _workers(epoch):
            ages = each.get("ages")
            for age, count in ages.items() if isinstance(ages, dict) else ():
                if str(age).removeprefix("-").isdecimal() and number(count) is not None:
                    found[int(age)] += int(count)
    return found


def _ages(told: list[Epoch]) -> str:
    reads = _reads(told)
    most = max(reads.values(), default=1)
    rows: list[Bar] = []
    for age, count in sorted(reads.items()):
        name = (
            "of this epoch"
            if not age
            else words.plural(abs(age), "epoch") + (" old" if age > 0 else " ahead")
        )
        rows.append(
            Bar(name=name, share=count / most, tone="t1" if age <= 0 else "t2", text=words.count(count))
        )
    return bars(rows) + small("Reads of one interval from another, or from other workers, of the whole run.")


def _by_worker(told: list[Epoch]) -> str:
    rows = []
    for rank in range(len(_workers(told[-1]))):
        waited = sum(_of(epoch, rank, "waited") for epoch in told)
        most = [max(_of(epoch, rank, name) for epoch in told) for name in ("ahead", "versions")]
        rows.append([f"rank {rank}", *(words.count(value) for value in most), words.seconds(waited)])
    head = ["", "most epochs begun ahead", "most versions of weights", "intervals waited"]
    return table(head, rows) + small("Seconds of all intervals added up; others compute meanwhile.")


def _tasks(told: list[Epoch]) -> str:
    """What tensor workers did, where there were any."""
    rows = []
    for rank, each in enumerate(_workers(told[-1])):
        if isinstance(each.get("tasks"), dict):
            held = each["tasks"]
            names = ("workers", "tasks", "joined", "pulls", "relaunched", "late", "lost")
            rows.append(
                [
                    f"rank {rank}",
                    *(words.count(number(held.get(name)) or 0) for name in names),
                    words.size(number(held.get("bytes")) or 0),
                ]
            )
    if not rows:
        return ""
    head = ["", "workers", "tasks", "with the loss", "weights pulled", "relaunched", "late answers"]
    head += ["workers lost", "sent and answered"]
    tuned = [
        str(each["tasks"].get("tuned") or "")
        for each in _workers(told[-1])
        if isinstance(each.get("tasks"), dict)
    ]
    said = "A task is one round trip; a product that goes with its loss saves one, and its rows go once."
    return panel(
        "Tensor workers", table(head, rows) + small(" ".join([said, *dict.fromkeys(filter(None, tuned))]))
    )


def _picture(told: list[Epoch]) -> str:
    lanes: list[Lane] = []
    names: list[str] = []
    for rank in range(len(_workers(told[-1]))):
        spans = [span for epoch in told for span in _spans(epoch, rank)]
        for interval in sorted({int(span[0]) for span in spans}):
            for one, epoch, begin, end in spans:
                if one == interval and len(names) < _LANES:
                    lanes.append((len(names), _TONES[int(epoch) % len(_TONES)], begin, max(0.0, end - begin)))
            names.append(f"rank {rank} · {interval}")
    if not lanes:
        return ""
    first = min(start for _, _, start, _ in lanes)
    lanes = [(row, tone, start - first, seconds) for row, tone, start, seconds in lanes]
    chart = timeline(
        lanes,
        names=names[:_LANES],
        ends=[max(start + seconds for _, _, start, seconds in lanes)],
        title="Intervals over time",
        text="When each interval began and ended its first epochs.",
    )
    keys = legend([(tone, f"epoch {turn + 1}, {turn + 4} …", "") for turn, tone in enumerate(_TONES)])
    return panel("Which interval was in which epoch when", chart, wide=True, aside=keys)


def _spans(epoch: Epoch, rank: int) -> list[list[float]]:
    workers = _workers(epoch)
    held = workers[rank].get("spans") if rank < len(workers) else None
    if not isinstance(held, list):
        return []
    return [
        [float(value) for value in span]
        for span in held
        if isinstance(span, list) and len(span) == 4 and all(number(value) is not None for value in span)
    ]


def _of(epoch: Epoch, rank: int, name: str) -> float:
    workers = _workers(epoch)
    return number(workers[rank].get(name)) or 0.0 if rank < len(workers) else 0.0


def _workers(epoch: Epoch) -> list[dict[str, Any]]:
    held = epoch.asynchronous.get("workers")
    return [each for each in held if isinstance(each, dict)] if isinstance(held, list) else []
