"""Runs whose layers keep what a plan says."""

from typing import Any

import torch
from torch import Tensor

from weft.graph.graph import Graph
from weft.strategies.memory.whole import PlannedWhole
from weft.strategies.single import Single
from weft.train.model import build_model


def trained(graph: Graph, name: str, options: dict[str, Any], **how: Any) -> tuple[Single, list[Tensor]]:
    """Return a strategy after three steps, and all that these left in the model."""
    model = build_model(graph, name, {"hidden": 8, **options}, seed=1)
    strategy = Single(graph, seed=3, **how)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        strategy.epoch(model, optimizer)
    held = [each.detach().clone() for each in (*model.parameters(), *model.buffers())]
    return strategy, [*held, *(each.grad for each in model.parameters() if each.grad is not None)]


def planned(strategy: Single) -> Any:
    assert isinstance(strategy.layout, PlannedWhole)
    plan = strategy.layout.layers.plan
    assert plan is not None
    return plan


def wide_graph(nodes: int = 3000) -> Graph:
    """Return a graph on which rows outweigh edges."""
    draw = torch.Generator().manual_seed(1)
    edges = torch.randint(0, nodes, (2, 4 * nodes), generator=draw)
    x, y = torch.randn(nodes, 32, generator=draw), torch.randint(0, 4, (nodes,), generator=draw)
    return Graph.from_edges(edges, num_nodes=nodes, x=x, y=y, train_mask=torch.arange(nodes) % 2 == 0)
