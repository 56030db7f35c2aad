"""Changed copies of a graph. Edges that stay keep their order and their data; new ones follow them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.graph.build import EdgeType
from weft.graph.sparse import Features, SparseFeatures

if TYPE_CHECKING:
    from weft.graph.graph import Graph

SELF_LOOP = "self_loop"
INVERSE = "rev_"


def symmetrise(graph: "Graph") -> "Graph":
    """Return the graph with every edge in both directions, once each."""
    for source, name, target in graph.edge_types:
        if source != target:
            kind = (source, name, target)
            raise GraphError(
                f"edge type {kind} joins two node types and has no reverse; use add_inverse_relations()"
            )
    edges, kinds, data = graph.edge_index, graph.given_edge_type(), graph.given_edge_data()
    both = graph.with_edges(
        torch.cat([edges, edges.flip(0)], 1),
        None if kinds is None else kinds.repeat(2),
        {name: torch.cat([value, value]) for name, value in data.items()},
    )
    return drop_duplicates(both)


def drop_duplicates(graph: "Graph") -> "Graph":
    """Return the graph with the first edge of each (source, target, relation)."""
    edge_dst, kinds = graph.block().edge_dst, graph.edge_type
    # Canonical order puts equal edges side by side, the one given first in front.
    changed = (graph.indices[1:] != graph.indices[:-1]) | (edge_dst[1:] != edge_dst[:-1])
    if kinds is not None:
        changed |= kinds[1:] != kinds[:-1]
    first = torch.cat([torch.ones(min(1, graph.num_edges), dtype=torch.bool, device=changed.device), changed])
    return graph if bool(first.all()) else kept(graph, graph.edge_ids[first].long().sort().values)


def remove_self_loops(graph: "Graph") -> "Graph":
    """Return the graph without edges from a node to itself."""
    edges = graph.edge_index
    loops = edges[0] == edges[1]
    return kept(graph, (~loops).nonzero().flatten()) if bool(loops.any()) else graph


def add_self_loops(graph: "Graph") -> "Graph":
    """Return the graph with a self loop on every node that has none.

    In a graph of one node type they belong to relation 0, and their features are the mean of those of the
    edges into the node. In a graph of several, each node type gets a relation of its own, (type, "self_loop",
    type). Weights are 1, times the earliest there is.
    """
    edges = graph.edge_index
    missing = torch.ones(graph.num_nodes, dtype=torch.bool, device=edges.device)
    missing[edges[0, edges[0] == edges[1]]] = False
    nodes = missing.nonzero().flatten()
    if nodes.numel() == 0:
        return graph
    edge_types, new_kinds = _self_loop_types(graph, nodes)
    kinds = graph.given_edge_type()
    if len(edge_types) > 1:
        old = torch.zeros(graph.num_edges, dtype=torch.int32, device=edges.device) if kinds is None else kinds
        kinds = torch.cat([old, new_kinds])
    data = {
        name: torch.cat([value, _loop_values(graph, name, value, nodes)])
        for name, value in graph.given_edge_data().items()
    }
    added = len(edge_types) - graph.num_relations
    columns = {name: [*widths, *[None] * added] for name, widths in _columns(graph, added > 0).items()}
    edge_index = torch.cat([edges, nodes.expand(2, -1)], 1)
    return graph.with_edges(edge_index, kinds, data, edge_types=edge_types, edge_columns=columns)


def add_inverse_relations(graph: "Graph") -> "Graph":
    """Return the graph with, for each (s, name, t), a relation (t, "rev_name", s) of its edges reversed."""
    edges, kinds, data = graph.edge_index, graph.given_edge_type(), graph.given_edge_data()
    relations = graph.num_relations
    known = torch.zeros(graph.num_edges, dtype=torch.int32, device=edges.device) if kinds is None else kinds
    inverse: list[EdgeType] = [
        (target, f"{INVERSE}{name}", source) for source, name, target in graph.edge_types
    ]
    return graph.with_edges(
        torch.cat([edges, edges.flip(0)], 1),
        torch.cat([known, known + relations]),
        {name: torch.cat([value, value]) for name, value in data.items()},
        edge_types=[*graph.edge_types, *inverse],
        edge_columns={name: [*widths, *widths] for name, widths in graph.edge_columns.items()},
    )


def normalise_features(graph: "Graph") -> "Graph":
    """Return the graph with each row of x divided by the sum of its absolute values; empty rows stay."""
    x = {kind: _normalised(data["x"]) for kind, data in graph.node_data.items() if "x" in data}
    return graph.with_data(check=False, x=x)


def kept(graph: "Graph", places: Tensor) -> "Graph":
    """Return the graph with only the edges at these places of the user's order."""
    kinds = graph.given_edge_type()
    data = {name: value[places] for name, value in graph.given_edge_data().items()}
    return graph.with_edges(graph.edge_index[:, places], None if kinds is None else kinds[places], data)


def _self_loop_types(graph: "Graph", nodes: Tensor) -> tuple[list[EdgeType], Tensor]:
    """Return the edge types with those of self loops, and the relation of the loop of each node."""
    if len(graph.node_types) == 1:
        return graph.edge_types, torch.zeros(len(nodes), dtype=torch.int32, device=nodes.device)
    edge_types = list(graph.edge_types)
    for kind in graph.node_types:
        if (kind, SELF_LOOP, kind) not in edge_types:
            edge_types.append((kind, SELF_LOOP, kind))
    relation = [edge_types.index((kind, SELF_LOOP, kind)) for kind in graph.node_types]
    offsets = torch.tensor(graph.node_offsets[1:], device=nodes.device)
    node_type = torch.searchsorted(offsets, nodes, right=True)
    return edge_types, torch.tensor(relation, dtype=torch.int32, device=nodes.device)[node_type]


def _columns(graph: "Graph", more_relations: bool) -> dict[str, list[int | None]]:
    """Return which relations have which edge data, in full: a new relation will have none of it."""
    if not more_relations:
        return graph.edge_columns
    return {
        name: graph.edge_columns.get(name, [value.shape[1] if value.dim() > 1 else 0] * graph.num_relations)
        for name, value in graph.edge_data.items()
    }


def _loop_values(graph: "Graph", name: str, value: Tensor, nodes: Tensor) -> Tensor:
    tail = value.shape[1:]
    if name == "weight":
        return value.new_ones(len(nodes), *tail)
    if name == "time" and len(value):
        return value.min().expand(len(nodes), *tail)
    if name == "attr" and len(graph.node_types) == 1 and value.is_floating_point() and len(value):
        canonical = graph.edge_data[name].reshape(graph.num_edges, -1)
        every = torch.arange(graph.num_edges, device=value.device)
        return kernels.spmm(graph.indptr, every, canonical, None, "mean")[nodes].reshape(-1, *tail)
    return value.new_zeros(len(nodes), *tail)


def _normalised(x: Features) -> Features:
    if isinstance(x, SparseFeatures):
        total = torch.zeros(x.shape[0], dtype=torch.float64, device=x.device)
        total.index_add_(0, x.row_ids, x.values.double().abs())
        return x.with_values((x.values / _positive(total)[x.row_ids]).to(x.dtype))
    return (x / _positive(x.double().abs().sum(1, keepdim=True))).to(x.dtype)


def _positive(total: Tensor) -> Tensor:
    return torch.where(total == 0, 1.0, total)
