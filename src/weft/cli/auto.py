"""`strategy.name = "auto"`: the plan's recommendation in the place of a strategy, told in one line."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.config import Recipe
from weft.errors import RecipeError

if TYPE_CHECKING:
    from weft.plan.forecast import Forecast
    from weft.plan.planning import Plan

AUTO = "auto"


def is_auto(recipe: Recipe) -> bool:
    """Return whether a recipe leaves the strategy to a plan."""
    return recipe.strategy.get("name") == AUTO


def decided(options: argparse.Namespace, recipe: Recipe, workers: int) -> "tuple[Recipe, Forecast | None]":
    """Return the recipe with the strategy that a plan recommends for so many workers, and its forecast.

    `options.settings` have it too: workers are told by `--set`. A run that is continued keeps its own.
    """
    for name in recipe.strategy:
        if name != "name":
            raise RecipeError(
                f"strategy.{name}: 'auto' chooses all of [strategy]; leave it out, or name a strategy"
            )
    kept = _kept(options)
    best = _recommended(recipe, workers) if kept is None else None
    section = _section(best) if best is not None else kept or {}
    options.settings = [
        *options.settings,
        *(f"strategy.{name}={json.dumps(value)}" for name, value in section.items()),
    ]
    return replace(recipe, strategy=section), best


def _kept(options: argparse.Namespace) -> "dict[str, object] | None":
    """Return the strategy of the run that is continued; None where a run begins."""
    if not options.resume or not (Path(options.out) / "run.json").exists():
        return None
    from weft.train.saved.run_folder import read_run

    held = read_run(options.out)["recipe"]["strategy"]
    return {name: value for name, value in held.items() if value is not None}


def _recommended(recipe: Recipe, workers: int) -> "Forecast":
    from weft.plan.shown import chosen

    found = _planned(replace(recipe, strategy={}), workers)
    best = found.recommended
    if best is None:
        raise RecipeError(f"strategy.name: 'auto': {chosen(found)}")
    print(f"weft: strategy {chosen(found)}", file=sys.stderr)
    return best


def _section(best: "Forecast") -> "dict[str, object]":
    exchange = {} if best.exchange is None else {"exchange": best.exchange}
    return {"name": best.strategy, **exchange, **best.options}


def _planned(recipe: Recipe, workers: int) -> "Plan":
    """Return the plan of the exact strategies; that of all, where no exact one fits."""
    from weft.cli.planning import machine_here
    from weft.plan import plan
    from weft.strategies.base import strategies
    from weft.strategies.strategy_cost import cost_of

    machine = machine_here()
    exact = [name for name in strategies.names() if cost_of(name).exact]
    found = plan(recipe, workers=[workers], machine=machine, only=exact)
    return found if found.recommended else plan(recipe, workers=[workers], machine=machine)
