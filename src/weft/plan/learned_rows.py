"""A plan of `buckets`: what its tables take. There are no layers to rehearse, and no other way to compare."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.config import Recipe
from weft.errors import InputError
from weft.plan.statistics import Statistics
from weft.strategies.base import strategies
from weft.strategies.buckets.foreseen import Foreseen, foresee
from weft.strategies.strategy_cost import cost_of
from weft.tasks.pairs import about_pairs
from weft.train.resolve import resolve


def plans_rows(recipe: Recipe) -> bool:
    """Return whether a recipe learns rows, and nothing is rehearsed."""
    name = recipe.strategy.get("name")
    return name in strategies.names() and cost_of(name).foretold


def plan_rows(recipe: Recipe, size: Mapping[str, Any]) -> Foreseen:
    """Return what a recipe of `buckets` takes, on its graph or on one of which only the size is known."""
    known = Statistics.of(**size)
    chosen = resolve(recipe if known is None else replace(recipe, data={"name": "community", "nodes": 60}))
    graph = chosen.open()
    task = about_pairs(chosen.make_task(graph), InputError("task.name: 'buckets' learns rows from links"))
    names, offsets, edges = graph.node_types, graph.node_offsets, graph.num_edges
    if known is not None:
        names, offsets, edges = ["node"], [0, known.nodes], round(known.nodes * known.degree)
    return foresee(names, offsets, edges, width=task.node_width, options=chosen.strategy_options)
