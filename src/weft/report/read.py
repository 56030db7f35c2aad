"""What a run folder says, read leniently: a report must be drawn for the run that crashed, too.

`run.json` holds the resolved recipe, versions, machine and summary; `events.jsonl` one object a line:

    {"time": 0.01, "event": "graph", "num_nodes": 2708, ...}
    {"time": 1.93, "event": "epoch", "epoch": 3, "loss": 1.2, "train": {"accuracy": 0.9},
     "val": {...}, "test": {...}, "seconds": {"forward": 0.01, "backward": 0.02, ...}, "memory_bytes": 123456}

Workers beside the first write `events-rank1.jsonl` …, which tell of their traffic alone.
A number that was not finite is written as null and read back as NaN. Whatever is missing or of another type
is left out here, and what was wrong with the files is said in `Run.notes`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from weft.errors import FormatError
from weft.reading.json_values import parse_json, read_json
from weft.report.traffic import Record, TrafficRecords, gathered, traffic_record
from weft.report.words import decimal, number, percent, plural

SPLITS = ("train", "val", "test")
PHASES = ("forward", "backward", "optimizer", "evaluate")
# The metric a run is judged by, where run.json does not say: the first of these that was measured.
# No shares of a whole, though some lie between 0 and 1.
_NUMBERS = ("loss", "rmse", "mae", "r2", "mrr", "negatives")


@dataclass(frozen=True)
class Epoch:
    """What one epoch event holds."""

    number: int
    time: float | None
    """Seconds since the run began."""
    loss: float | None
    lr: float | None
    scores: dict[str, dict[str, float]]
    """Split to metric to value."""
    seconds: dict[str, float]
    """Phase to seconds."""
    memory_bytes: float | None
    drift: dict[int, float] = field(default_factory=dict)
    """Layer to relative error of what the exchange brought, where it was measured."""
    batches: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of mini-batches: their `counts`, the `seconds` of their way, and what was read from a `store`."""
    buckets: dict[str, float] = field(default_factory=dict)
    """Of learned rows in partitions: swaps, bytes and the share of time that the disk was waited for."""
    visits: list[list[list[int]]] = field(default_factory=list)
    """The partitions of each visit, by round."""
    pipeline: dict[str, Any] = field(default_factory=dict)
    """Of stages of layers: what each worker did, and how long it stood idle."""
    asynchronous: dict[str, Any] = field(default_factory=dict)
    """Of intervals: how old what they read was, and when each was in which epoch."""


