"""From counted work and a cluster to the seconds of an epoch: a step made of moves, and played."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.draw import Stream, fold, normal, uniform
from weft.plan.machine import Machine
from weft.plan.rehearse.course import WAIT
from weft.plan.wires import MESSAGE, Wires
from weft.simulate.counted import PHASES, CountedRun, Label, Volumes
from weft.simulate.discrete import Play
from weft.simulate.schedule import Shipment, StepWork, scheduled
from weft.simulate.sharing import Rates

_EXACT = 32  # workers up to which every event has a moment of its own
_MOMENTS = 150  # in a step of more


@dataclass(frozen=True)
class Unevenness:
    """How workers differ though their work does not."""

    share: float = 0.0
    """Of workers that are slow."""
    slowdown: float = 1.0
    """Times as long that a slow worker takes."""
    jitter: float = 0.0
    """Standard deviation of each worker's seconds, as a share of them."""
    seed: int = 0

    def factors(self, workers: int) -> Rates:
        """Return what each worker's seconds are multiplied by."""
        ids = np.arange(workers)
        slow = np.zeros(workers)
        count = math.ceil(self.share * workers - 1e-9)
        slow[np.argsort(uniform(fold(self.seed, Stream.SIMULATE, 3), ids), kind="stable")[:count]] = 1
        noise = normal(fold(self.seed, Stream.SIMULATE, 4), ids) if self.jitter else np.zeros(workers)
        return (1 + slow * (self.slowdown - 1)) * np.maximum(0.1, 1 + self.jitter * noise)


@dataclass(frozen=True)
class EpochTold:
    """One epoch of one configuration."""

    workers: int
    seconds: float
    computing: float
    """Seconds of work, the mean over workers."""
    waiting: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a worker waits, by purpose, the mean over workers."""
    bytes: float = 0.0
    busiest: float = 0.0
    """Share of the time that the busiest link carries as much as it can."""
    events: int = 0


def epoch(
    run: CountedRun, machine: Machine, wires: Wires, *, local: float = 0.0, uneven: Unevenness | None = None
) -> EpochTold:
    """Return an epoch of counted work on a cluster; `local` is the share of edges that stay within a part."""
    work = step_work(run, machine, wires, local=local, factors=(uneven or Unevenness()).factors(run.workers))
    schedule = scheduled(work)
    steps = 3 if run.workers > 1 else 1
    rough = float((work.forward + work.backward + work.between + work.sampling).max())
    rough += sum(float(each.size.sum()) for each in schedule.shipments) / run.workers / wires.bandwidth
    grain = 0.0 if run.workers <= _EXACT else rough / _MOMENTS
    played = Play(schedule, wires, steps=steps, grain=grain).run()
    each, done = run.steps, run.steps / steps
    seconds = played.step * each + machine.lag_among(machine.on_one(run.workers))
    links = np.divide(played.carried, wires.capacity() * max(played.ends[-1], 1e-12))
    return EpochTold(
        run.workers,
        seconds,
        float(played.computing.mean()) * done,
        {kind: float(spent.mean()) * done for kind, spent in sorted(played.waiting.items())},
        sum(held.total for held in run.traffic.values()),
        float(links.max()),
        played.events,
    )


def step_work(run: CountedRun, machine: Machine, wires: Wires, *, local: float, factors: Rates) -> StepWork:
    """Return one step: an epoch's work and traffic, divided by its steps."""
    spent, zero = _spent(run, machine, factors), np.zeros(run.workers)
    drawing = spent.pop(WAIT, zero)
    made = {label: _shipment(run, label, held, wires) for label, held in run.traffic.items()}
    layered = {label: each for label, each in made.items() if label[1] >= 0}
    rest = {label: each for label, each in made.items() if label[1] < 0}
    ups = sorted((label for label in layered if label[2] == "forward"), key=lambda label: label[1])
    downs = sorted((label for label in layered if label[2] != "forward"), key=lambda label: -label[1])
    hidden = {label[0] for label in layered} <= set(run.overlaps)
    return StepWork(
        spent.pop(PHASES[0], zero),
        spent.pop(PHASES[1], zero),
        sum(spent.values(), zero),
        drawing,
        first=[each for label, each in rest.items() if label[2] == "forward" and not _closes(label)],
        up=[layered[label] for label in ups],
        down=[layered[label] for label in downs],
        gradients=[each for label, each in rest.items() if label[2] != "forward"],
        last=[each for label, each in rest.items() if _closes(label)],
        local=local if hidden else 0.0,
        late=run.late,
        ahead=run.ahead,
    )


def _spent(run: CountedRun, machine: Machine, factors: Rates) -> dict[str, Rates]:
    """Return the seconds of a step that each worker takes for each phase, on the cores that it has."""
    spent: dict[str, Rates] = {}
    for phase in sorted({phase for work in run.work for phase in work}):
        each = [machine.seconds(work[phase], run.workers) if phase in work else 0.0 for work in run.work]
        spent[phase] = np.array(each) * factors / run.steps
    alone = sum(spent.values(), np.zeros(run.workers))
    turns = np.array(machine.taking_turns(alone.tolist()))
    longer = np.divide(turns, alone, out=np.ones(run.workers), where=alone > 0)
    return {phase: seconds * longer for phase, seconds in spent.items()}


def _closes(label: Label) -> bool:
    return label[0] == "control"


def _shipment(run: CountedRun, label: Label, held: Volumes, wires: Wires) -> Shipment:
    """Return what a step sends for a purpose; its messages are on their way one after the other."""
    workers, steps = run.workers, run.steps
    sums = held.reductions(workers) if workers > 2 else 0
    if sums:
        rounds = max(1, round(sums / steps * 2 * (workers - 1)))
        pieces = max(1, round(sums / steps))
        size, calling = held.size / steps, np.full(workers, pieces * wires.call)
        return Shipment(label[0], held.src, held.dst, size, calling, joint=True, rounds=rounds, sums=pieces)
    each = min(MESSAGE, wires.latency)
    count = np.bincount(held.src, weights=held.messages, minlength=workers) / steps
    calls = wires.calls(label[0], held.messages.max() / steps)
    preparing = each * np.maximum(0.0, count - 1) + calls * wires.call
    if run.turns:  # one sends while the others take: a tree, for each of them in turn
        deep = math.ceil(math.log2(workers))
        rows = np.bincount(held.src, weights=held.size, minlength=workers) / steps / max(1, workers - 1)
        turn = deep * (wires.latency + float(rows.mean()) / wires.bandwidth)
        preparing = np.full(workers, workers * turn)
        return Shipment(label[0], held.src, held.dst, np.full(len(held.src), 1e-9), preparing)
    return Shipment(label[0], held.src, held.dst, held.size / steps, preparing)


def told(epochs: Sequence[EpochTold]) -> list[dict[str, object]]:
    """Return epochs as plain values."""
    return [dict(vars(each)) for each in epochs]
