"""An epoch played by the clock: each rank works, begins calls, and waits until all who make a call are there.

So a rank that is late in one exchange has the others wait in that one, whatever they do in the next. Ranks
that work at one time on one machine share its cores, with each other and with the threads that make their
batches.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.plan.cores import Cores
from weft.plan.rehearse.course import BETWEEN, BegunCall, CallName, Stretch
from weft.plan.travel import Travel

Gate = tuple[Any, ...]
"""Something that happens once, in one lane, and that another may wait for."""
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
    passes: tuple[Gate, ...] = ()
    """What must have happened before it is begun."""
    opens: tuple[Gate, ...] = ()
    """What has happened when it is over."""

    @property
    def all(self) -> float:
        """Of all phases."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class LegLane:
    """The legs of one thread of a rank."""

    rank: int
    legs: Sequence[Leg]
    threads: int = 1
    """That its operators work with."""


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
class _Player:
    rank: int
    legs: Sequence[Leg]
    threads: int
    spent: RankSeconds = field(default_factory=RankSeconds)
    place: int = 0
    left: float = 0.0
    """Seconds of work of this leg that are left."""
    began: float = 0.0
    wakes: float | None = None
    """When the wait of this leg ends; None: it works, or nobody knows yet."""
    waits: bool = False
    shut: bool = False
    """Whether a gate before this leg is not known to be open."""

    @property
    def over(self) -> bool:
        return self.place == len(self.legs)

    @property
    def works(self) -> bool:
        return not self.over and not self.waits and not self.shut


class ClockedEpoch:
    """Lanes of ranks on machines with so many cores; `travel` says how long a call takes on the way.

    The first lane of each rank trains, its others make batches.
    """

    def __init__(self, lanes: Sequence[LegLane], travel: Travel, cores: Cores) -> None:
        self.players = [_Player(each.rank, each.legs, each.threads) for each in lanes]
        self.travel, self.cores = travel, cores
        self.now = 0.0
        self._size = 1 + max((each.rank for each in lanes), default=-1)
        self._opened: set[Gate] = set()
        self._begun: dict[CallName, dict[int, tuple[float, BegunCall]]] = defaultdict(dict)
        self._ways: dict[CallName, tuple[float, list[float], list[float]]] = {}

    def run(self) -> list[RankSeconds]:
        """Return what each rank spent in the lane that trains."""
        for player in self.players:
            self._start(player)
        while True:
            while any(self._settle(player) for player in self.players):
                pass
            if all(player.over for player in self.players):
                first: dict[int, RankSeconds] = {}
                for player in self.players:
                    first.setdefault(player.rank, player.spent)
                return [first[rank] for rank in range(self._size)]
            self._advance()

    def _start(self, player: _Player) -> None:
        player.began, player.waits, player.wakes = self.now, False, None
        player.left = 0.0 if player.over else player.legs[player.place].all
        player.shut = not player.over and bool(player.legs[player.place].passes)

    def _settle(self, player: _Player) -> bool:
        """Do what a player can do now, and return whether there was anything."""
        if player.over:
            return False
        leg = player.legs[player.place]
        if player.shut:
            if not self._opened.issuperset(leg.passes):
                return False
            player.spent.working[leg.stretch.phase] += self.now - player.began
            player.began, player.shut = self.now, False
        if player.waits:
            player.wakes = self._end(player) if player.wakes is None else player.wakes
            if player.wakes is None or player.wakes > self.now + _SOON:
                return False
            player.spent.waiting[leg.stretch.phase, leg.stretch.kind] += self.now - player.began
        elif player.left > _SOON:
            return False
        elif self._worked(player, leg):
            return True
        self._opened.update(leg.opens)
        player.place += 1
        self._start(player)
        return True

    def _worked(self, player: _Player, leg: Leg) -> bool:
        """Note that the work of a leg is done and its call begun; return whether it now waits for another."""
        stretched = (self.now - player.began) / leg.all if leg.all else 0.0
        for phase, seconds in leg.seconds.items():
            player.spent.working[phase] += seconds * stretched
        if leg.stretch.begins is not None:
            self._begun[leg.stretch.begins.name][player.rank] = (self.now, leg.stretch.begins)
        if leg.stretch.awaits is None or player.rank not in self._begun[leg.stretch.awaits]:
            return False
        player.waits, player.began = True, self.now
        return True

    def _end(self, player: _Player) -> float | None:
        """Return when a call has ended for who waits for it; None where somebody has not begun it."""
        name, number = player.legs[player.place].stretch.awaits, player.rank
        begun = self._begun[name or ()]
        if len(begun) < len(begun[number][1].ranks):
            return None
        if name not in self._ways:
            calls = [begun[each][1] if each in begun else None for each in range(self._size)]
            told = self.travel.of_call([{} if call is None else call.sent for call in calls])
            latest = max(at for at, _ in begun.values())
            self._ways[name or ()] = latest, told.inside.tolist(), told.outside.tolist()
        latest, inside, outside = self._ways[name or ()]
        # What is copied within a machine is copied by the cores that also compute: nothing hides it.
        return max(latest + outside[number], max(latest, self.now) + inside[number])

    def _advance(self) -> None:
        """Let time pass until something happens."""
        working = [each for each in self.players if each.works]
        rates = self.cores.shares([(each.rank, each.threads) for each in working])
        ends = [each.left / rate for each, rate in zip(working, rates)]
        ends += [each.wakes - self.now for each in self.players if not each.over and each.wakes is not None]
        passed = min(ends, default=math.inf)
        if passed == math.inf:  # a call that somebody made before this epoch: nobody waits for it
            for each in self.players:
                each.wakes = self.now if each.waits else None
            return
        self.now += passed
        for each, rate in zip(working, rates):
            each.left -= passed * rate
