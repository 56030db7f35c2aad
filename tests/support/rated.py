"""A graph whose edges have ratings and classes, and tasks of such edges."""

from typing import Any

import torch

import weft
from weft.tasks.base import Task
from weft.tasks.choose import TaskChoice

NODES = 40
EDGES = 240


def rated(*, whole: bool = False) -> weft.Graph:
    """Return edges whose rating both ends tell, and one column of what is known of each."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, 3, generator=generator)
    src, dst = torch.randint(0, NODES, (2, EDGES), generator=generator)
    known = torch.randn(EDGES, generator=generator)
    rating = 500 + 30 * x[src, 0] - 20 * x[dst, 1] + 10 * known
    data: dict[str, Any] = {
        "label": (rating > 500).long(),
        "rating": rating.round().int() - 600 if whole else rating,
        "known": known,
    }
    return weft.Graph.from_edges(torch.stack([src, dst]), num_nodes=NODES, x=x, edge_data=data)


def made(graph: weft.Graph, name: str, **options: Any) -> tuple[Task, weft.Graph]:
    """Return a task with the graph that messages flow along."""
    task = TaskChoice.of({"name": name, "width": 4, "edge_data": ["known"], **options}).make(graph)
    task.hides(batches=False)
    return task, task.prepared(graph)
