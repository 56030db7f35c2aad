"""Learned rows of a run: found for another graph by the user's ids of nodes, and written with them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.layers.learned import LearnedRows

ROWS_AT_ONCE = 1 << 16


def learned_tables(model: nn.Module) -> Iterator[tuple[str, LearnedRows]]:
    """Give the learned tables of a model by their places in it."""
    yield from ((place, each) for place, each in model.named_modules() if isinstance(each, LearnedRows))


def rows_by_id(model: nn.Module, trained: Graph | None, graph: Graph) -> dict[str, Tensor]:
    """Return the learned row of each node of a graph, by the names of the weights; an unknown node is named.

    `model` is made for the graph, its weights are of `trained`, whose nodes may be others, in another order.
    """
    if trained is None:
        return {}
    return {f"{place}.weight": _places(trained, graph, table.nodes) for place, table in learned_tables(model)}


def _places(trained: Graph, graph: Graph, nodes: range) -> Tensor:
    ends = list(zip(graph.node_offsets, graph.node_offsets[1:]))
    kind = graph.node_types[ends.index((nodes.start, nodes.stop))]
    place = trained.node_types.index(kind)
    count = trained.node_offsets[place + 1] - trained.node_offsets[place]
    ids = _ids(graph, kind, len(nodes))
    known = trained.node_ids.get(kind)
    try:
        if known is not None:
            return torch.from_numpy(known.find(ids))
        if ids.dtype.kind == "U":
            raise GraphError(f"no node has the id {str(ids[0])!r}: ids of {kind!r} are numbers")
        unknown = ids[(ids < 0) | (ids >= count)]
        if len(unknown):
            raise GraphError(f"no node has the id {int(unknown[0])} ({len(unknown):,} unknown)")
        return torch.from_numpy(ids.astype(np.int64))
    except GraphError as error:
        raise GraphError(f"{error} in training, which learned one row per node of {kind!r}") from None


def _ids(graph: Graph, kind: str, count: int) -> NDArray[Any]:
    """Return the user's ids of all nodes of a type; without any they are the numbers of the nodes."""
    known = graph.node_ids.get(kind)
    return np.arange(count) if known is None else known.values


def pieces_of(model: nn.Module) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Give nodes and their learned rows, table by table and some at a time."""
    for _, table in learned_tables(model):
        rows = table.weight.detach().cpu()
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            yield np.arange(len(some)) + (table.nodes.start + start), some
