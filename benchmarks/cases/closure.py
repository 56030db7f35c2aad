"""What parts hold that training never leaves: copies of nodes and features, by partitioner and layers."""

from collections.abc import Iterator

import torch

from benchmarks.graphs import communities, real, tiny
from benchmarks.measure import Study
from weft.graph import Graph
from weft.graph.parts.closure import close
from weft.partitioners import partition

PARTS = 4


def rows() -> Iterator[str]:
    """Give a row for each graph, number of layers and partitioner."""
    nodes = 500 if tiny() else 5_000
    graphs = {"communities": communities(nodes, 10 * nodes, features=64)}
    if not tiny():
        graphs |= {name: real(name) for name in ("cora", "pubmed")}
    yield f"| {PARTS} parts | layers | partitioner | nodes held, of all | most in a part | features there |"
    yield "|---|---|---|---|---|---|"
    for name, graph in graphs.items():
        for layers in (1, 2):
            for cut in ("metis", "selfreliant", "hash"):
                held = _held(graph, layers, cut)
                most = max(held)
                size = most * _width(graph) * 4 / 2**20
                told = f"| {name}, {graph.num_nodes:,} nodes | {layers} | {cut} "
                yield f"{told}| {sum(held) / graph.num_nodes:.2f} | {most:,} | {size:.1f} MiB |"


def _held(graph: Graph, layers: int, cut: str) -> list[int]:
    """Return the nodes that each part holds."""
    options = {"hops": layers} if cut == "selfreliant" else {}
    part = partition(graph, PARTS, name=cut, **options).parts
    mask = graph.train_mask
    train = torch.ones(graph.num_nodes, dtype=torch.bool) if mask is None else mask
    seeds = [(train & (part == number)).nonzero().flatten() for number in range(PARTS)]
    return [len(close(graph, each, layers).node_ids) for each in seeds]


def _width(graph: Graph) -> int:
    return int(graph.x.shape[1])


CASES = [
    Study(
        "closure_replication",
        "what workers hold with strategy.closed, the neighbourhoods of their training nodes",
        rows,
        note="Nodes held by all parts together, as a multiple of the graph's: copies of what L layers on the "
        "training nodes of a part read. Features in float32, dense. Numbers, not times.",
    ),
]
