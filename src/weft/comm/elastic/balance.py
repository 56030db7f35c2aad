"""Which parts go to another worker while a run trains, because one worker holds the others up.

What a part costs is measured, as ROC does it; who holds it changes no number of a run, only how long an epoch
takes. A decision is a function of what was measured and of the decisions before, and is kept with both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SLOWER = 1.2
"""How many times as long as the mean of the others a worker computes that is slow."""
GAIN = 0.1
"""The share of an epoch that moving must be expected to save."""
IN_A_ROW = 2
"""Windows in which the same worker must have been slow."""


@dataclass(frozen=True)
class Window:
    """What an epoch took, the mean of several."""

    first: int
    last: int
    """The epochs, counted from 1."""
    busy: dict[int, float]
    """Seconds in which a worker computed, by its number."""
    parts: dict[int, float]
    """Seconds in which the thread of a part ran."""


@dataclass(frozen=True)
class Move:
    """A part that goes from one worker to another."""

    part: int
    source: int
    target: int


@dataclass(frozen=True)
class Decision:
    """Parts that go to other workers, and why."""

    slow: int
    """The worker that held the others up."""
    moves: list[Move]
    seconds: float
    """What the slowest worker computed in an epoch."""
    expected: float
    """What the slowest one is expected to compute after."""

    @property
    def told(self) -> str:
        """Say it in a line."""
        parts = ", ".join(f"part {move.part} to worker {move.target}" for move in self.moves)
        return (
            f"worker {self.slow} is slow: {parts}; {self.expected:.3g} s of computing an epoch expected "
            f"instead of {self.seconds:.3g} s"
        )


def decide(
    windows: Sequence[Window], holders: Mapping[int, int], past: Sequence[Decision] = ()
) -> Decision | None:
    """Return which parts are to move, None where all stay; `holders` names the worker of each part.

    A part costs its worker the share of its time that the part's thread ran. On another worker it takes as
    much longer or shorter as the threads there take beside the clock.
    """
    latest = windows[-IN_A_ROW:]
    slow = {_slow(window) for window in latest}
    if len(latest) < IN_A_ROW or len(slow) > 1 or None in slow:
        return None
    (who,) = slow
    assert who is not None, "it was looked at above"
    window = latest[-1]
    held = dict(holders)
    rates = _rates(window, held)
    if not rates:
        return None
    before = max(window.busy.values())
    while (better := _best(window, held, rates)) is not None:
        part, target = better
        held[part] = target
    expected = max(_loads(window, held, rates).values())
    moves = [Move(part, holders[part], held[part]) for part in sorted(held) if held[part] != holders[part]]
    if not moves or 1.0 - expected / before < _needed(moves, past):
        return None
    return Decision(who, moves, before, expected)


def _slow(window: Window) -> int | None:
    """Return the worker that computes much longer than the others do."""
    if len(window.busy) < 2:
        return None
    who = max(sorted(window.busy), key=lambda worker: window.busy[worker])
    others = [busy for worker, busy in window.busy.items() if worker != who]
    return who if window.busy[who] >= SLOWER * sum(others) / len(others) else None


def _rates(window: Window, holders: Mapping[int, int]) -> dict[int, float]:
    """Return the seconds that pass on each worker while a thread of its parts runs one."""
    ran = dict.fromkeys(window.busy, 0.0)
    for part, worker in holders.items():
        ran[worker] += window.parts[part]
    return {worker: window.busy[worker] / ran[worker] for worker in ran} if all(ran.values()) else {}


def _loads(window: Window, holders: Mapping[int, int], rates: Mapping[int, float]) -> dict[int, float]:
    """Return what each worker computes in an epoch with these parts."""
    loads = dict.fromkeys(window.busy, 0.0)
    for part, worker in holders.items():
        loads[worker] += window.parts[part] * rates[worker]
    return loads


def _best(window: Window, holders: Mapping[int, int], rates: Mapping[int, float]) -> tuple[int, int] | None:
    """Return the part of the slowest worker to move, and where to; None where that makes nothing shorter."""
    loads = _loads(window, holders, rates)
    source = max(sorted(loads), key=lambda worker: loads[worker])
    own = [part for part in sorted(holders) if holders[part] == source]
    found, least = None, sorted(loads.values(), reverse=True)
    for part in own if len(own) > 1 else ():  # every worker keeps one
        for target in sorted(set(loads) - {source}):
            after = sorted(_loads(window, {**holders, part: target}, rates).values(), reverse=True)
            if after < least:
                found, least = (part, target), after
    return found


def _needed(moves: Sequence[Move], past: Sequence[Decision]) -> float:
    """Return the share of an epoch to be saved: twice as much for each time that parts went the other way."""
    went = [{(move.source, move.target) for move in decision.moves} for decision in past]
    returns = max(sum((move.target, move.source) in each for each in went) for move in moves)
    return float(GAIN * 2**returns)
