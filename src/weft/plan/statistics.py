"""A plan for a graph that nobody has yet: rehearsed on two smaller ones of its kind, and drawn out.

Rows, edges and what travels grow with the number of nodes, at the same degree and the same share of edges
between parts; weights do not. Two sizes tell the one from the other.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from weft.config import Recipe
from weft.errors import InputError
from weft.plan.forecast import Forecast
from weft.plan.planning import Plan

SIZES = (2_000, 4_000)
"""The nodes of the two graphs that stand for a larger one."""


@dataclass(frozen=True)
class Statistics:
    """What is known of a graph."""

    nodes: int
    degree: float
    features: int
    classes: int

    @staticmethod
    def of(
        nodes: int | None, edges: int | None, degree: float | None, features: int | None, classes: int | None
    ) -> "Statistics | None":
        """Return them, None where none are given; refuse some without others."""
        if nodes is None and edges is None and degree is None:
            if features is not None or classes is not None:
                raise InputError("--features, --classes: say how large the graph is: --nodes and --edges")
            return None
        if nodes is None or (edges is None) == (degree is None):
            raise InputError("a graph is described by --nodes and one of --edges and --degree")
        each = degree if degree is not None else (edges or 0) / max(nodes, 1)
        counts = features is None or features >= 1, classes is None or classes >= 2
        if nodes < 2 or not 0 < each < math.inf or not all(counts):
            raise InputError(
                "--nodes, --edges, --degree, --features, --classes: expected counts above zero, and at least "
                "2 nodes and 2 classes"
            )
        return Statistics(nodes, each, features or 64, classes or 8)

    def recipe(self, recipe: Recipe, nodes: int) -> Recipe:
        """Return a recipe on a graph of this kind with so many nodes."""
        data = {"nodes": nodes, "degree": self.degree, "features": self.features, "classes": self.classes}
        return replace(recipe, data={"name": "community", **data})


def planned(statistics: Statistics, make: Callable[[Recipe], Plan], recipe: Recipe) -> Plan:
    """Return the plan for a graph of which only statistics are known; `make` plans one that is there."""
    if statistics.nodes <= SIZES[-1]:
        return _marked(make(statistics.recipe(recipe, statistics.nodes)), statistics)
    small, large = (make(statistics.recipe(recipe, size)) for size in SIZES)
    share = (statistics.nodes - SIZES[0]) / (SIZES[1] - SIZES[0])
    earlier = {_key(each): each for each in small.configurations}
    drawn = [
        _drawn_out(earlier[_key(each)], each, share) for each in large.configurations if _key(each) in earlier
    ]
    return _marked(replace(large, configurations=drawn).ordered(), statistics)


def _key(forecast: Forecast) -> Any:
    return forecast.strategy, forecast.exchange, forecast.workers, repr(forecast.options)


def _marked(plan: Plan, statistics: Statistics) -> Plan:
    facts = {"num_nodes": statistics.nodes, "num_edges": round(statistics.nodes * statistics.degree)}
    told = [replace(each, estimated=True) for each in plan.configurations]
    return replace(plan, graph={**facts, "from": "statistics"}, configurations=told)


def _drawn_out(small: Forecast, large: Forecast, share: float) -> Forecast:
    """Return what lies on the line through two forecasts, `share` of the way from the first."""
    same = ("strategy", "exchange", "workers", "options", "exact", "estimated", "accuracy_cost")
    held = {
        item.name: _line(getattr(small, item.name), getattr(large, item.name), share)
        for item in fields(Forecast)
        if item.name not in same
    }
    return replace(large, **held)


def _line(low: Any, high: Any, share: float) -> Any:
    if isinstance(high, dict):
        return {name: _line(low.get(name, 0), value, share) for name, value in high.items()}
    if isinstance(high, list):
        return [_line(first, last, share) for first, last in zip(low, high)]
    if high is None:
        return None
    value = max(high, low + (high - low) * share)
    return value if isinstance(high, float) else round(value)
