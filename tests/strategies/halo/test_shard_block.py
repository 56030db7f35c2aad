"""What blocks of a shard share, whether it is cut by nodes or by edges."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from halo_jobs import graph_of, parts_of

from weft.comm.group import Group
from weft.errors import GraphError
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import make_shards
from weft.strategies.halo.block import HaloBlock
from weft.strategies.halo.shard_block import ShardBlock
from weft.strategies.local import LocalGraph
from weft.strategies.merged.vertex_cut import VertexCut


def by_nodes(kind: str) -> ShardBlock:
    """Return the block of one of two parts of nodes."""
    shard = make_shards(graph_of(kind), parts_of(kind, 2))[0]
    exchange: Any = SimpleNamespace(kept=None, scale=1.0)
    return HaloBlock(shard, exchange, Group.alone())


def by_edges(kind: str) -> ShardBlock:
    """Return the block of all edges."""
    graph = graph_of(kind)
    edges = torch.zeros(graph.num_edges, dtype=torch.int32)
    assignment = Assignment(edges, 1, cuts="edges")
    return VertexCut(LocalGraph(make_shards(graph, assignment)[0])).layout.block


BLOCKS = pytest.mark.parametrize("make", [by_nodes, by_edges])


@BLOCKS
def test_edge_data_comes_in_block_order_or_what_there_is_is_named(make: Callable[[str], ShardBlock]) -> None:
    block = make("hub")
    assert block.edge("weight").shape == (block.num_edges,)
    with pytest.raises(GraphError, match="no edge data 'time'; it has: weight"):
        block.edge("time")


@BLOCKS
def test_rows_by_type_are_those_that_a_caller_holds(make: Callable[[str], ShardBlock]) -> None:
    block = make("typed")
    ranges = block.type_ranges("src")
    assert list(ranges) == ["paper", "author", "venue"]
    assert ranges == block.type_ranges("dst")
    assert sum(rows.stop - rows.start for rows in ranges.values()) == block.num_dst


@BLOCKS
def test_messages_of_the_wrong_shape_are_refused_in_the_same_words(make: Callable[[str], ShardBlock]) -> None:
    block, few = make("directed"), torch.ones(2, 1)
    with pytest.raises(GraphError, match="reduce must be one of max, mean, min, softmax, sum; got 'median'"):
        block.propagate(lambda v: v, dst=[torch.ones(block.num_dst, 1)], reduce="median")
    with pytest.raises(GraphError, match=r"propagate: dst tensors need \d+ rows, got 2; pass block.dst"):
        block.propagate(lambda v: v, dst=[few])
    with pytest.raises(GraphError, match=r"propagate: edge tensors need \d+ rows, got 2$"):
        block.propagate(lambda e: e, edge=[few])
