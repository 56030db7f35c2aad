"""What ranks do in the tests of algorithms: importable by name, so that other processes find it."""

from typing import Any

import torch

from weft.algorithms import GraphParts, label_propagation, pagerank
from weft.comm.group import Group
from weft.errors import InputError
from weft.graph.graph import Graph

NODES = 30
PAGERANK: dict[str, dict[str, Any]] = {
    "plain": {},
    "weighted": {"weighted": True},
    "personalised": {"personalise": torch.arange(NODES) % 4, "damping": 0.6},
}
OPTIONS = {"tolerance": 1e-12, "max_iterations": 400}


def web(*, multilabel: bool = False) -> Graph:
    """Return a graph with dangling and isolated nodes, loops, repeated edges, weights and some labels."""
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(0, NODES - 4, (2, 90), generator=generator)
    edges[0][edges[0] % 7 == 0] = 3  # a hub; nobody links from 0, 7, 14, 21
    y = (
        (torch.rand(NODES, 3, generator=generator) < 0.4).float()
        if multilabel
        else torch.arange(NODES) % 4 - 1
    )
    chosen = torch.rand(NODES, generator=generator) < 0.3
    data = {"y": y, "train_mask": chosen if multilabel else chosen & (y >= 0)}
    weight = torch.rand(90, generator=generator) + 0.1
    return Graph.from_edges(edges, num_nodes=NODES, edge_weight=weight, **data)


def on_parts(group: Group, folder: str, several: str) -> dict[str, tuple[list[int], list[Any]]]:
    """Return by name the numbers and the values of the rows that a rank holds."""
    parts, found = GraphParts.open(folder, group), {}
    ids = parts.node_ids
    for name, options in PAGERANK.items():
        given = dict(options)
        if "personalise" in given:
            given["personalise"] = given["personalise"][ids]
        found[name] = pagerank(parts, **given, **OPTIONS)
    found["labels"] = label_propagation(parts, iterations=20)
    found["several"] = label_propagation(GraphParts.open(several, group), iterations=20)
    for wrong in (torch.ones(len(ids) + 1), torch.ones(len(ids))):
        # Of ranks that differ in what they were given, all refuse, and none waits.
        given = wrong if group.rank == 0 else torch.ones(len(ids))
        try:
            pagerank(parts, personalise=given if len(wrong) > len(ids) else given - 2)
        except InputError:
            continue
        raise AssertionError("a personalisation that cannot be was taken")
    return {name: (ids.tolist(), value.tolist()) for name, value in found.items()}
