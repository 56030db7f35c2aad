"""How good a partition is: what travels, how even the parts are, and the bytes an epoch will send.

Bytes an epoch, for layers of width H in float32 and C classes, as SAGE and GCN send them. A layer sends its
input or its output, whichever is narrower: H columns, the last one min(H, C). The aggregate of the input
features never changes and is computed once, so the first layer sends nothing; unless the features are sparse
and their aggregate would not be, then it sends H columns like the others. Forward and backward are alike.
With M halo rows in all parts and W columns in all layers:

    exact          2 · M · 4 W
    sampled 0.1    0.1 of it, on average: the same rows are drawn at both ends, no ids travel
    stale          as exact, sent while the parts compute
    quantised 8    one byte per value, a scale and an offset a row: 2 · M · (W + 8 a layer)

Where edges are assigned, M are the replicas that are not roots: partial sums go to the root and totals
return, forward and backward alike: exact 4 · M · 4 W, delayed 5 a fifth of it, none 0.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from weft.graph.graph import Graph
from weft.graph.parts.assignment import Cuts, Quality
from weft.graph.parts.cut import replicas, runs_into
from weft.graph.row_ranges import some_edges
from weft.graph.sparse import SparseFeatures
from weft.partitioners.base import train_rows

HIDDEN = 128
LAYERS = 3
_FLOAT = 4
MARKS = 1 << 29
"""Bytes of marks that are held at one time, unless one part takes more."""


class _Assigned(NamedTuple):
    """What an assignment, of nodes or of edges, comes to."""

    owner: Tensor
    """[N] the part that a node counts in."""
    edges: Tensor
    """[P] the edges of each part, int64."""
    links: Tensor
    """[P, P] rows that a part reads of another: reader, owner; int64."""
    row_part: Tensor
    """[R] the part of each row that is held: of nodes, or of their replicas."""
    row_bytes: Tensor
    """[R] float64 the bytes of its data."""
    cut_edges: int


def _of_edges(graph: Graph, parts: Tensor, num_parts: int) -> _Assigned:
    held = replicas(graph, parts, num_parts)
    own = held.root[held.node] == held.part
    link = held.part.long()[~own] * num_parts + held.root[held.node[~own]]
    links = torch.bincount(link, minlength=num_parts**2).reshape(num_parts, num_parts)
    edges = torch.bincount(parts, minlength=num_parts)
    return _Assigned(held.root, edges, links, held.part, _row_bytes(graph)[held.node], 0)


def _of_nodes(graph: Graph, parts: Tensor, num_parts: int) -> _Assigned:
    edges = torch.zeros(num_parts, dtype=torch.int64)
    edges.index_add_(0, parts.long(), graph.indptr.diff())
    links = _halo_links(graph, parts, num_parts)
    return _Assigned(parts, edges, links, parts, _row_bytes(graph), count_cut(graph, parts, num_parts))


def measure(
    graph: Graph,
    parts: Tensor,
    num_parts: int,
    *,
    cuts: Cuts = "nodes",
    hidden: int = HIDDEN,
    layers: int = LAYERS,
    moved: int = 0,
) -> Quality:
    """Return the quality of an assignment of nodes or of edges; the predictions are for the given model."""
    found = (_of_edges if cuts == "edges" else _of_nodes)(graph, parts, num_parts)
    links, edges, rows = found.links, found.edges, torch.bincount(found.row_part, minlength=num_parts)
    owner, halo = found.owner, int(links.sum())
    row_data = torch.zeros(num_parts).double().index_add_(0, found.row_part.long(), found.row_bytes)
    size = (
        row_data + 8.0 * rows + _edge_bytes(graph) * edges + 12.0 * (links.sum(1) if cuts == "nodes" else 0)
    )
    return Quality(
        cuts=cuts,
        cut_edges=found.cut_edges,
        cut_share=found.cut_edges / max(graph.num_edges, 1),
        halo_rows=halo,
        halo_share=halo / (graph.num_nodes + halo),
        replication=1 + halo / graph.num_nodes,
        nodes=torch.bincount(owner, minlength=num_parts).tolist(),
        edges=edges.tolist(),
        train_nodes=torch.bincount(owner[train_rows(graph)], minlength=num_parts).tolist(),
        bytes=size.long().tolist(),
        links=links.tolist(),
        hidden=hidden,
        layers=layers,
        predicted=predict_bytes(halo, sent_columns(graph, hidden, layers), cuts=cuts),
        moved=moved,
    )


def sent_columns(graph: Graph, hidden: int, layers: int) -> list[int]:
    """Return the columns that each layer which sends anything sends of a halo row."""
    outputs = [*[hidden] * (layers - 1), min(hidden, graph.num_classes or hidden)]
    return outputs if _sends_features(graph) else outputs[1:]


def _sends_features(graph: Graph) -> bool:
    """Return whether the first layer transforms features before they travel, in every epoch."""
    x = graph.node_data[graph.node_types[0]].get("x") if len(graph.node_types) == 1 else None
    return isinstance(x, SparseFeatures) and not graph.block().aggregates_sparse(x)


def predict_bytes(halo_rows: int, columns: Sequence[int], *, cuts: Cuts = "nodes") -> dict[str, int]:
    """Return the bytes an epoch sends to other parts, by exchange; `columns` are those of each layer."""
    rounds = 2 * halo_rows
    exact = rounds * sum(columns) * _FLOAT
    if cuts == "edges":
        return {"exact": 2 * exact, "delayed 5": 2 * exact // 5, "none": 0}
    coded = rounds * sum(min(width + 8, width * _FLOAT) for width in columns)
    return {"exact": exact, "sampled 0.1": exact // 10, "quantised 8": coded, "stale": exact}


def count_cut(graph: Graph, parts: Tensor, num_parts: int) -> int:
    """Return the number of edges between parts."""
    return sum(int((parts[src] != dst_part).sum()) for src, dst_part in _some_edges(graph, parts))


def count_halo(graph: Graph, parts: Tensor, num_parts: int) -> int:
    """Return the number of halo rows: distinct pairs of a part and a source that another part owns."""
    return int(_halo_links(graph, parts, num_parts).sum())


def _halo_links(graph: Graph, parts: Tensor, num_parts: int) -> Tensor:
    """Return how many sources that a part owns another one reads, once each: [P, P] int64, reader first.

    A part has a mark for every node. So many parts are marked at a time as `MARKS` allows, of the edges into
    their own nodes: each edge is looked at once.
    """
    links = torch.zeros(num_parts, num_parts, dtype=torch.int64)
    count = max(1, min(num_parts, MARKS // max(graph.num_nodes, 1)))
    for first in range(0, num_parts, count):
        last = min(first + count, num_parts)
        marks = torch.zeros(last - first, graph.num_nodes, dtype=torch.bool)
        whole = last - first == num_parts
        for src, reader in _some_edges(graph, parts) if whole else _edges_into(graph, parts, first, last):
            read = parts[src] != reader
            marks[reader[read].long() - first, src[read]] = True
        for place, read in enumerate(marks):
            links[first + place] = torch.bincount(parts[read], minlength=num_parts)
    return links


def _some_edges(graph: Graph, parts: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Give the sources of some edges, and the parts that their destinations are in: never all at once."""
    return ((src, parts[dst]) for src, dst in some_edges(graph.indptr, graph.indices))


def _edges_into(graph: Graph, parts: Tensor, first: int, last: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Give the same of the edges into nodes of the parts first … last - 1."""
    nodes = ((parts >= first) & (parts < last)).nonzero().flatten()
    return ((run.src, parts[run.dst]) for run in runs_into(graph, nodes))


def _row_bytes(graph: Graph) -> Tensor:
    """Return the bytes of features, labels and masks of each node, [N] float64."""
    size = torch.zeros(graph.num_nodes, dtype=torch.float64)
    for kind in graph.node_types:
        for value in graph.node_data[kind].values():
            if isinstance(value, SparseFeatures):
                width = value.values.element_size() + value.indices.element_size()
                size[graph.rows_of_type(kind)] += value.indptr.diff() * width + 8
            else:
                size[graph.rows_of_type(kind)] += value[:1].numel() * value.element_size()
    return size


def _edge_bytes(graph: Graph) -> float:
    """Return the bytes of an edge: source row, canonical id, relation, data."""
    data = sum(value[:1].numel() * value.element_size() for value in graph.edge_data.values())
    return float(graph.indices.element_size() + 8 + (4 if graph.edge_type is not None else 0) + data)
