"""Shards: every node and edge in exactly one, and together the whole graph."""

from typing import Any

import pytest
import torch
from generated_graphs import assert_equal, graphs, typed_graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from weft.errors import GraphError
from weft.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import Shard, make_shards

SQUARE = [[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]  # 0 → 1 → 2 → 3 → 0 and 0 → 2


@st.composite
def divided(draw: st.DrawFn) -> tuple[Graph, Assignment]:
    """Draw a graph and an assignment of its nodes or of its edges; parts may be empty or outnumber nodes."""
    graph = draw(st.one_of(graphs(), typed_graphs()))
    num_parts = draw(st.integers(1, 5))
    cuts: Any = draw(st.sampled_from(["nodes", "edges"]))
    count = graph.num_nodes if cuts == "nodes" else graph.num_edges
    parts = draw(st.lists(st.integers(0, num_parts - 1), min_size=count, max_size=count))
    return graph, Assignment(torch.tensor(parts, dtype=torch.int32), num_parts, cuts=cuts)


def test_a_part_holds_its_nodes_their_edges_and_the_remote_sources() -> None:
    first, second = make_shards(Graph.from_edges(SQUARE), torch.tensor([0, 1, 1, 0]))
    assert first.node_ids.tolist() == [0, 3]
    assert first.halo_ids.tolist() == [2]
    assert first.halo_part.tolist() == [1]
    assert first.indptr.tolist() == [0, 1, 2]
    assert first.indices.tolist() == [1, 2]  # 3 → 0 and 2 → 3: row 1 is node 3, row 2 the halo
    assert second.node_ids.tolist() == [1, 2]
    assert second.halo_ids.tolist() == [0]
    assert second.indices.tolist() == [2, 2, 0]
    assert second.degrees["out", None, False].tolist() == [1, 1, 2]


def test_a_part_says_the_ends_of_its_edges_and_the_degrees_of_its_nodes_as_the_whole_graph_does() -> None:
    graph = Graph.from_edges(SQUARE)
    held = [graph, *make_shards(graph, torch.tensor([0, 1, 1, 0]))]
    ends = [sorted(zip(*(end.tolist() for end in each.ends()))) for each in held]
    assert ends[0] == sorted(zip(*SQUARE)) == sorted(ends[1] + ends[2])
    degrees = [dict(zip(*(row.tolist() for row in each.own_out_degrees()))) for each in held]
    assert degrees[0] == {0: 2, 1: 1, 2: 1, 3: 1} == degrees[1] | degrees[2]
    assert {*degrees[1]} == {0, 3}


def test_halo_rows_are_sorted_by_owner_then_id() -> None:
    star = Graph.from_edges([[1, 2, 3, 4], [0, 0, 0, 0]])
    shard = make_shards(star, torch.tensor([0, 2, 1, 2, 1]))[0]
    assert shard.halo_ids.tolist() == [2, 4, 1, 3]
    assert shard.halo_part.tolist() == [1, 1, 2, 2]


def test_where_edges_are_assigned_ends_are_replicated_and_one_replica_is_the_root() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=4)
    first, second = make_shards(graph, Assignment(torch.tensor([0, 1], dtype=torch.int32), 2, cuts="edges"))
    assert {0, 1} <= set(first.node_ids.tolist())
    assert {1, 2} <= set(second.node_ids.tolist())
    assert len(first.halo_ids) == len(second.halo_ids) == 0
    roots = [first.node_ids[first.node_part == 0], second.node_ids[second.node_part == 1]]
    assert sorted(torch.cat(roots).tolist()) == [0, 1, 2, 3]  # node 3 has no edge and still a place


@settings(max_examples=40, deadline=None)
@given(divided())
def test_every_node_has_one_owner_and_every_edge_one_shard(case: tuple[Graph, Assignment]) -> None:
    graph, assignment = case
    shards = make_shards(graph, assignment)
    owned = torch.cat([shard.node_ids[shard.node_part == shard.part] for shard in shards])
    assert owned.sort().values.tolist() == list(range(graph.num_nodes))
    edges = torch.cat([shard.edge_ids for shard in shards])
    assert edges.sort().values.tolist() == list(range(graph.num_edges))


@settings(max_examples=40, deadline=None)
@given(divided())
def test_local_edges_mapped_back_are_those_of_the_graph(case: tuple[Graph, Assignment]) -> None:
    graph, assignment = case
    targets = torch.repeat_interleave(graph.indptr.diff())
    for shard in make_shards(graph, assignment):
        assert torch.equal(shard.row_ids[shard.indices.long()], graph.indices[shard.edge_ids].long())
        assert torch.equal(shard.node_ids.repeat_interleave(shard.indptr.diff()), targets[shard.edge_ids])
        if assignment.cuts == "nodes":
            assert torch.equal(shard.halo_part, assignment.parts[shard.halo_ids])
            assert not set(shard.halo_ids.tolist()) & set(shard.node_ids.tolist())
        for name, value in graph.edge_data.items():
            assert_equal(shard.edge_data[name], value[shard.edge_ids])


