"""An epoch played by the clock: each rank works, begins calls, and waits until all who make a call are there.

So a rank that is late in one exchange has the others wait in that one, whatever they do in the next. Ranks
that work at one time on one machine share its cores.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft.plan.rehearse.course import BETWEEN, BegunCall, CallName, Stretch
from weft.plan.travel import Travel

NOT_TRAINING = ("evaluate", BETWEEN)
"""Phases that are not of an epoch's time."""
_SOON = 1e-12
"""Seconds below which nothing is left to do."""


@dataclass(frozen=True)
class Leg:
    """A stretch with the seconds that it takes a rank which has a core for each of its threads."""

    stretch: Stretch
    seconds: Mapping[str, float]
    """By phase."""

    @property
    def all(self) -> float:
        """Of all phases."""
        return sum(self.seconds.values())


@dataclass
class RankSeconds:
    """Seconds of a rank."""

    working: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By phase."""
    waiting: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """By phase and purpose."""

    @property
    def training(self) -> float:
        """Of training, waits included."""
        worked = sum(value for phase, value in self.working.items() if phase not in NOT_TRAINING)
        return worked + sum(value for (phase, _), value in self.waiting.items() if phase not in NOT_TRAINING)


@dataclass
class _Rank:
    legs: Sequence[Leg]
    spent: RankSeconds = field(default_factory=RankSeconds)
    place: int = 0
    left: float = 0.0
    """Seconds of work of this leg that are left."""
    began: float = 0.0
    wakes: float | None = None
    """When the wait of this leg ends; None: it works, or nobody knows yet."""
    waits: bool = False

    @property
    def over(self) -> bool:
        return self.place == len(self.legs)

    @property
    def works(self) -> bool:
        return not self.over and not self.waits


class ClockedEpoch:
    """Ranks on machines with so many cores; `travel` says how long a call takes on the way."""

    def __init__(self, legs: Sequence[Sequence[Leg]], travel: Travel, cores: int, threads: int = 1) -> None:
        self.ranks = [_Rank(each) for each in legs]
        self.travel, self.room = travel, max(1.0, cores / threads)
        self.now = 0.0
        self._begun: dict[CallName, dict[int, tuple[float, BegunCall]]] = defaultdict(dict)
        self._ways: dict[CallName, tuple[float, list[float], list[float]]] = {}

    def run(self) -> list[RankSeconds]:
        """Return what each rank spent."""
        for rank in self.ranks:
            self._start(rank)
        while True:
            while any(self._settle(number, rank) for number, rank in enumerate(self.ranks)):
                pass
            if all(rank.over for rank in self.ranks):
                return [rank.spent for rank in self.ranks]
            self._advance()

    def _start(self, rank: _Rank) -> None:
        rank.began, rank.waits, rank.wakes = self.now, False, None
        rank.left = 0.0 if rank.over else rank.legs[rank.place].all

    def _settle(self, number: int, rank: _Rank) -> bool:
        """Do what a rank can do now, and return whether there was anything."""
        if rank.over:
            return False
        if rank.waits:
            rank.wakes = self._end(number, rank) if rank.wakes is None else rank.wakes
            if rank.wakes is None or rank.wakes > self.now + _SOON:
                return False
            held = rank.legs[rank.place].stretch
            rank.spent.waiting[held.phase, held.kind] += self.now - rank.began
        elif rank.left > _SOON:
            return False
        else:
            leg = rank.legs[rank.place]
            stretched = (self.now - rank.began) / leg.all if leg.all else 0.0
            for phase, seconds in leg.seconds.items():
                rank.spent.working[phase] += seconds * stretched
            if leg.stretch.begins is not None:
                self._begun[leg.stretch.begins.name][number] = (self.now, leg.stretch.begins)
            if leg.stretch.awaits is not None and number in self._begun[leg.stretch.awaits]:
                rank.waits, rank.began = True, self.now
                return True
        rank.place += 1
        self._start(rank)
        return True

    def _end(self, number: int, rank: _Rank) -> float | None:
        """Return when a call has ended for who waits for it; None where somebody has not begun it."""
        name = rank.legs[rank.place].stretch.awaits
        begun = self._begun[name or ()]
        if len(begun) < len(begun[number][1].ranks):
            return None
        if name not in self._ways:
            calls = [begun[each][1] if each in begun else None for each in range(len(self.ranks))]
            told = self.travel.of_call([{} if call is None else call.sent for call in calls])
            latest = max(at for at, _ in begun.values())
            self._ways[name or ()] = latest, told.inside.tolist(), told.outside.tolist()
        latest, inside, outside = self._ways[name or ()]
        # What is copied within a machine is copied by the cores that also compute: nothing hides it.
        return max(latest + outside[number], max(latest, self.now) + inside[number])

    def _advance(self) -> None:
        """Let time pass until something happens."""
        each = self.travel.wires.each
        busy: dict[int, int] = defaultdict(int)
        for number, rank in enumerate(self.ranks):
            busy[number // each] += rank.works
        rates = [min(1.0, self.room / max(1, busy[number // each])) for number in range(len(self.ranks))]
        ends = [rank.left / rate for rank, rate in zip(self.ranks, rates) if rank.works]
        ends += [rank.wakes - self.now for rank in self.ranks if not rank.over and rank.wakes is not None]
        passed = min(ends, default=math.inf)
        if passed == math.inf:  # a call that somebody made before this epoch: nobody waits for it
            for rank in self.ranks:
                rank.wakes = self.now if rank.waits else None
            return
        self.now += passed
        for rank, rate in zip(self.ranks, rates):
            if rank.works:
                rank.left -= passed * rate
