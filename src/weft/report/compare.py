"""Several runs side by side: one page with a table, their curves in one picture, and what differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from weft.report import words
from weft.report.markup import Bar, Section, bars, code, legend, panel, panels, small, table
from weft.report.page import compose
from weft.report.plots import Axis, Line, epoch_axis, line_chart, linear_axis, log_axis
from weft.report.read import Run
from weft.report.sections.headline import exchange, title

_TONES = 6
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Entry:
    """One run of the page, with its name and its colour."""

    run: Run
    name: str
    tone: str
    dashed: bool

    @property
    def bytes_an_epoch(self) -> float | None:
        """Payload that an epoch of training sends, all workers together."""
        if self.run.traffic is not None:
            return self.run.traffic.training.bytes_sent
        return _over(self.run.summary.get("bytes_sent"), self.epochs)

    @property
    def waited_an_epoch(self) -> float | None:
        """Seconds that the mean worker waits for others in an epoch of training."""
        if self.run.traffic is not None:
            return self.run.traffic.training.exposed
        return _over(self.run.summary.get("exposed_comm_seconds"), self.epochs * self.run.workers)

    @property
    def memory(self) -> float | None:
        """Peak memory of the largest worker."""
        return words.number(self.run.summary.get("peak_memory_bytes"))

    @property
    def epochs(self) -> float:
        """The number of epochs done."""
        return words.number(self.run.summary.get("epochs")) or float(len(self.run.epochs))

    def points(self, value: Callable[[Any], float | None], at: Callable[[Any], float | None]) -> Points:
        """The points of a curve: a value against a position, of each epoch that has both."""
        points = [(at(epoch), value(epoch)) for epoch in self.run.epochs]
        return [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(x)]


def render_comparison(runs: Sequence[Run]) -> str:
    """Return the page as HTML that loads nothing."""
    entries = [
        Entry(run, name, f"t{index % _TONES + 1}", dashed=index >= _TONES)
        for index, (run, name) in enumerate(zip(runs, _names(runs)))
    ]
    sections = [_results(entries), _curves(entries), _costs(entries), _differences(entries), _again(entries)]
    tags = sorted({title(run) for run in runs})
    listed = "".join(f"<li>{escape(tag)}</li>" for tag in tags[:8])
    heading = f"{words.count(len(runs))} runs compared"
    version = str(runs[0].table("versions").get("weft", ""))
    return compose(
        [section for section in sections if section is not None],
        title=heading,
        folder="",
        headline=f'<h1>{escape(heading)}</h1><ul class="tags">{listed}</ul>',
        version=version,
    )


def _names(runs: Sequence[Run]) -> list[str]:
    """The names of the folders, with as much before them as tells them apart."""
    paths = [run.folder.resolve().parts for run in runs]
    length = 1
    while length < max(map(len, paths)) and len({path[-length:] for path in paths}) < len(set(paths)):
        length += 1
    return ["/".join(path[-length:]) for path in paths]


def _results(entries: Sequence[Entry]) -> Section:
    metrics = {entry.run.metric for entry in entries}
    metric = words.inline(metrics.pop()) if len(metrics) == 1 else "score"
    models = {_model(entry.run) for entry in entries}
    named = ["model"] if len(models) > 1 else []
    head = ["run", *named, "strategy", "exchange", "workers", f"test {metric}", "validation", "epoch"]
    head += ["sent", "for evaluation", "waited", "peak memory"]
    rows = []
    for entry in entries:
        run = entry.run
        strategy = run.summary.get("strategy") or run.table("recipe", "strategy").get("name") or "single"
        rows.append(
            [
                entry.name,
                *([_model(run)] if named else []),
                str(strategy),
                exchange(run) or words.NOTHING,
                words.count(run.workers),
                run.show(run.metric, run.score("test"), 2),
                run.show(run.metric, run.score("val"), 2),
                words.seconds(run.epoch_seconds),
                words.size(entry.bytes_an_epoch),
                words.size(run.traffic.evaluation.bytes_sent if run.traffic is not None else None),
                words.seconds(entry.waited_an_epoch),
                words.size(entry.memory),
            ]
        )
    results = table(head, rows, words=3 + len(named), tones=[entry.tone for entry in entries])
    remark = small(
        "Epoch: the median one, without evaluation. Sent: payload in an epoch of training, all workers "
        "together; for evaluation, the same apart. Waited: the mean worker in an epoch of training. Peak "
        "memory: the largest worker."
    )
    return Section("Results", panels(panel("All runs", results + remark, wide=True)), lead=_lead(entries))


def _model(run: Run) -> str:
    model = run.table("recipe", "model")
    return str(model.get("name") or model.get("class") or words.NOTHING)


def _lead(entries: Sequence[Entry]) -> str:
    said = []
    scored = [(entry.run.score("test"), entry.name) for entry in entries]
    known = [(score, name) for score, name in scored if score is not None and math.isfinite(score)]
    run = entries[0].run
    if known and len({entry.run.metric for entry in entries}) == 1:
        choose = min if run.lower_is_better(run.metric) else max
        best, name = choose(known, key=lambda pair: pair[0])
        said.append(f"Best on the test targets: {name} with {run.show(run.metric, best, 2)}.")
    timed = [(e.run.epoch_seconds, e.name) for e in entries if e.run.epoch_seconds]
    if timed:
        fastest, name = min((seconds or math.inf, name) for seconds, name in timed)
        said.append(f"Fastest epoch: {name} with {words.seconds(fastest)}.")
    return " ".join(said)


def _curves(entries: Sequence[Entry]) -> Section | None:
    metric = entries[0].run.metric

    def score(epoch: Any) -> float | None:
        value: float | None = epoch.scores.get("val", {}).get(metric)
        return value

    def epoch_number(epoch: Any) -> float:
        return float(epoch.number)

    share = all(entry.run.is_share(metric) for entry in entries)
    name = f"Validation {words.inline(metric)}"
    by_epoch = [entry.points(score, epoch_number) for entry in entries]
    by_time = [entry.points(score, lambda epoch: epoch.time) for entry in entries]
    losses = [entry.points(lambda epoch: epoch.loss, epoch_number) for entry in entries]
    body = panels(
        _chart(f"{name} by epoch", entries, by_epoch, share=share),
        _chart(f"{name} by time", entries, by_time, share=share, unit=words.time_unit),
        _chart("Training loss by epoch", entries, losses),
        _chart(
            f"{name} by bytes sent",
            entries,
            [_by_bytes(entry, score) for entry in entries],
            share=share,
            unit=words.byte_unit,
        ),
    )
    entries_shown = legend(((e.tone, e.name, "") for e in entries), lines=True)
    lead = "Where curves coincide, the later run of the list lies on top."
    return Section("Curves", entries_shown + body, lead=lead) if body else None


def _by_bytes(entry: Entry, score: Callable[[Any], float | None]) -> Points:
    """The curve over what was sent until then, for a run that told of it."""
    if entry.run.traffic is None:
        return []
    sent, so_far = {}, 0.0
    for epoch, flows in entry.run.traffic.by_epoch().items():
        so_far += sum(flow.bytes_sent for flow in flows.values())
        sent[epoch] = so_far
    return entry.points(score, lambda epoch: sent.get(epoch.number))


def _chart(
    name: str,
    entries: Sequence[Entry],
    curves: Sequence[Points],
    *,
    share: bool = False,
    unit: Callable[[float], tuple[float, str]] | None = None,
) -> str:
    lines = [
        Line(entry.name, entry.tone, points, dashed=entry.dashed)
        for entry, points in zip(entries, curves)
        if points
    ]
    values = [y for line in lines for _, y in line.points if math.isfinite(y)]
    if not values:
        return ""
    ends = [x for line in lines for x, _ in line.points]
    x = epoch_axis(int(min(ends)), int(max(ends))) if unit is None else _scaled(0.0, max(ends), unit)
    if share:
        percent = linear_axis(100 * min(values), min(100.0, 100 * max(values)), "%")
        y = Axis(
            percent.low / 100, percent.high / 100, tuple((v / 100, tick) for v, tick in percent.ticks), "%"
        )
    else:
        low, high = min(values), max(values)
        y = log_axis(low, high) if low > 0 and high / low > 30 else linear_axis(min(low, 0.0), high)
    show = words.percent if share else words.decimal
    last = ", ".join(f"{line.name} {show(line.points[-1][1])}" for line in lines)
    return panel(name, line_chart(lines, title=name, text=f"{name}; at the end: {last}.", x=x, y=y))


def _scaled(low: float, high: float, unit: Callable[[float], tuple[float, str]]) -> Axis:
    scale, name = unit(high)
    ticks = [(v * scale, tick) for v, tick in linear_axis(low, high / scale).ticks if v * scale <= high]
    return Axis(low, max(high, scale * 1e-9), tuple(ticks), name)


def _costs(entries: Sequence[Entry]) -> Section | None:
    drawn = panels(
        _bars("Median epoch", entries, [entry.run.epoch_seconds for entry in entries], words.seconds),
        _bars(
            "Sent in an epoch of training", entries, [entry.bytes_an_epoch for entry in entries], words.size
        ),
        _bars(
            "Waited in an epoch of training",
            entries,
            [entry.waited_an_epoch for entry in entries],
            words.seconds,
        ),
        _bars("Peak memory, largest worker", entries, [entry.memory for entry in entries], words.size),
    )
    return Section("Cost", drawn) if drawn else None


def _bars(
    name: str, entries: Sequence[Entry], values: Sequence[float | None], show: Callable[[float | None], str]
) -> str:
    most = max((value for value in values if value is not None and math.isfinite(value)), default=0.0)
    if not most:
        return ""
    lines = [Bar(e.name, (v or 0.0) / most, show(v), e.tone) for e, v in zip(entries, values)]
    return panel(name, bars(lines))


def _differences(entries: Sequence[Entry]) -> Section:
    """The settings that are not the same in every run."""
    differing = []
    for entry in entries:
        kept = entry.run.table("recipe")
        kept.pop("graph", None)
        differing.append(dict(_flat(kept)))
    keys = list(dict.fromkeys(key for settings in differing for key in settings))
    unlike = [key for key in keys if len({settings.get(key, words.NOTHING) for settings in differing}) > 1]
    if not unlike:
        return Section("What differs", small("All runs have the same settings."))
    rows = [[key, *(settings.get(key, words.NOTHING) for settings in differing)] for key in unlike]
    told = table(["setting", *(entry.name for entry in entries)], rows, words=len(entries) + 1)
    return Section(
        "What differs", panels(panel("Settings that are not the same everywhere", told, wide=True))
    )


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", words.toml(value)


def _again(entries: Sequence[Entry]) -> Section:
    folders = " ".join(str(entry.run.folder) for entry in entries)
    return Section("Again", panels(panel("Draw this page again", code(f"weft report {folders}"), wide=True)))


def _over(total: Any, count: float) -> float | None:
    whole = words.number(total)
    return whole / count if whole is not None and count else whole
