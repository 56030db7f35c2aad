"""The graphs of the proof: small ones, each with something that has broken a published system."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures

NODES = 36
QUARTER = NODES // 4


def _rows(count: int, seed: int) -> dict[str, Tensor]:
    """Return features, labels and a split."""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.rand(count, generator=generator)
    return {
        "x": torch.randn(count, 6, generator=generator),
        "y": torch.randint(0, 3, (count,), generator=generator),
        "train_mask": turn < 0.5,
        "val_mask": (turn >= 0.5) & (turn < 0.8),
        "test_mask": turn >= 0.8,
    }


def _edges(count: int, generator: torch.Generator, most: int = NODES) -> Tensor:
    return torch.randint(0, most, (2, count), generator=generator)


def directed(generator: torch.Generator) -> Graph:
    """Edges with a direction and features, some twice, some from a node to itself."""
    edges, data = (
        _edges(120, generator),
        {**_rows(NODES, 1), "edge_attr": torch.randn(120, 3, generator=generator)},
    )
    return Graph.from_edges(edges, num_nodes=NODES, **data)  # type: ignore[arg-type]


def hub(generator: torch.Generator) -> Graph:
    """A node that every other leads to; weights and features on the edges."""
    spokes = torch.stack([torch.arange(NODES), torch.full((NODES,), 7)])
    edges = torch.cat([_edges(120, generator), spokes], 1)
    weight = torch.rand(edges.shape[1], generator=generator) + 0.1
    data: dict[str, Any] = _rows(NODES, 1)
    data["edge_attr"] = torch.randn(edges.shape[1], 3, generator=generator)
    return Graph.from_edges(edges, num_nodes=NODES, edge_weight=weight, **data)


def disconnected(generator: torch.Generator) -> Graph:
    """Four components, one after the other: cut between them, nobody has a halo."""
    edges = _edges(120, generator, QUARTER) + QUARTER * torch.randint(0, 4, (120,), generator=generator)
    return Graph.from_edges(edges, num_nodes=NODES, **_rows(NODES, 1))  # type: ignore[arg-type]


def lopsided(generator: torch.Generator) -> Graph:
    """Training nodes in the first part alone, and no edges at all in the second half."""
    ids = torch.arange(NODES)
    data: dict[str, Any] = _rows(NODES, 1)
    data["train_mask"] = ids < 6
    data["val_mask"] = ids >= NODES // 2
    data["test_mask"] = (ids >= 6) & (ids < NODES // 2)
    edges = _edges(120, generator, NODES // 2)
    data["edge_attr"] = torch.randn(120, 3, generator=generator)
    return Graph.from_edges(edges, num_nodes=NODES, **data)


def sparse(generator: torch.Generator) -> Graph:
    """Features that are kept sparse."""
    data: dict[str, Any] = _rows(NODES, 1)
    x = data["x"].relu() * (torch.rand(data["x"].shape, generator=generator) < 0.2)
    data["x"] = SparseFeatures.from_dense(torch.cat([x, torch.zeros(NODES, 60)], 1))
    return Graph.from_edges(_edges(120, generator), num_nodes=NODES, **data)


def relations(generator: torch.Generator) -> Graph:
    """One type of nodes, four relations; the last is in the first part alone, others have no edge of it."""
    edges = torch.cat([_edges(100, generator), _edges(6, generator, QUARTER)], 1)
    kinds = torch.cat([torch.randint(0, 3, (100,), generator=generator), torch.full((6,), 3)])
    data: dict[str, Any] = _rows(NODES, 1)
    return Graph.from_edges(edges, num_nodes=NODES, edge_type=kinds, num_relations=4, **data)


def typed(generator: torch.Generator) -> Graph:
    """Three types of nodes, one without features; one relation has two edges."""

    def links(count: int, sources: int, targets: int) -> dict[str, Tensor]:
        ends = [torch.randint(0, most, (count,), generator=generator) for most in (sources, targets)]
        return {"edge_index": torch.stack(ends)}

    nodes: dict[str, Any] = {"paper": _rows(20, 2), "author": {"x": torch.randn(10, 4, generator=generator)}}
    return Graph.from_types(
        {**nodes, "venue": {"num_nodes": 6}},
        {
            ("paper", "cites", "paper"): links(40, 20, 20),
            ("author", "writes", "paper"): links(30, 10, 20),
            ("venue", "holds", "paper"): links(2, 6, 20),
            ("paper", "of", "author"): links(20, 20, 10),
        },
    )


GRAPHS: dict[str, Callable[[torch.Generator], Graph]] = {
    make.__name__: make for make in (directed, hub, disconnected, lopsided, sparse, relations, typed)
}
# Cut into runs of ids; the nodes of all others are dealt out in turn, which cuts nearly every edge.
_IN_RUNS = ("disconnected", "lopsided", "relations")
# Cut into twice as many parts as there are workers.
_TWO_PARTS_A_WORKER = ("hub", "typed")


def make_graph(name: str) -> Graph:
    """Return the graph of a name, the same in every process."""
    return GRAPHS[name](torch.Generator().manual_seed(5))


def num_parts(name: str, workers: int) -> int:
    """Return into how many parts a graph is cut for so many workers."""
    return 2 * workers if name in _TWO_PARTS_A_WORKER else workers


def node_parts(name: str, parts: int) -> Tensor:
    """Return the part of each node."""
    ids = torch.arange(NODES)
    return (ids * parts // NODES if name in _IN_RUNS else ids % parts).int()


def edge_parts(name: str, graph: Graph, parts: int) -> Tensor:
    """Return the part of each edge: in runs, or dealt out in turn so that most nodes have many replicas."""
    ids = torch.arange(graph.num_edges)
    return (ids * parts // max(1, graph.num_edges) if name in _IN_RUNS else ids % parts).int()
