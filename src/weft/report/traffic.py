"""What the workers of a run told of their traffic, added up: by purpose, pair of ranks, epoch and rank.

Every rank writes an event an epoch: rank 0 into `events.jsonl`, rank r into `events-rank<r>.jsonl`. Figures
"an epoch" leave the first one out where there are more: it also brings what is sent once, at the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from weft.report.words import number

# Kinds that the ledger knows, in the order and the words in which they are shown.
PURPOSES = {
    ("halo", "forward"): "halo rows",
    ("halo", "backward"): "halo gradients",
    ("gather", "forward"): "gathered rows",
    ("gather", "backward"): "gathered gradients",
    ("reduce", "forward"): "partial sums",
    ("reduce", "backward"): "partial gradients",
    ("broadcast", "forward"): "merged rows",
    ("broadcast", "backward"): "merged gradients",
    ("stage", "forward"): "rows of a stage",
    ("stage", "backward"): "gradients of a stage",
    ("matrix", "forward"): "blocks of the matrix",
    ("matrix", "backward"): "blocks of the matrix, backward",
    ("turn", "forward"): "rows turned to columns",
    ("turn", "backward"): "gradients turned to columns",
    ("features", "forward"): "features",
    ("rows", "forward"): "rows by id",
    ("rows", "backward"): "gradients by id",
    ("push", "forward"): "first blocks",
    ("pull", "forward"): "products of slices",
    ("pull", "backward"): "gradients of products",
    ("weights", "forward"): "weights of slices, gathered",
    ("stage weights", "forward"): "weights of stages, gathered",
    ("closure", "forward"): "copies of neighbourhoods",
    ("learned rows", "forward"): "learned rows",
    ("learned rows", "backward"): "gradients of learned rows",
    ("gradient", "backward"): "weight gradients",
    ("norm", "forward"): "batch norm",
    ("evaluate", "forward"): "evaluation",
    ("drift", "forward"): "drift measured",
    ("decision", "forward"): "decisions to skip",
    ("decision", "backward"): "decisions to skip, backward",
    ("control", "forward"): "agreement",
}
_MEASURING = ("evaluate", "drift")
Span = tuple[str, float, float]


class Key(NamedTuple):
    """What a transfer was for; `slot` is the number of the exchange within a step, −1 where it has none."""

    kind: str
    slot: int
    direction: str

    @property
    def purpose(self) -> str:
        """The purpose in words, without the number of the exchange."""
        back = "" if self.direction == "forward" else f", {self.direction}"
        return PURPOSES.get((self.kind, self.direction), f"{self.kind}{back}")

    @property
    def name(self) -> str:
        """The purpose in words, with the number of the exchange within a step."""
        if self.slot < 0:
            return self.purpose
        rows = " rows" if self.purpose == "evaluation" else ""
        return f"{self.purpose}{rows} {self.slot + 1}"

    @property
    def order(self) -> tuple[int, str, int]:
        """Where it stands in a table."""
        known = list(PURPOSES)
        at = (self.kind, self.direction)
        return (known.index(at) if at in known else len(known), self.kind + self.direction, self.slot)


@dataclass(frozen=True, slots=True)
class Flow:
    """What a transfer came to."""

    bytes_sent: float = 0.0
    messages: float = 0.0
    exposed: float = 0.0
    hidden: float = 0.0

    def __add__(self, other: Flow) -> Flow:
        return Flow(
            self.bytes_sent + other.bytes_sent,
            self.messages + other.messages,
            self.exposed + other.exposed,
            self.hidden + other.hidden,
        )

    def over(self, epochs: float, ranks: float = 1.0) -> Flow:
        """The mean of an epoch; seconds are those of the mean rank."""
        each = max(1.0, epochs * ranks)
        return Flow(
            self.bytes_sent / max(1.0, epochs),
            self.messages / max(1.0, epochs),
            self.exposed / each,
            self.hidden / each,
        )


@dataclass(frozen=True, slots=True)
class Record:
    """What one rank told of one epoch."""

    epoch: int
    rank: int
    flows: dict[Key, Flow]
    peers: dict[int, float]
    """Rank to bytes sent there."""
    staleness: dict[int, float]
    """Age in steps to rows used at that age."""
    skipped: float
    made: float
    seconds: dict[str, float]
    memory: float | None
    phases: list[Span]
    waits: list[Span]
    cost: float | None = None
    """Seconds in which the rank computed, where ranks are parts of workers that come and go."""

    @property
    def flow(self) -> Flow:
        """Everything together."""
        return sum(self.flows.values(), Flow())


@dataclass(frozen=True)
class TrafficRecords:
    """The records of all ranks of a run."""

    records: list[Record]

    @cached_property
    def ranks(self) -> list[int]:
        """The ranks that told something, and those that they sent to."""
        return sorted({r.rank for r in self.records} | {peer for r in self.records for peer in r.peers})

    @cached_property
    def epochs(self) -> list[int]:
        """The epochs that were told of."""
        return sorted({record.epoch for record in self.records})

    @cached_property
    def usual(self) -> list[Record]:
        """The records without those of the first epoch, where there are others."""
        later = [record for record in self.records if record.epoch != self.epochs[0]]
        return later or self.records

    @cached_property
    def num_usual(self) -> int:
        """The number of epochs that `usual` covers."""
        return len({record.epoch for record in self.usual})

    @cached_property
    def flows(self) -> dict[Key, Flow]:
        """What an epoch sends, all ranks together, by purpose; seconds are those of the mean rank."""
        summed = _summed(self.usual)
        ranks = len({record.rank for record in self.usual})
        return {
            key: summed[key].over(self.num_usual, ranks)
            for key in sorted(summed, key=lambda key: key.order)
            if summed[key] != Flow()
        }

    @cached_property
    def total(self) -> Flow:
        """What an epoch sends, all ranks and purposes together."""
        return sum(self.flows.values(), Flow())

    @cached_property
    def evaluation(self) -> Flow:
        """The part of it that evaluation and the measuring of drift send, exact whatever the exchange."""
        return sum((flow for key, flow in self.flows.items() if key.kind in _MEASURING), Flow())

    @cached_property
    def training(self) -> Flow:
        """The part of it that training sends."""
        return sum((flow for key, flow in self.flows.items() if key.kind not in _MEASURING), Flow())

    @cached_property
    def once(self) -> dict[str, float]:
        """Bytes of what only the first epoch sent, by purpose."""
        first = _summed([record for record in self.records if record.epoch == self.epochs[0]])
        totals: Counter[str] = Counter()
        for key, flow in first.items():
            if key not in self.flows and flow.bytes_sent:
                totals[key.purpose] += flow.bytes_sent  # type: ignore[assignment]
        return dict(totals)

    @cached_property
    def links(self) -> list[list[float]]:
        """Bytes an epoch from each rank (row) to each rank (column)."""
        column = {rank: index for index, rank in enumerate(self.ranks)}
        matrix = [[0.0] * len(self.ranks) for _ in self.ranks]
        for record in self.usual:
            for peer, num_bytes in record.peers.items():
                matrix[column[record.rank]][column[peer]] += num_bytes / self.num_usual
        return matrix

    @cached_property
    def staleness(self) -> dict[int, float]:
        """Rows used by age, all ranks and epochs together."""
        rows_of: dict[int, float] = {}
        for record in self.records:
            for age, rows in record.staleness.items():
                rows_of[age] = rows_of.get(age, 0.0) + rows
        return dict(sorted(rows_of.items()))

    @cached_property
    def skipped(self) -> float | None:
        """The share of the exchanges that could be skipped and were; None where none could be."""
        skipped = sum(record.skipped for record in self.records)
        asked = skipped + sum(record.made for record in self.records)
        return skipped / asked if asked else None

    def of_rank(self, rank: int) -> Flow:
        """What a rank sends in an epoch, and its own seconds."""
        return sum((r.flow for r in self.usual if r.rank == rank), Flow()).over(self.num_usual)

    def memory(self, rank: int) -> float | None:
        """The peak memory of a rank."""
        peaks = [r.memory for r in self.records if r.rank == rank and r.memory is not None]
        return max(peaks, default=None)

    def by_epoch(self) -> dict[int, dict[str, Flow]]:
        """What every epoch sent, by purpose without the number of the exchange, all ranks together."""
        epochs: dict[int, dict[str, Flow]] = {epoch: {} for epoch in self.epochs}
        for record in self.records:
            flows = epochs[record.epoch]
            for key, flow in record.flows.items():
                flows[key.purpose] = flows.get(key.purpose, Flow()) + flow
        return epochs

    def window(self, length: int = 3) -> list[int]:
        """Epochs in a row, at most `length`, that all ranks told in detail; of several the median one."""
        detailed = Counter(record.epoch for record in self.records if record.phases)
        whole = [epoch for epoch in self.epochs if detailed[epoch] == max(detailed.values(), default=0)]
        whole = [epoch for epoch in whole if detailed[epoch]]
        runs = [
            [
                whole[at],
                *(e for step, e in enumerate(whole[at + 1 : at + length], 1) if e == whole[at] + step),
            ]
            for at in range(len(whole))
        ]
        # The first epoch warms up caches: it is typical only where there is nothing else.
        runs = [run for run in runs if run[0] != self.epochs[0]] or runs
        longest = max(map(len, runs), default=0)
        timed = sorted((self.length(run), run) for run in runs if len(run) == longest)
        return timed[len(timed) // 2][1] if timed else []

    def length(self, epochs: Iterable[int]) -> float:
        """The seconds that epochs told in detail took together."""
        return sum(self.duration(epoch) for epoch in epochs)

    def duration(self, epoch: int) -> float:
        """The seconds of an epoch told in detail, to the end of the last rank."""
        ends = [
            start + seconds
            for record in self.records
            if record.epoch == epoch
            for _, start, seconds in (*record.phases, *record.waits)
        ]
        return max(ends, default=0.0)


def read_traffic(events: Iterable[Mapping[str, Any]]) -> TrafficRecords | None:
    """Return the traffic that events tell; None where there is none. Of doubled records the last counts."""
    return gathered(filter(None, map(traffic_record, events)))


def gathered(traffic: Iterable[Record]) -> TrafficRecords | None:
    """Return the records of a run in order; None where there are none. Of doubled ones the last counts."""
    records = {(record.epoch, record.rank): record for record in traffic}
    return TrafficRecords([records[key] for key in sorted(records)]) if records else None


def traffic_record(event: Mapping[str, Any]) -> Record | None:
    """Return what an event tells of traffic, which takes a small part of its memory; None of any other."""
    epoch, rank = _whole(event.get("epoch")), _whole(event.get("rank"))
    if event.get("event") != "traffic" or epoch is None or rank is None:
        return None
    flows: dict[Key, Flow] = {}
    peers: dict[int, float] = {}
    for row in _rows(event.get("volumes")):
        sent, messages = _positive(row.get("bytes_sent")), _positive(row.get("messages_sent"))
        flows[_key(row)] = flows.get(_key(row), Flow()) + Flow(sent, messages)
        peer = _whole(row.get("peer"))
        if peer is not None and sent:
            peers[peer] = peers.get(peer, 0.0) + sent
    for row in _rows(event.get("seconds")):
        waited = Flow(exposed=_positive(row.get("exposed")), hidden=_positive(row.get("hidden")))
        flows[_key(row)] = flows.get(_key(row), Flow()) + waited
    detail = event.get("timeline")
    timeline = detail if isinstance(detail, Mapping) else {}
    return Record(
        epoch=epoch,
        rank=rank,
        flows=flows,
        peers=peers,
        staleness={int(age): _positive(rows) for age, rows in _table(event.get("staleness")) if _is_age(age)},
        skipped=_positive(event.get("skipped")),
        made=_positive(event.get("made")),
        seconds={str(name): _positive(value) for name, value in _table(event.get("seconds_of_phases"))},
        memory=number(event.get("peak_memory_bytes")),
        phases=_spans(timeline.get("phases")),
        waits=_spans(timeline.get("waits")),
        cost=number(event.get("computed_seconds")),
    )


def _key(row: Mapping[str, Any]) -> Key:
    slot = _whole(row.get("slot", row.get("layer")))  # runs of earlier versions say "layer"
    kind, direction = str(row.get("kind", "other")), str(row.get("direction", "forward"))
    return _one_key(kind, -1 if slot is None else slot, direction)


@lru_cache(maxsize=1024)
def _one_key(kind: str, slot: int, direction: str) -> Key:
    return Key(kind, slot, direction)  # one for all epochs of a long run


def _summed(records: Iterable[Record]) -> dict[Key, Flow]:
    totals: dict[Key, Flow] = {}
    for record in records:
        for key, flow in record.flows.items():
            totals[key] = totals.get(key, Flow()) + flow
    return totals


def _spans(value: Any) -> list[Span]:
    rows = value if isinstance(value, list) else []
    return [
        (str(row[0]), _positive(row[1]), _positive(row[2]))
        for row in rows
        if isinstance(row, list) and len(row) == 3
    ]


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _table(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, Mapping) else ()


def _is_age(value: Any) -> bool:
    return str(value).isascii() and str(value).isdigit()


def _whole(value: Any) -> int | None:
    count = number(value)
    return int(count) if count is not None and abs(count) < 2**53 else None


def _positive(value: Any) -> float:
    amount = number(value)
    return amount if amount is not None and 0 < amount < float("inf") else 0.0
