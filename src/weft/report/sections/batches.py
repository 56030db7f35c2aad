"""Mini-batches: how they came to the model, what training waited for, and what a cache of features saved."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from weft.report import words
from weft.report.columns import epoch_columns
from weft.report.markup import Bar, Section, bars, facts, legend, panel, panels, small
from weft.report.plots import Axis, Line, Readout, epoch_axis, line_chart, sample
from weft.report.read import Epoch, Run

# In the order of the way; `prepare` is done by threads beside the others.
STAGES = (("compute", "t1"), ("transfer", "t3"), ("wait", "t2"))


def batches(run: Run) -> Section | None:
    """The way of batches through an epoch, and the reads of the features' store where there is one."""
    epochs = [epoch for epoch in run.epochs if epoch.batches.get("seconds")]
    if not epochs:
        return None
    spent = {name: [_second(epoch, name) for epoch in epochs] for name, _ in STAGES}
    whole = sum(sum(values) for values in spent.values()) or 1.0
    waited = sum(spent["wait"]) / whole
    hits = [(epoch.number, epoch.batches["store"]) for epoch in epochs if epoch.batches.get("store")]
    lead = f"Training waited for batches during {words.percent(waited)} of its time."
    if any(counts.get("hits") for _, counts in hits):
        rows = sum(counts.get("rows", 0.0) for _, counts in hits)
        rate = sum(counts.get("hits", 0.0) for _, counts in hits) / max(rows, 1.0)
        lead += f" {words.percent(rate)} of the rows of features were found near."
    chart = epoch_columns(
        [epoch.number for epoch in epochs],
        [(name, tone, spent[name]) for name, tone in STAGES],
        title="Batches by epoch",
        text="Seconds of each epoch that training computed, moved batches and waited for them;",
    )
    shares = [(tone, name, words.percent(sum(spent[name]) / whole, 0)) for name, tone in STAGES]
    body = panels(
        panel("What training did", chart, wide=True, aside=legend(shares)),
        panel("The way of a batch", _way(epochs)),
        panel("A batch", facts(_sizes(epochs))),
        _store(hits),
    )
    return Section("Batches", body, lead=lead)


def _way(epochs: Sequence[Epoch]) -> str:
    """Median seconds a step of each stage."""
    stages = [("prepare", "t4"), *STAGES[::-1]]
    medians = {
        name: statistics.median(_second(epoch, name) / max(_count(epoch, "steps"), 1.0) for epoch in epochs)
        for name, _ in stages
    }
    longest = max(medians.values()) or 1.0
    rows = [Bar(name, medians[name] / longest, words.seconds(medians[name]), tone) for name, tone in stages]
    return bars(rows) + small("A step of the median epoch; threads prepare batches beside all else.")


def _sizes(epochs: Sequence[Epoch]) -> list[tuple[str, str]]:
    steps = statistics.median(_count(epoch, "steps") for epoch in epochs)

    def each(name: str) -> float:
        return statistics.median(_count(epoch, name) / max(_count(epoch, "steps"), 1.0) for epoch in epochs)

    return [
        ("steps an epoch", words.count(steps)),
        ("rows of features", words.count(each("nodes"))),
        ("edges", words.count(each("edges"))),
    ]


def _store(hits: Sequence[tuple[int, dict[str, float]]]) -> str:
    """The share of rows found near, by epoch, and the bytes that were read from where rows lie."""
    if not hits:
        return ""
    rows, size = (
        statistics.median(counts.get(name, 0.0) for _, counts in hits) for name in ("rows", "bytes")
    )
    reads = facts([("rows read an epoch", words.count(rows)), ("bytes read an epoch", words.size(size))])
    if not any(counts.get("hits") for _, counts in hits):
        return panel("Features", reads)
    points = [(float(number), counts.get("hit_rate", 0.0)) for number, counts in hits]
    picked = [points[i] for i in sample(len(points))]
    y = Axis(0.0, 1.0, tuple((k / 4, f"{25 * k} %") for k in range(5)), "found near")
    readout = Readout(
        [x for x, _ in picked],
        [f"epoch {words.count(x)}" for x, _ in picked],
        [("found near", "t5", [words.percent(rate) for _, rate in picked])],
    )
    chart = line_chart(
        [Line("found near", "t5", points)],
        title="Rows of features found near",
        text=f"The share of rows found near by epoch, {words.percent(points[-1][1])} in the last one.",
        x=epoch_axis(hits[0][0], hits[-1][0]),
        y=y,
        fill=True,
        readout=readout,
    )
    last = legend([("t5", "last epoch", words.percent(points[-1][1]))], lines=True)
    return panel("Features found near", chart + reads, wide=True, aside=last)


def _second(epoch: Epoch, name: str) -> float:
    value = epoch.batches["seconds"].get(name, 0.0)
    return value if value > 0 else 0.0


def _count(epoch: Epoch, name: str) -> float:
    return epoch.batches["counts"].get(name, 0.0)
