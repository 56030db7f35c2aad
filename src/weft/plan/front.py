"""From what the user says to a plan: `weft.plan(...)` in Python, `weft plan` on the command line."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from weft.config import Recipe, bind, make_recipe, read_recipe
from weft.errors import FormatError, InputError, RecipeError
from weft.layers.base import layers
from weft.plan.cluster import read_cluster
from weft.plan.dealing import Dealing
from weft.plan.machine import Machine, cache_folder, keep_machine, read_machine
from weft.plan.planning import WORKERS, Plan, make_plan
from weft.plan.statistics import Statistics, planned
from weft.plan.wires import wires_of
from weft.sizes import parse_bytes
from weft.strategies.base import strategies
from weft.tasks.choose import TaskChoice
from weft.train.saved.prices import read_prices
from weft.train.settings import Settings


def plan(
    recipe: Recipe | Mapping[str, Any] | str | Path | None = None,
    *,
    workers: Sequence[int] | None = None,
    memory: int | str | None = None,
    cluster: str | Path | None = None,
    only: Collection[str] = (),
    epochs: int | None = None,
    nodes: int | None = None,
    edges: int | None = None,
    degree: float | None = None,
    features: int | None = None,
    classes: int | None = None,
    machine: Machine | Callable[[], Machine] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Return what every configuration of a recipe costs, the recommended one first.

    `recipe` is a file, a table of its sections, or a `Recipe`; `workers` the numbers to compare, `memory`
    what one may take (what is free, or what the cluster has). A graph that is not there is described by
    `nodes` and `edges` or `degree`. `machine` is by default the one that was measured, or a function that
    gives it, called when all else was found in order, as measuring takes a minute or two. `only` names
    strategies.
    """
    for name in only:
        strategies[name]  # refused by name
    if epochs is not None and epochs < 2:
        raise InputError(f"--epochs {epochs}: expected at least 2, as the first epoch is like no other")
    chosen = recipe_of(recipe)
    if "class" in chosen.model:
        raise RecipeError("model.class: a plan rehearses layers of weft by name; give a model.name like it")
    described = None if cluster is None else read_cluster(cluster)
    room = None if memory is None else parse_bytes(memory, "memory")
    known = Statistics.of(nodes, edges, degree, features, classes)
    _check_names(chosen, has_data=known is None)
    made_now = machine or machine_here
    found = priced(made_now() if callable(made_now) else made_now, chosen)
    make = partial(
        make_plan,
        machine=found,
        cluster=described,
        workers=tuple(workers or WORKERS),
        memory=room,
        only=only,
        epochs=epochs,
        tell=tell,
    )
    made = make(chosen) if known is None else planned(known, make, replace(chosen, data={}))
    best = made.recommended
    if described is None or best is None or best.workers == 1:
        return made
    links = wires_of(described, found, best.workers).links()
    return replace(made, dealing=Dealing.planned(best, links))


def _check_names(recipe: Recipe, *, has_data: bool) -> None:
    """Refuse what no configuration could be run with, which would be a reason of each of them otherwise."""
    bind(Settings, recipe.train, "train")
    if recipe.task:
        TaskChoice.of(recipe.task)
    for section, registry in ((recipe.strategy, strategies), (recipe.model, layers)):
        if isinstance(section.get("name"), str):
            registry[section["name"]]
    path = recipe.data.get("path")
    if has_data and isinstance(path, str) and not Path(path).exists():
        raise FormatError(f"{path}: no such file or folder")


def machine_here(
    *,
    measure: bool = False,
    tell: Callable[[str], None] = lambda line: None,
    warn: Callable[[str], None] = lambda line: None,
) -> Machine:
    """Return the model of this machine: the one that is kept, or, where there is none, one made now.

    `tell` hears what is being measured, `warn` that it could not be kept.
    """
    found = None if measure else read_machine()
    if found is None:
        from weft.plan.measure.measuring import measure_machine

        found = measure_machine(tell)
        try:
            keep_machine(found)
        except OSError as error:
            warn(f"cannot keep what was measured in {cache_folder()}: {error.strerror}; set XDG_CACHE_HOME")
    return found


def priced(machine: Machine, recipe: Recipe) -> Machine:
    """Return the machine with the table of prices that a recipe names."""
    table = recipe.train.get("prices")
    return replace(machine, prices=read_prices(table)) if isinstance(table, str) else machine


def recipe_of(given: Recipe | Mapping[str, Any] | str | Path | None) -> Recipe:
    """Return the recipe that was given as a file, a table or itself."""
    if isinstance(given, Recipe):
        return given
    if isinstance(given, Mapping):
        return make_recipe(dict(given), overrides=[])
    return read_recipe(None if given is None else str(given), overrides=[])
