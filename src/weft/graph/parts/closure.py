"""Parts closed under hops: a graph of some nodes with everything that L layers on them read."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.build import Parts
from weft.graph.degrees import edge_destinations
from weft.graph.graph import Graph
from weft.graph.ids import NodeIds
from weft.graph.topology import Topology


@dataclass(frozen=True, eq=False)
class ClosedPart:
    """A part that training never has to leave."""

    graph: Graph
    """Its nodes with their data and edges; degrees are those of the whole graph, the training mask has only
    its own nodes. Nodes at the last hop have no edges into them."""
    node_ids: Tensor
    """[n] int64 the nodes of the whole graph, ascending."""
    own: Tensor
    """[n] bool which of them the part was made for; the others are copies."""


def close(graph: Graph, seeds: Tensor, hops: int) -> ClosedPart:
    """Return the part of these nodes: they, all that reaches them in `hops` hops, and the edges between."""
    if hops < 1:
        raise GraphError(f"hops: expected at least 1, got {hops}")
    read = torch.zeros(graph.num_nodes, dtype=torch.bool)
    read[seeds] = True
    own = read.clone()
    within = read  # nodes whose edges are taken
    for _ in range(hops):
        within = read
        edges = torch.repeat_interleave(within, graph.indptr.diff(), output_size=graph.num_edges)
        read = within.clone()
        read[graph.indices[edges].long()] = True
    nodes = read.nonzero().flatten()
    made = Graph(_parts(graph, nodes, edges.nonzero().flatten(), own))
    _keep_degrees(graph, made, nodes)
    return ClosedPart(made, nodes, own[nodes])


def _parts(graph: Graph, nodes: Tensor, edges: Tensor, own: Tensor) -> Parts:
    offsets = torch.searchsorted(nodes, torch.tensor(graph.node_offsets)).tolist()
    ends = torch.stack([graph.indices[edges].long(), edge_destinations(graph.indptr)[edges]])
    node_data, node_ids = {}, {}
    for index, kind in enumerate(graph.node_types):
        local = nodes[offsets[index] : offsets[index + 1]] - graph.node_offsets[index]
        node_data[kind] = {name: value[local] for name, value in graph.node_data[kind].items()}
        if "train_mask" in node_data[kind]:
            node_data[kind]["train_mask"] &= own[local + graph.node_offsets[index]]  # type: ignore[operator]
        if kind in graph.node_ids:
            node_ids[kind] = NodeIds(np.asarray(graph.node_ids[kind].values)[local.numpy()])
    kinds = None if graph.edge_type is None else graph.edge_type[edges]
    return replace(
        graph.parts(),
        topology=Topology.from_edges(nodes.numel(), torch.searchsorted(nodes, ends), kinds),
        node_data=node_data,
        node_ids=node_ids,
        node_offsets=offsets,
        edge_data={name: value[edges] for name, value in graph.edge_data.items()},
        edge_data_is_canonical=False,
    )


def _keep_degrees(graph: Graph, made: Graph, nodes: Tensor) -> None:
    relations = [None, *range(graph.num_relations)] if graph.edge_type is not None else [None, 0]
    for relation in relations:
        for weighted in (False, True) if "weight" in graph.edge_data else (False,):
            for direction in ("in", "out"):
                degree = graph.degree(direction, relation, weighted)  # type: ignore[arg-type]
                made.known_degrees[direction, relation, weighted] = degree[nodes]
