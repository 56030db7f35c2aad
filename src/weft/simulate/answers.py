"""What a simulation answers: how far each strategy scales, what links buy, what failures cost."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from weft.simulate.scaling_law import ScalingLaw

GAIN = 1.1
"""What twice the workers must gain for a strategy to be said to scale on."""


@dataclass(frozen=True)
class ScalePoint:
    """One configuration on one number of workers."""

    strategy: str
    exchange: str | None
    exact: bool
    workers: int
    epoch_seconds: float
    low: float
    """Seconds with the lower bound of the halo's law; those of the value where it was counted."""
    high: float
    computing: float
    waiting: dict[str, float]
    bytes: float
    busiest_link: float
    """Share of the time that the busiest link carries all it can."""
    counted: bool
    """Whether traffic was counted on a real partition, or comes from the law."""
    dollars: float | None = None

    @property
    def name(self) -> str:
        """The configuration, without its workers."""
        return self.strategy + (f", {self.exchange}" if self.exchange else "")


@dataclass(frozen=True)
class FailureCost:
    """What failures do to a run."""

    name: str
    workers: int
    failures_an_hour: float
    checkpoint_every: int
    hours: float
    hours_without: float
    lost_hours: float
    failures: float


@dataclass(frozen=True)
class ElasticCost:
    """What workers that come and go do to a run."""

    name: str
    workers: int
    leave_an_hour: float
    hours: float
    hours_without: float
    changes: float
    dollars: float | None
    dollars_without: float | None


@dataclass(frozen=True)
class SimulatedAnswers:
    """Everything that was simulated."""

    graph: dict[str, Any]
    cluster: dict[str, Any]
    strong: list[ScalePoint]
    """The graph at hand on more and more workers."""
    weak: list[ScalePoint] = field(default_factory=list)
    """A graph that grows with the workers: as many nodes a worker as the whole has on the fewest."""
    links: dict[str, list[ScalePoint]] = field(default_factory=dict)
    """The strong scaling again, by the bandwidth of links."""
    failures: list[FailureCost] = field(default_factory=list)
    elastic: list[ElasticCost] = field(default_factory=list)
    laws: list[ScalingLaw] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        upto = sorted({point.workers for point in self.strong})
        return {
            "graph": self.graph,
            "cluster": self.cluster,
            "strong": [asdict(point) for point in self.strong],
            "weak": [asdict(point) for point in self.weak],
            "links": {speed: [asdict(point) for point in held] for speed, held in self.links.items()},
            "failures": [asdict(each) for each in self.failures],
            "elastic": [asdict(each) for each in self.elastic],
            "laws": [law.to_dict(upto) for law in self.laws],
            "stops": {name: stops(line) for name, line in lines(self.strong).items()},
            "refused": self.refused,
        }


def lines(points: Sequence[ScalePoint]) -> dict[str, list[ScalePoint]]:
    """Return the points of each configuration, by rising workers."""
    found: dict[str, list[ScalePoint]] = {}
    for point in sorted(points, key=lambda each: each.workers):
        found.setdefault(point.name, []).append(point)
    return found


def stops(line: Sequence[ScalePoint]) -> int | None:
    """Return the workers beyond which twice as many gain less than a tenth; None: it was not reached."""
    for before, after in pairwise(line):
        doublings = (after.workers / before.workers - 1) or 1
        if before.epoch_seconds / after.epoch_seconds < 1 + (GAIN - 1) * min(1.0, doublings):
            return before.workers
    return None


def said(answers: SimulatedAnswers) -> Iterator[str]:
    """Give the answers as sentences."""
    held = lines(answers.strong)
    for name, line in held.items():
        end = stops(line)
        best = min(line, key=lambda each: each.epoch_seconds)
        where = "scales as far as was asked" if end is None else f"stops scaling at {end:,} workers"
        first = line[0]
        yield (
            f"{name} {where}: {_time(first.epoch_seconds)} an epoch on {first.workers:,}, at best "
            f"{_time(best.epoch_seconds)} on {best.workers:,}"
        )
    yield from _bought(held)
    yield from _by_links(answers)
    for cost in answers.failures:
        more = cost.hours / cost.hours_without - 1 if cost.hours_without else 0.0
        yield (
            f"{cost.failures_an_hour:g} failures an hour: {cost.name} on {cost.workers:,} takes {more:.1%} "
            f"more ({cost.hours:.2f} h, {cost.lost_hours:.2f} h of work lost), a checkpoint every "
            f"{cost.checkpoint_every} epochs"
        )
    for each in answers.elastic:
        more = each.hours / each.hours_without - 1 if each.hours_without else 0.0
        yield (
            f"workers that leave {each.leave_an_hour:g} times an hour each: {each.name} on {each.workers:,} "
            f"takes {more:.1%} more ({each.hours:.2f} h, {each.changes:.0f} changes)"
        )


def _bought(held: dict[str, list[ScalePoint]]) -> Iterator[str]:
    """Say what each approximation gains over the exact way of its strategy, where that stops scaling."""
    for name, exact in held.items():
        if not exact[0].exact or exact[-1].workers == 1:
            continue
        for other, line in held.items():
            if line[0].exact or line[0].strategy != exact[0].strategy:
                continue
            end = stops(exact) or exact[-1].workers
            pairs = {point.workers: point for point in line}
            mine = next(point for point in exact if point.workers == end)
            if end in pairs:
                times = mine.epoch_seconds / pairs[end].epoch_seconds
                yield f"{other} on {end:,} workers: an epoch {times:.2f} times as fast as {name}"


def _by_links(answers: SimulatedAnswers) -> Iterator[str]:
    speeds = list(answers.links)
    for slow, fast in pairwise(speeds):
        few, many = lines(answers.links[slow]), lines(answers.links[fast])
        for name in few:
            pairs = {point.workers: point for point in many.get(name, [])}
            gains = [
                (point.epoch_seconds / pairs[point.workers].epoch_seconds, point.workers)
                for point in few[name]
                if point.workers > 1 and point.workers in pairs
            ]
            if gains:
                most, where = max(gains)
                yield f"{fast} against {slow}: {name} gains up to {most:.2f} times, on {where:,} workers"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.2f} ms"


def table(points: Sequence[ScalePoint]) -> Iterator[list[str]]:
    """Give the rows of a table, its head first."""
    yield ["configuration", "workers", "epoch", "between", "computing", "waiting", "busiest link", "traffic"]
    for line in lines(points).values():
        for each in line:
            between = "" if each.counted else f"{_time(each.low)} … {_time(each.high)}"
            yield [
                each.name,
                f"{each.workers:,}",
                _time(each.epoch_seconds),
                between,
                _time(each.computing),
                _time(sum(each.waiting.values())),
                f"{each.busiest_link:.0%}",
                "counted" if each.counted else "by its law",
            ]
