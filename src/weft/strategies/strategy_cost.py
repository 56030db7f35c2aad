"""What a strategy tells a planner: the settings worth trying, how long a rehearsal is, whether it is exact.

Bytes, memory and work are not told but counted: a plan rehearses the strategy itself. One cost stands beside
each strategy, under its name.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from weft.config import parameters
from weft.exchanges.base import check_exchange, exchanges
from weft.registry import Registry
from weft.strategies.base import Strategy


class StrategyCost:
    """What is known of a strategy before it is rehearsed."""

    exact: ClassVar[bool] = True
    """Whether it computes what one process does on the whole graph, where its exchange does."""
    overlaps: ClassVar[tuple[str, ...]] = ("gradient",)
    """Purposes of traffic that travels while the rank works."""
    turns: ClassVar[bool] = False
    """Whether workers send their rows to all others one after the other."""
    first: ClassVar[int] = 1
    """Epochs at the start that are like no later one."""

    @classmethod
    def variants(cls, kind: type[Strategy], workers: int) -> list[dict[str, Any]]:
        """Return options for so many workers that are worth comparing: arrangements and exchanges."""
        if workers > 1 and not kind.on_workers:
            return []
        ways: list[dict[str, Any]] = [{"exchange": name} for name in kind.exchanges] if workers > 1 else [{}]
        arranged = kind.layouts(workers) if workers > 1 and not kind.in_batches else [{}]
        return [{**layout, **way} for layout in arranged or [{}] for way in ways or [{}]]

    @classmethod
    def obstacle(cls, options: Mapping[str, Any], workers: int) -> str | None:
        """Return why a plan does not try this, None where it does."""
        return None

    @classmethod
    def is_exact(cls, options: Mapping[str, Any]) -> bool:
        """Return whether these options change nothing of what one process computes."""
        if not cls.exact or options.get("exchange") is None:
            return cls.exact
        name, chosen = check_exchange(options["exchange"])
        return exchanges[name].is_exact(chosen)

    @classmethod
    def period(cls, options: Mapping[str, Any]) -> int:
        """Return after how many epochs what is sent repeats itself."""
        if options.get("exchange") is None:
            return 1
        name, chosen = check_exchange(options["exchange"])
        return exchanges[name].period(chosen)

    @classmethod
    def rehearsed(cls, options: Mapping[str, Any]) -> int:
        """Return how many epochs a rehearsal takes: those like no other, and a whole period."""
        return cls.first + cls.period(options)


costs: Registry[type[StrategyCost]] = Registry("cost", "weft.strategies")


def known_options(kind: type[Strategy], section: Mapping[str, Any]) -> dict[str, Any]:
    """Return of the options of a recipe those that a strategy has too."""
    has = parameters(kind)
    return {name: value for name, value in section.items() if name in has and name != "name"}
