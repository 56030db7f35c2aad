"""How well the run learned: the curves, and the scores of the returned weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from weft.report import words
from weft.report.markup import Section, fold, legend, panel, panels, table
from weft.report.plots import Axis, Line, Readout, epoch_axis, line_chart, linear_axis, log_axis, sample
from weft.report.read import SPLITS, Run

TONES = {"train": "t3", "val": "t2", "test": "t1"}
NAMES = {"train": "train", "val": "validation", "test": "test"}
MAX_METRICS = 5


def learning(run: Run) -> Section | None:
    """Loss and metric curves, the best epoch marked."""
    if not run.epochs:
        return Section("Learning", note="no epoch was finished, so there are no curves")
    charts = [_loss(run), *(_metric(run, name) for name in run.metrics[:MAX_METRICS]), _rate(run)]
    body = panels(*charts, _scores(run)) + fold("Curves as a table", _curve_table(run))
    return Section("Learning", body, lead=_lead(run), note="" if run.metrics else "no metric was evaluated")


def _lead(run: Run) -> str:
    said = []
    if run.best:
        score = run.show(run.metric, run.best.scores["val"][run.metric])
        lowest = ", the lower the better" if run.lower_is_better(run.metric) else ""
        said.append(
            f"Best epoch: {words.count(run.best.number)}, with {score} validation {words.inline(run.metric)}"
            f"{lowest}."
        )
    lost = [epoch.number for epoch in run.epochs if epoch.loss is not None and not math.isfinite(epoch.loss)]
    if lost:
        epochs = words.plural(len(lost), "epoch")
        said.append(f"The loss was not a finite number in {epochs}, first in epoch {words.count(lost[0])}.")
    return " ".join(said)


def _scores(run: Run) -> str:
    """Every metric of the weights that the run returned."""
    held = run.table("summary", "metrics")
    splits = [split for split in SPLITS if isinstance(held.get(split), Mapping)]
    names = list(dict.fromkeys(name for split in splits for name in held[split]))
    rows = []
    for name in names:
        values = [words.number(held[split].get(name)) for split in splits]
        rows.append([words.label(name), *(run.show(name, value) for value in values)])
    listing = table(["", *(NAMES[split] for split in splits)], rows)
    return panel("Scores of the returned weights", listing) if rows else ""


def _rate(run: Run) -> str:
    """The learning rate, where it changed."""
    points = [(float(e.number), e.lr) for e in run.epochs if e.lr is not None and math.isfinite(e.lr)]
    values = [value for _, value in points]
    if not points or min(values) == max(values):
        return ""
    y = linear_axis(min(0.0, *values), max(values))
    x = epoch_axis(run.epochs[0].number, run.epochs[-1].number)
    picked = [points[i] for i in sample(len(points))]
    heads = [f"epoch {words.count(number)}" for number, _ in picked]
    readout = Readout(
        [n for n, _ in picked], heads, [("learning rate", "t6", [words.decimal(v) for _, v in picked])]
    )
    first, last = words.decimal(values[0]), words.decimal(values[-1])
    text = f"Learning rate by epoch, from {first} to {last}."
    chart = line_chart(
        [Line("rate", "t6", points)], title="Learning rate", text=text, x=x, y=y, readout=readout
    )
    return panel("Learning rate", chart, aside=legend([("t6", "last", last)], lines=True))


def _loss(run: Run) -> str:
    lines = [Line("train", TONES["train"], [(e.number, e.loss) for e in run.epochs if e.loss is not None])]
    for split in ("val", "test"):
        held = [(e.number, e.scores[split]["loss"]) for e in run.epochs if "loss" in e.scores.get(split, {})]
        lines.append(Line(split, TONES[split], held))
    lines = [line for line in lines if line.points]
    values = [value for line in lines for _, value in line.points if math.isfinite(value)]
    if not values:
        return ""
    low, high = min(values), max(values)
    y = log_axis(low, high) if low > 0 and high / low > 100 else linear_axis(min(low, 0.0), high)
    return _curves(run, "Loss", lines, y, words.decimal)


def _metric(run: Run, metric: str) -> str:
    lines = []
    for split in SPLITS:
        held = [(e.number, e.scores[split][metric]) for e in run.epochs if metric in e.scores.get(split, {})]
        if held:
            lines.append(Line(split, TONES[split], held))
    values = [value for line in lines for _, value in line.points if math.isfinite(value)]
    if not values:
        return ""
    title = words.label(metric) + (" (lower is better)" if run.lower_is_better(metric) else "")
    return _curves(run, title, lines, score_axis(run, metric, values), partial(run.show, metric))


def score_axis(run: Run, metric: str, values: Sequence[float]) -> Axis:
    """An axis for values of a metric: in per cent where that is how it is shown."""
    low, high = min(values), max(values)
    if not run.is_share(metric):
        return log_axis(low, high) if low > 0 and high / low > 100 else linear_axis(low, high)
    scaled = linear_axis(100 * low, min(100.0, 100 * high), "%")
    return Axis(scaled.low / 100, scaled.high / 100, tuple((v / 100, text) for v, text in scaled.ticks), "%")


def _curves(run: Run, title: str, lines: list[Line], y: Axis, show: Callable[[float | None], str]) -> str:
    x = epoch_axis(run.epochs[0].number, run.epochs[-1].number)
    picked = [run.epochs[i].number for i in sample(len(run.epochs))]
    rows = []
    for line in lines:
        at = dict(line.points)
        rows.append((NAMES[line.name], line.tone, [show(at[n]) if n in at else "" for n in picked]))
    readout = Readout(picked, [f"epoch {words.count(n)}" for n in picked], rows)
    best = run.best
    entries = []
    for line in lines:
        last = line.points[-1][1]
        value = dict(line.points).get(best.number, last) if best else last
        entries.append((line.tone, NAMES[line.name], show(value)))
    when = f"at the best epoch, {words.count(best.number)}" if best else "in the last epoch"
    text = f"{title} by epoch; {when}: " + ", ".join(f"{name} {value}" for _, name, value in entries) + "."
    mark = (float(best.number), "best epoch") if best and len(run.epochs) > 1 else None
    chart = line_chart(lines, title=title, text=text, x=x, y=y, mark=mark, readout=readout)
    return panel(title, chart, aside=legend(entries, lines=True))


def _curve_table(run: Run) -> str:
    columns = [(split, metric) for metric in run.metrics for split in SPLITS]
    columns = [(s, m) for s, m in columns if any(m in e.scores.get(s, {}) for e in run.epochs)]
    rows = []
    chosen = {run.epochs[i].number for i in sample(len(run.epochs), 24)} | (
        {run.best.number} if run.best else set()
    )
    for epoch in run.epochs:
        if epoch.number in chosen:
            star = " (best)" if epoch is run.best and len(run.epochs) > 1 else ""
            scores = [run.show(m, epoch.scores.get(s, {}).get(m)) for s, m in columns]
            rows.append([words.count(epoch.number) + star, words.decimal(epoch.loss), *scores])
    head = ["epoch", "loss", *(f"{NAMES[s]} {words.label(m)}" for s, m in columns)]
    caption = "" if len(rows) == len(run.epochs) else f"{len(rows)} of {words.count(len(run.epochs))} epochs"
    return table(head, rows, caption=caption)
