"""Blocks by relation: a source row for each (relation, source) pair that occurs."""

import pytest
import torch
from generated_graphs import adjacency, graphs
from hypothesis import given, settings

from weft import kernels
from weft.errors import GraphError
from weft.graph import Additive, Graph


def test_pairs_are_sorted_by_relation() -> None:
    graph = Graph.from_edges(
        [[0, 1, 1, 2], [2, 2, 0, 2]], edge_type=[1, 0, 1, 1], edge_weight=[1.0, 2.0, 3.0, 4.0]
    )
    block = graph.block()
    pairs = block.by_relation()
    assert pairs is block.by_relation()
    assert pairs.rows.tolist() == [1, 0, 1, 2]
    assert pairs.offsets.tolist() == [0, 1, 4]
    assert (pairs.num_src, pairs.num_dst, pairs.num_edges) == (4, 3, 4)
    assert pairs.src_ids.tolist() == [1, 0, 1, 2]
    assert torch.equal(pairs.edge("weight"), block.edge("weight"))
    assert pairs.in_degree().tolist() == [1, 0, 3]
    assert pairs.in_degree("src").tolist() == [0, 1, 0, 3]
    assert pairs.out_degree().tolist() == [2, 1, 2, 1]
    with pytest.raises(GraphError, match="pairs; use dst"):
        pairs.dst(torch.ones(4, 1))


def test_pairs_follow_the_clock_of_their_block() -> None:
    block = Graph.from_edges([[0, 1], [1, 0]], edge_type=[0, 1]).block()
    pairs, part = block.by_relation(), block.relation(1)
    block.clock = torch.tensor([1, 2, 3])
    assert pairs.clock is block.clock
    assert part.clock is block.clock


def test_relations_without_edges_are_empty_ranges() -> None:
    block = Graph.from_edges([[0], [1]], edge_type=[1], num_relations=3).block()
    assert block.by_relation().offsets.tolist() == [0, 0, 1, 1]
    empty = Graph.from_edges([[], []], num_nodes=2, edge_type=[], num_relations=2).block().by_relation()
    assert empty.offsets.tolist() == [0, 0, 0]
    assert empty.aggregate(torch.ones(0, 3)).tolist() == [[0, 0, 0]] * 2


@settings(deadline=None, max_examples=60)
@given(graph=graphs(relations=3))
def test_a_weight_for_each_relation_equals_a_sum_of_dense_products(graph: Graph) -> None:
    make = torch.Generator().manual_seed(0)
    h = torch.randn(graph.num_nodes, 2, dtype=torch.float64, generator=make).requires_grad_()
    weights = torch.randn(3, 2, 4, dtype=torch.float64, generator=make).requires_grad_()
    block = graph.block()
    pairs = block.by_relation()
    transformed = kernels.segment_matmul(kernels.gather(block.src(h), pairs.rows), pairs.offsets, weights)
    out = pairs.aggregate(transformed)
    dense = sum(adjacency(graph, relation=relation) @ h @ weights[relation] for relation in range(3))
    assert torch.allclose(out, torch.as_tensor(dense))
    for ours, theirs in zip(
        torch.autograd.grad(out.square().sum(), [h, weights]),
        torch.autograd.grad(torch.as_tensor(dense).square().sum(), [h, weights]),
    ):
        assert torch.allclose(ours, theirs)


@settings(deadline=None, max_examples=30)
@given(graph=graphs())
def test_attention_over_pairs_equals_attention_over_sources(graph: Graph) -> None:
    block, make = graph.block(), torch.Generator().manual_seed(0)
    pairs = block.by_relation()
    score, value = (
        torch.randn(graph.num_nodes, 2, *tail, dtype=torch.float64, generator=make) for tail in ((), (3,))
    )
    plain = block.attend(Additive(score, score), value)
    assert torch.allclose(pairs.attend(Additive(score[pairs.rows], score), value[pairs.rows]), plain)