@settings(max_examples=40, deadline=None)
@given(divided())
def test_degrees_are_those_of_the_whole_graph(case: tuple[Graph, Assignment]) -> None:
    graph, assignment = case
    for shard in make_shards(graph, assignment):
        for key in all_degrees(graph):
            assert_equal(shard.degrees[key], graph.degree(*key)[shard.row_ids])


@settings(max_examples=40, deadline=None)
@given(divided())
def test_own_rows_have_their_data_by_type(case: tuple[Graph, Assignment]) -> None:
    graph, assignment = case
    for shard in make_shards(graph, assignment):
        for kind, rows in shard.type_ranges().items():
            ids = shard.node_ids[rows] - graph.rows_of_type(kind).start
            assert bool((ids >= 0).all())
            for name, value in graph.node_data[kind].items():
                assert_equal(dense(shard.node_data[kind][name]), dense(value)[ids])


@settings(max_examples=40, deadline=None)
@given(divided())
def test_all_shards_merged_are_the_whole_graph(case: tuple[Graph, Assignment]) -> None:
    graph, assignment = case
    whole = Shard.merge(make_shards(graph, assignment))
    assert whole.parts == tuple(range(assignment.num_parts))
    assert whole.node_ids.tolist() == list(range(graph.num_nodes))
    assert whole.edge_ids.tolist() == list(range(graph.num_edges))
    assert len(whole.halo_ids) == 0
    for name in ("indptr", "indices", "edge_type"):
        assert_equal(getattr(whole, name), getattr(graph, name))
    for name, value in graph.edge_data.items():
        assert_equal(whole.edge_data[name], value)
    for kind, data in graph.node_data.items():
        for name, value in data.items():
            assert_equal(dense(whole.node_data[kind][name]), dense(value))


@settings(max_examples=40, deadline=None)
@given(divided())
def test_merging_two_parts_is_making_them_one(case: tuple[Graph, Assignment]) -> None:
    graph, assignment = case
    if assignment.num_parts < 2 or assignment.cuts == "edges":
        return
    joined = Shard.merge(make_shards(graph, assignment)[:2])
    parts = torch.where(assignment.parts == 1, 0, assignment.parts)
    expected = make_shards(graph, Assignment(parts, assignment.num_parts))[0]
    for name in ("node_ids", "halo_ids", "halo_part", "indptr", "indices", "edge_ids", "edge_type"):
        assert_equal(getattr(joined, name), getattr(expected, name))
    for key in all_degrees(graph):
        assert_equal(joined.degrees[key], expected.degrees[key])


def test_a_part_without_edges_and_parts_beyond_the_nodes_are_legal() -> None:
    shards = make_shards(
        Graph.from_edges([[0], [1]], num_nodes=3), Assignment(torch.tensor([0, 0, 1]).int(), 5)
    )
    assert [len(shard.node_ids) for shard in shards] == [2, 1, 0, 0, 0]
    assert [len(shard.edge_ids) for shard in shards] == [1, 0, 0, 0, 0]
    assert shards[4].indptr.tolist() == [0]


def test_parts_of_another_graph_are_refused() -> None:
    with pytest.raises(GraphError, match="expected the part of each of 4 nodes"):
        make_shards(Graph.from_edges(SQUARE), torch.tensor([0, 1]))
    with pytest.raises(GraphError, match="0 … 1"):
        make_shards(Graph.from_edges(SQUARE), Assignment(torch.tensor([0, 1, 2, 0]).int(), 2))


def test_shards_that_do_not_belong_together_are_not_merged() -> None:
    graph = Graph.from_edges(SQUARE)
    two, three = (make_shards(graph, Assignment(torch.tensor([0, 1, 1, 0]).int(), n)) for n in (2, 3))
    with pytest.raises(GraphError, match="twice"):
        Shard.merge([two[0], two[0]])
    with pytest.raises(GraphError, match="different partitions"):
        Shard.merge([two[0], three[1]])


def all_degrees(graph: Graph) -> list[Any]:
    relations = [None, *range(graph.num_relations)]
    return [
        (way, relation, weighted) for way in ("in", "out") for relation in relations for weighted in (0, 1)
    ]


def dense(value: Any) -> Tensor:
    held: Tensor = value if isinstance(value, Tensor) else value.to_dense()
    return held
