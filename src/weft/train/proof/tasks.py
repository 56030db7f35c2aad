"""The tasks of the proof: what is learned of its graphs, for whatever strategy takes such targets."""

from dataclasses import replace
from typing import Any

import torch

from weft.graph.graph import Graph
from weft.strategies.base import strategies
from weft.tasks.base import Task, tasks
from weft.tasks.choose import TaskChoice

_SPLIT = {"val": 0.1, "test": 0.1}
TASKS: dict[str, dict[str, Any]] = {
    "node_classification": {"weights": "balanced", "smoothing": 0.1},
    "node_regression": {},
    "link_prediction": {
        "width": 4,
        # (u, v) and (v, u) differ: where they are equal, rounding decides how a metric of places breaks ties.
        "score": "bilinear",
        "split": _SPLIT,
        "negatives": {"name": "degree", "count": 2, "side": "both", "exclude": "known"},
        "evaluate": {"name": "uniform", "count": 5, "exclude": "known"},
    },
    "edge_regression": {"width": 4, "split": _SPLIT},
}
"""The options of each."""
USUAL = "node_classification"
_ON_RATED = ("edge_regression",)
"""Those that need a number for each edge."""
_TARGETS = ["paper cites paper", "author writes paper"]
"""The relations to predict where there are several types of nodes."""


def taken_by(strategy: str) -> list[str]:
    """Return the tasks whose targets a strategy trains on."""
    return [name for name in TASKS if tasks[name].over in strategies[strategy].over]


def make_task(name: str, graph: Graph) -> tuple[Task, Graph]:
    """Return a task and the graph that messages flow along, the same in every process."""
    several = tasks[name].over == "pairs" and len(graph.node_types) > 1
    options = {**TASKS[name], **({"target": _TARGETS} if several else {})}
    task = TaskChoice.of({"name": name, **options}).make(graph)
    task.hides(batches=False)
    return task, task.prepared(_rated(graph) if name in _ON_RATED else graph)


def _rated(graph: Graph) -> Graph:
    """Return the graph with a number for each edge."""
    label = (torch.arange(graph.num_edges) * 0.7).cos() + 3.0
    return Graph(replace(graph.parts(), edge_data={**graph.edge_data, "label": label}))
