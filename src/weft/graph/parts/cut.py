"""Who holds what: from the parts of nodes or of edges to the rows and edges of each part.

Where nodes are assigned, a part holds its nodes and every edge into them. Where edges are assigned, a part
holds its edges and a replica of each of their ends; one replica of a node is its root, which counts in the
loss. On a grid of parts, nodes are assigned and part (i, j) holds the edges from the nodes of column j to
those of row i.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from weft.draw import Stream, draw, fold
from weft.errors import GraphError
from weft.graph import row_ranges
from weft.graph.degrees import edge_destinations, entries_of_rows
from weft.graph.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.sorting import distinct, group, sort_keys


class EdgeRun(NamedTuple):
    """Some edges of a part, in ids of the whole graph."""

    edges: Tensor  # [e] int64 canonical ids, ascending
    src: Tensor  # [e] int64
    dst: Tensor  # [e] int64


class Piece(NamedTuple):
    """What one part holds, in ids of the whole graph; its edges come in runs whenever they are asked for."""

    part: int
    node_ids: Tensor  # [n] int64 ascending
    node_part: Tensor  # [n] int32 the part that owns each: this one, or the root of a replica
    num_edges: int
    runs: Callable[[], Iterator[EdgeRun]]  # ascending


class ReplicaPairs(NamedTuple):
    """The (node, part) pairs of a partition of edges, sorted by node, then part."""

    node: Tensor  # [pairs] int64
    part: Tensor  # [pairs] int32
    root: Tensor  # [N] int32 the part whose replica counts


_ASSIGNED = {"nodes": "nodes", "edges": "edges", "grid": "nodes"}


def as_assignment(graph: Graph, parts: Assignment | Tensor) -> Assignment:
    """Return an assignment that fits the graph; a plain tensor gives the part of each node."""
    made = parts
    if isinstance(made, Tensor):
        made = Assignment(made.int(), int(made.max()) + 1 if made.numel() else 1)
    wanted = graph.num_edges if made.cuts == "edges" else graph.num_nodes
    if tuple(made.parts.shape) != (wanted,):
        raise GraphError(
            f"expected the part of each of {wanted:,} {_ASSIGNED[made.cuts]}, got shape "
            f"{tuple(made.parts.shape)}; was the partition made for another graph?"
        )
    if wanted and not 0 <= int(made.parts.min()) <= int(made.parts.max()) < made.num_parts:
        raise GraphError(f"parts must be in 0 … {made.num_parts - 1}")
    if made.cuts == "grid" and (made.grid is None or made.grid[0] * made.grid[1] != made.num_parts):
        raise GraphError(f"a grid of {made.grid} does not have {made.num_parts} parts")
    return made


def pieces(graph: Graph, assignment: Assignment) -> Iterator[Piece]:
    """Give what each part holds, one part after the other."""
    kinds = {"nodes": _node_pieces, "edges": _edge_pieces, "grid": _grid_pieces}
    return kinds[assignment.cuts](graph, assignment)


def replicas(graph: Graph, parts: Tensor, num_parts: int) -> ReplicaPairs:
    """Return which parts hold each node where edges are assigned, and its root.

    The root is drawn from the parts that hold the node; a node without edges has one replica, drawn from all.
    """
    part = parts.long()
    keys = distinct(
        torch.cat(
            [graph.indices.long() * num_parts + part, edge_destinations(graph.indptr) * num_parts + part]
        )
    )
    bits = torch.from_numpy(
        draw(fold(0, Stream.SHUFFLE), torch.arange(graph.num_nodes).numpy()).astype("int64")
    )
    held = torch.bincount(keys // num_parts, minlength=graph.num_nodes)
    alone = (held == 0).nonzero().flatten()
    keys = sort_keys(torch.cat([keys, alone * num_parts + bits[alone] % num_parts]))
    counts = held.clamp(min=1)
    first = counts.cumsum(0) - counts
    node, holder = keys // num_parts, (keys % num_parts).int()
    return ReplicaPairs(node, holder, holder[first + bits % counts])


def _node_pieces(graph: Graph, assignment: Assignment) -> Iterator[Piece]:
    ends, order = group(assignment.parts, assignment.num_parts)
    for part in range(assignment.num_parts):
        node_ids = order[ends[part] : ends[part + 1]]
        owner = torch.full((len(node_ids),), part, dtype=torch.int32)
        count = int((graph.indptr[node_ids + 1] - graph.indptr[node_ids]).sum())
        yield Piece(part, node_ids, owner, count, partial(runs_into, graph, node_ids))


def runs_into(graph: Graph, node_ids: Tensor) -> Iterator[EdgeRun]:
    """Give the edges into some nodes, so many at a time that memory does not depend on how many there are."""
    counts = graph.indptr[node_ids + 1] - graph.indptr[node_ids]
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    for first, last in row_ranges.row_ranges(indptr):
        some = node_ids[first:last]
        _, edges = entries_of_rows(graph.indptr, some)
        yield EdgeRun(edges, graph.indices[edges].long(), torch.repeat_interleave(some, counts[first:last]))


def _edge_pieces(graph: Graph, assignment: Assignment) -> Iterator[Piece]:
    held = replicas(graph, assignment.parts, assignment.num_parts)
    node_ends, by_part = group(held.part, assignment.num_parts)
    edge_ends, by_edge = group(assignment.parts, assignment.num_parts)
    for part in range(assignment.num_parts):
        edges = by_edge[edge_ends[part] : edge_ends[part + 1]]
        node_ids = held.node[by_part[node_ends[part] : node_ends[part + 1]]]
        yield Piece(part, node_ids, held.root[node_ids], len(edges), partial(_runs_of, graph, edges))


def _runs_of(graph: Graph, edges: Tensor) -> Iterator[EdgeRun]:
    """Give edges by their canonical ids, some at a time."""
    for some in torch.split(edges, row_ranges.EDGES_AT_ONCE):
        dst = torch.searchsorted(graph.indptr, some, right=True) - 1
        yield EdgeRun(some, graph.indices[some].long(), dst)


def _grid_pieces(graph: Graph, assignment: Assignment) -> Iterator[Piece]:
    assert assignment.grid is not None, "as_assignment has checked it"
    part, columns = assignment.parts.long(), assignment.grid[1]
    holder = part[edge_destinations(graph.indptr)] // columns * columns + part[graph.indices.long()] % columns
    node_ends, by_node = group(assignment.parts, assignment.num_parts)
    edge_ends, by_edge = group(holder, assignment.num_parts)
    for number in range(assignment.num_parts):
        node_ids = by_node[node_ends[number] : node_ends[number + 1]]
        edges = by_edge[edge_ends[number] : edge_ends[number + 1]]
        owner = torch.full((len(node_ids),), number, dtype=torch.int32)
        yield Piece(number, node_ids, owner, len(edges), partial(_runs_of, graph, edges))