@dataclass(frozen=True)
class Run:
    """One run folder: `run.json`, the events, and what reading them noticed."""

    folder: Path
    meta: dict[str, Any]
    events: list[dict[str, Any]]
    """Every event that is no epoch and tells no traffic, in the order written."""
    epochs: list[Epoch]
    """By number; an epoch repeated after a resume counts as it was last written."""
    notes: list[str] = field(default_factory=list)
    told: list[Record] = field(default_factory=list)
    """What all workers told of their traffic."""

    def table(self, *names: str) -> dict[str, Any]:
        """The object at a path of names in run.json; an empty one where there is none."""
        table: Any = self.meta
        for name in names:
            table = table.get(name) if isinstance(table, dict) else None
        return dict(table) if isinstance(table, dict) else {}

    def all(self, event: str) -> Iterator[dict[str, Any]]:
        """The events of one kind."""
        return (record for record in self.events if record.get("event") == event)

    def last(self, event: str) -> dict[str, Any]:
        """The last event of one kind; an empty one when there is none."""
        return dict(next((record for record in reversed(self.events) if record.get("event") == event), {}))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What the run came to; empty for one that did not come to its end."""
        end = self.last("end").get("summary")
        return self.table("summary") or (dict(end) if isinstance(end, dict) else {})

    @cached_property
    def traffic(self) -> TrafficRecords | None:
        """What the workers sent each other; None for one process."""
        return gathered(self.told)

    @cached_property
    def workers(self) -> int:
        """The number of workers, 1 where nothing says more."""
        count = number(self.summary.get("workers")) or number(self.last("start").get("workers"))
        return int(count) if count and count < 2**31 else 1

    @cached_property
    def graph(self) -> dict[str, Any]:
        """What the graph event holds."""
        return self.last("graph")

    @cached_property
    def task(self) -> str:
        """What was learned, by name; of a run that does not say, nothing."""
        return str(self.meta.get("task") or self.last("start").get("task") or "")

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the task tells of its targets in this graph."""
        facts = self.last("start").get("facts")
        return dict(facts) if isinstance(facts, dict) else {}

    @cached_property
    def metrics(self) -> list[str]:
        """Names of the metrics measured in any epoch, the one the run is judged by first."""
        names = dict.fromkeys(
            name for epoch in self.epochs for scores in epoch.scores.values() for name in scores
        )
        names.pop("loss", None)
        chosen = str(self.summary.get("metric") or self.last("start").get("metric"))
        return list(dict.fromkeys(name for name in (chosen, *names) if name in names))

    @cached_property
    def metric(self) -> str:
        """The metric the run is judged by."""
        name = self.summary.get("metric") or self.last("start").get("metric") or ""
        return self.metrics[0] if self.metrics else str(name)

    def lower_is_better(self, metric: str) -> bool:
        """Whether a metric is an error rather than a score."""
        names = self.last("start").get("lower_is_better")
        return metric in (names if isinstance(names, list) else ("rmse", "mae"))

    def is_share(self, metric: str) -> bool:
        """Whether a metric is shown as per cent: a score that was always between 0 and 1."""
        return metric not in _NUMBERS and not self.lower_is_better(metric) and metric not in self._beyond

    @cached_property
    def _beyond(self) -> set[str]:
        """The metrics that were below 0 or above 1 in any epoch."""
        return {
            name
            for epoch in self.epochs
            for scores in epoch.scores.values()
            for name, value in scores.items()
            if math.isfinite(value) and not 0 <= value <= 1
        }

    def show(self, metric: str, value: float | None, digits: int = 1) -> str:
        """A value of a metric as people read it: 81.4 %, 0.412, 1,234; `digits` are those of a share."""
        return percent(value, digits) if self.is_share(metric) else decimal(value, digits + 2)

    @cached_property
    def negatives(self) -> float | None:
        """How many negatives a true pair was ranked among, in the mean."""
        return number(self.summary.get("negatives"))

    @cached_property
    def best(self) -> Epoch | None:
        """The best epoch on the validation targets (the summary's word, else the first of the best)."""
        scored = [epoch for epoch in self.epochs if math.isfinite(self._merit(epoch))]
        highest = max(scored, key=self._merit, default=None)
        named = number(self.summary.get("best_epoch"))
        best = next((epoch for epoch in scored if epoch.number == named), None)
        # Without `restore_best` the summary names the last epoch, whose weights were kept, not the best one.
        same = best and highest and self._merit(best) == self._merit(highest)
        return best if same else highest

    def _merit(self, epoch: Epoch) -> float:
        """What the best epoch is the highest in: the metric, or the loss below zero where that decides."""
        scores = epoch.scores.get("val", {})
        if self.table("recipe", "train").get("best_by") == "loss" and self.metric in scores:
            return -scores.get("loss", math.nan)
        value = scores.get(self.metric, math.nan)
        return -value if self.lower_is_better(self.metric) else value

    def score(self, split: str) -> float | None:
        """The judged metric on a split: of the summary, else the best epoch, else the last that has it."""
        metrics = self.summary.get("metrics")
        scores = metrics.get(split) if isinstance(metrics, dict) else None
        value = number(scores.get(self.metric)) if isinstance(scores, dict) else None
        value = number(self.summary.get(f"{split}_{self.metric}")) if value is None else value
        epochs = [*([self.best] if self.best else []), *reversed(self.epochs)]
        measured = (
            epoch.scores[split][self.metric] for epoch in epochs if self.metric in epoch.scores.get(split, {})
        )
        return value if value is not None else next(measured, None)

    @cached_property
    def phases(self) -> list[str]:
        """Names of the phases that were timed, the usual ones first."""
        names = dict.fromkeys(name for epoch in self.epochs for name in epoch.seconds)
        return [name for name in PHASES if name in names] + [name for name in names if name not in PHASES]

    @cached_property
    def epoch_seconds(self) -> float | None:
        """The median epoch: of the summary, else the sum of the training phases."""
        seconds = number(self.summary.get("epoch_seconds_median"))
        sums = [
            sum(s for name, s in e.seconds.items() if name != "evaluate") for e in self.epochs if e.seconds
        ]
        return seconds if seconds is not None else statistics.median(sums) if sums else None


