"""The configurations of a recipe: every strategy, exchange and number of workers that its parts allow."""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.config import Recipe
from weft.errors import WeftError, WeftWarning
from weft.strategies.base import strategies
from weft.strategies.strategy_cost import StrategyCost, cost_of, known_options
from weft.train.resolve import Resolved, resolve


@dataclass(frozen=True)
class Candidate:
    """One configuration that a recipe may be run with."""

    strategy: str
    workers: int
    section: Mapping[str, Any]
    """What stands in [strategy]."""
    resolved: Resolved

    @property
    def exchange(self) -> str | None:
        """The name of the exchange; None where nothing travels by one."""
        asked = self.section.get("exchange")
        return asked["name"] if isinstance(asked, Mapping) else asked

    @property
    def cost(self) -> StrategyCost:
        """What the strategy tells of itself."""
        return cost_of(self.strategy)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names by which its calls may have been measured, the closest first."""
        alike = ("sampled",) if strategies[self.strategy].in_batches else ()
        return (f"{self.strategy}, {self.exchange}", self.strategy, *alike)

    @property
    def told(self) -> str:
        """It in a few words."""
        by = f", {self.exchange}" if self.exchange else ""
        return f"{self.strategy}{by} on {self.workers} worker{'s' if self.workers > 1 else ''}"


@dataclass(frozen=True)
class RuledOut:
    """A configuration that is out of the question, and why."""

    strategy: str
    exchange: str | None
    workers: int
    why: str


def candidates(
    recipe: Recipe, workers: Sequence[int], only: Collection[str] = ()
) -> Iterator[Candidate | RuledOut]:
    """Give every configuration of a recipe; `only` names the strategies to look at, by default all."""
    named = recipe.strategy.get("name")
    for name in strategies.names():
        if only and name not in only:
            continue
        for count in workers:
            tried: list[dict[str, Any]] = []
            for variant in cost_of(name).variants(count):
                own = recipe.strategy if name == named else {}
                section = {**variant, **known_options(strategies[name], own), "name": name}
                if section not in tried:  # what the recipe says leaves fewer variants
                    tried.append(section)
                    yield _tried(recipe, name, count, section)


def _tried(recipe: Recipe, name: str, workers: int, section: dict[str, Any]) -> Candidate | RuledOut:
    asked = section.get("exchange")
    exchange = asked.get("name") if isinstance(asked, Mapping) else asked
    obstacle = cost_of(name).obstacle(workers)
    if obstacle is not None:
        return RuledOut(name, exchange, workers, obstacle)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeftWarning)
            resolved = resolve(replace(recipe, strategy=section), workers=workers)
    except WeftError as error:
        return RuledOut(name, exchange, workers, str(error))
    return Candidate(name, workers, section, resolved)
