"""What a strategy tells a planner: the settings worth trying, how long a rehearsal is, whether it is exact.

Bytes, memory and work are not told but counted: a plan rehearses the strategy itself. Most follows from what
the class says it can do; a strategy of which more is known has a cost of its own in its file, under its name.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from weft.config import parameters
from weft.exchanges.accuracy import AccuracyCost
from weft.exchanges.base import check_exchange, exchanges
from weft.registry import Registry
from weft.strategies.base import Strategy, strategies


@dataclass(frozen=True)
class Preparing:
    """How batches are made ahead of the steps that use them."""

    threads: int
    """That make batches, one each at a time."""
    ahead: int
    """How many batches there may be that are not used yet."""
    together: bool = False
    """Whether all workers make each: the next is begun when one is taken, not when the next is asked for."""


class StrategyCost:
    """What is known of a strategy before it is rehearsed."""

    untried: ClassVar[str | None] = None
    """Why a plan never tries it, where it does not."""
    foretold: ClassVar[bool] = False
    """Whether what a run takes is counted from sizes alone, and nothing is rehearsed."""
    overlaps: ClassVar[tuple[str, ...]] = ("gradient",)
    """Purposes of traffic that travels while the rank works."""
    turns: ClassVar[bool] = False
    """Whether workers send their rows to all others one after the other."""
    first: ClassVar[int] = 1
    """Epochs at the start that are like no later one."""

    def __init__(self, kind: type[Strategy]) -> None:
        self.kind = kind

    @property
    def exact(self) -> bool:
        """Whether it computes what one process does on the whole graph, where its exchange does."""
        return not self.kind.in_batches

    def variants(self, workers: int) -> list[dict[str, Any]]:
        """Return options for so many workers that are worth comparing: arrangements and exchanges."""
        kind = self.kind
        if workers > 1 and not kind.on_workers:
            return []
        ways: list[dict[str, Any]] = [{"exchange": name} for name in kind.exchanges] if workers > 1 else [{}]
        arranged = kind.layouts(workers) if workers > 1 and not kind.in_batches else [{}]
        return [{**layout, **way} for layout in arranged or [{}] for way in ways or [{}]]

    def obstacle(self, workers: int) -> str | None:
        """Return why a plan does not try it on so many workers, None where it does."""
        if self.untried is None and workers == 1 and self.exact and self.kind.on_workers:
            return "one process has the whole graph: `single` does the same"
        return self.untried

    def is_exact(self, options: Mapping[str, Any]) -> bool:
        """Return whether these options change nothing of what one process computes."""
        if not self.exact or options.get("exchange") is None:
            return self.exact
        name, chosen = check_exchange(options["exchange"])
        return exchanges[name].is_exact(chosen)

    def score_costs(self, options: Mapping[str, Any]) -> tuple[AccuracyCost, ...]:
        """Return what these options were measured to cost in accuracy, by the strategy and its exchange.

        Costs that were measured with other options are told where none was with these.
        """
        if self.is_exact(options):
            return ()
        if self.exact and options.get("exchange") is not None:
            name, chosen = check_exchange(options["exchange"])
            known, given = exchanges[name].score_costs, {**_defaults(exchanges[name]), **chosen}
        else:
            known, given = self.kind.score_costs, {**_defaults(self.kind), **options}
        return tuple(each for each in known if each.options.items() <= given.items()) or known

    def period(self, options: Mapping[str, Any]) -> int:
        """Return after how many epochs what is sent repeats itself."""
        if options.get("exchange") is None:
            return 1
        name, chosen = check_exchange(options["exchange"])
        return exchanges[name].period(chosen)

    def rehearsed(self, options: Mapping[str, Any]) -> int:
        """Return how many epochs a rehearsal takes: those like no other, and a whole period."""
        return self.first + self.period(options)

    def preparing(self, options: Mapping[str, Any], workers: int) -> Preparing | None:
        """Return how batches are made ahead of the steps that use them; None where they are not."""
        asked = inspect.signature(self.kind.__init__).parameters.get("prepare")
        threads = 0 if asked is None else int(options.get("prepare", asked.default))
        if not threads:
            return None
        # In parts a batch is made by all workers together: one thread of each, so many batches ahead.
        return Preparing(1, threads, together=True) if workers > 1 else Preparing(threads, threads + 2)


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """Return the options of a class as they are where nothing is said."""
    asked = inspect.signature(kind.__init__).parameters.items()
    return {name: each.default for name, each in asked if isinstance(each.default, int | float | str)}


costs: Registry[type[StrategyCost]] = Registry("cost", "weft.strategies")


def cost_of(name: str) -> StrategyCost:
    """Return what is known of a strategy: by a cost of its own, else by its class alone."""
    kind = costs[name] if name in costs.names() else StrategyCost
    return kind(strategies[name])


def known_options(kind: type[Strategy], section: Mapping[str, Any]) -> dict[str, Any]:
    """Return of the options of a recipe those that a strategy has too."""
    has = parameters(kind)
    return {name: value for name, value in section.items() if name in has and name != "name"}