def read_run(folder: Path | str) -> Run:
    """Read a run folder. FormatError where run.json is missing or no JSON object; all else becomes a note."""
    folder = Path(folder)
    meta = _read_meta(folder / "run.json")
    first = _read_events(folder / "events.jsonl")
    traffic, notes = first.traffic, first.notes
    for path in sorted(folder.glob("events-rank*.jsonl")):
        other = _read_events(path)
        traffic += other.traffic
        notes += other.notes
    return Run(folder, meta, first.rest, [first.epochs[key] for key in sorted(first.epochs)], notes, traffic)


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        return dict(read_json(path, {}))
    except FormatError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise FormatError(
            f"{path} does not exist; expected the folder of a run, as `weft train --out` writes it"
        ) from None


class _Events:
    """What a file of events holds. Of epochs and traffic there may be very much: they are kept small."""

    def __init__(self, notes: list[str]) -> None:
        self.rest: list[dict[str, Any]] = []
        self.traffic: list[Record] = []
        self.epochs: dict[int, Epoch] = {}
        self.notes = notes

    def take(self, line: bytes, path: Path) -> bool:
        """Keep what a line tells; return whether it is an event or empty."""
        try:
            record = parse_json(line, path) if line.strip() else {"event": "epoch"}
        except FormatError:
            return False
        if not isinstance(record, dict):
            return False
        match record.get("event"):
            case "epoch":
                if (epoch := _epoch(record)) is not None:
                    self.epochs[epoch.number] = epoch
            case "traffic":
                if (traffic := traffic_record(record)) is not None:
                    self.traffic.append(traffic)
            case _:
                self.rest.append(record)
        return True


def _read_events(path: Path) -> _Events:
    """Return what a file of events tells, line by line, with remarks on lines that tell nothing."""
    found, bad, cut = _Events([]), [], False
    try:
        with path.open("rb") as file:
            for index, line in enumerate(file, start=1):
                if not found.take(line, path):
                    bad.append(index)
                    cut = not line.endswith(b"\n")
    except OSError:
        return _Events([f"There is no readable {path.name} in the run folder, so there are no curves."])
    if cut:
        found.notes.append(
            f"The last line of {path.name} is cut off (the run stopped while writing it) and was left out."
        )
        bad.pop()
    if bad:
        found.notes.append(
            f"{plural(len(bad), 'line')} of {path.name} could not be read (the first: line {bad[0]})."
        )
    return found


def _epoch(record: Mapping[str, Any]) -> Epoch | None:
    """An epoch event as an Epoch; None for any other event."""
    index = number(record.get("epoch"))
    if record.get("event") != "epoch" or index is None or not abs(index) < 2**53:
        return None
    scores = {split: _numbers(record.get(split)) for split in SPLITS}
    return Epoch(
        number=int(index),
        time=number(record.get("time")),
        lr=number(record.get("lr")),
        loss=_measured(record["loss"]) if "loss" in record else None,
        scores={split: measured for split, measured in scores.items() if measured},
        seconds=_numbers(record.get("seconds")),
        memory_bytes=number(record.get("memory_bytes")),
        drift=_drift(record.get("drift")),
        batches=_batches(record.get("batches")),
        buckets=_numbers(record.get("buckets")),
        visits=_visits(record.get("buckets")),
        pipeline=_object(record.get("pipeline")),
        asynchronous=_object(record.get("asynchronous")),
    )


def _object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _visits(value: Any) -> list[list[list[int]]]:
    """Rounds of visits of partitions; nothing where they are told in another way."""
    rounds = value.get("visits") if isinstance(value, Mapping) else None
    if not isinstance(rounds, list) or not all(isinstance(visits, list) for visits in rounds):
        return []
    lists = [[each for each in visits if isinstance(each, list)] for visits in rounds]
    small = all(
        isinstance(one, int) and 0 <= one < 4096 for visits in lists for each in visits for one in each
    )
    return lists if small else []


def _batches(value: Any) -> dict[str, dict[str, float]]:
    counters = value if isinstance(value, Mapping) else {}
    numbers = {
        "counts": _numbers(counters),
        **{name: _numbers(counters.get(name)) for name in ("seconds", "store")},
    }
    return {name: {key: v for key, v in each.items() if math.isfinite(v)} for name, each in numbers.items()}


def _drift(value: Any) -> dict[int, float]:
    """Layer to error, from a list or from a table."""
    layers = dict(enumerate(value)) if isinstance(value, list) else value
    return {int(layer): error for layer, error in _numbers(layers).items() if layer.isdigit()}


def _numbers(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        return {}
    numbers = {str(key): _measured(item) for key, item in value.items()}
    return {key: item for key, item in numbers.items() if item is not None}


def _measured(value: Any) -> float | None:
    return math.nan if value is None else number(value)
