"""Edges by their two ends: which join the same pair of nodes, either way and in any relation.

What is to be predicted of a pair must be kept from every edge between its ends, so splits, hidden edges and
known links are all told apart by ends, never by the ids of edges.
"""

import numpy as np
import torch
from torch import Tensor

from weft.draw import Stream, fold, row_keys
from weft.graph.degrees import edge_destinations
from weft.graph.graph import Graph
from weft.graph.transforms import kept
from weft.graph.views import EdgeView


def pair_ids(src: Tensor, dst: Tensor, num_nodes: int, *, undirected: bool = True) -> Tensor:
    """Return one number per pair, [n] int64; with `undirected` both directions have the same."""
    if undirected:
        src, dst = torch.minimum(src, dst), torch.maximum(src, dst)
    return src * num_nodes + dst


def mirrored(graph: EdgeView, *, within: bool = False) -> Tensor:
    """Return whether all edges of a relation have one the other way, [R] bool.

    It may be of whatever relation; with `within` of the same.
    """
    src, dst, kinds = edge_ends(graph)
    distinct, place = torch.unique(pair_ids(src, dst, graph.num_nodes), return_inverse=True)
    there = 2 * (place + kinds * len(distinct) if within else place) + (src > dst)
    alone = ~torch.isin(there ^ (src != dst), there)  # the last bit tells the direction
    return torch.bincount(kinds[alone], minlength=graph.num_relations) == 0


def edge_ends(graph: EdgeView) -> tuple[Tensor, Tensor, Tensor]:
    """Return source, target and relation of each edge in canonical order, [E] int64."""
    src, dst = graph.indices.long(), edge_destinations(graph.indptr)
    return src, dst, torch.zeros_like(src) if graph.edge_type is None else graph.edge_type.long()


def drawn_order(pairs: Tensor, seed: int, use: int = 0) -> Tensor:
    """Return the places of distinct pairs in an order drawn by their numbers, whatever order they come in."""
    keys = row_keys(fold(seed, Stream.SPLIT, layer=use), pairs.numpy())  # distinct, as the mix is one to one
    return torch.from_numpy(np.argsort(keys, kind="stable"))


def first_of_each(group: Tensor, *ranks: Tensor) -> Tensor:
    """Return the place of one member of each group, by group: the lowest by the ranks, the first foremost."""
    columns = [rank.numpy() for rank in reversed(ranks)]
    order = torch.from_numpy(np.lexsort((*columns, group.numpy())))
    ordered = group[order]
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return order[first]


def only(graph: Graph, edges: Tensor) -> Graph:
    """Return the graph with only some edges, a mask in canonical order; they stay in the user's order."""
    return kept(graph, graph.edge_ids[edges].long().sort().values)
