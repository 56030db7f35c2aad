"""Blocks: what layers see, against dense matrices and by hand."""

import pytest
import torch
from generated_graphs import adjacency, graphs
from hypothesis import given, settings
from torch import Tensor

from weft.errors import GraphError
from weft.graph import Additive, Block, DotScore, GATv2Score, Graph, SparseFeatures

EDGES = [[0, 1, 2, 0, 2], [1, 2, 0, 2, 2]]


def features(graph: Graph, width: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(
        graph.num_nodes, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def test_block_shows_the_whole_graph() -> None:
    graph = Graph.from_edges(EDGES, edge_weight=[1.0, 2.0, 3.0, 4.0, 5.0])
    block = graph.block()
    assert (block.num_src, block.num_dst, block.num_edges) == (3, 3, 5)
    assert block.src_ids.tolist() == block.dst_ids.tolist() == [0, 1, 2]
    assert block.edge_ids.tolist() == [0, 1, 2, 3, 4]
    assert block.edge_index().tolist() == [[2, 0, 0, 1, 2], [0, 1, 2, 2, 2]]
    assert block.edge("weight").tolist() == [3, 1, 4, 2, 5]
    assert block.has_edge("weight")
    with pytest.raises(GraphError, match="no edge data 'attr'; it has: weight"):
        block.edge("attr")


def test_src_and_dst_of_a_whole_graph_are_its_rows() -> None:
    block = Graph.from_edges(EDGES).block()
    h = torch.ones(3, 2)
    assert block.src(h) is h
    assert block.dst(h) is h
    with pytest.raises(GraphError, match="expected 3 rows, one per source of the block; got 2"):
        block.aggregate(torch.ones(2, 2))


def test_rows_of_a_smaller_block_keep_their_ids_and_degrees_of_the_whole_graph() -> None:
    graph = Graph.from_edges(EDGES, edge_weight=[1.0, 2.0, 3.0, 4.0, 5.0])
    part = Block(  # only 1→2 of the three edges into node 2
        torch.tensor([0, 1]),
        torch.tensor([1], dtype=torch.int32),
        num_src=2,
        src_ids=torch.tensor([2, 1]),
        edge_ids=torch.tensor([3]),
        edge_data=graph.edge_data,
        degrees=graph,
    )
    assert part.dst_ids.tolist() == [2]
    assert part.in_degree().tolist() == [3]
    assert part.in_degree("src").tolist() == [3, 1]
    assert part.out_degree().tolist() == [2, 1]
    assert part.edge("weight").tolist() == [2]
    h = torch.tensor([[5.0], [6.0]])
    assert part.dst(h).tolist() == [[5]]
    assert part.aggregate(h, "mean").tolist() == [[2]]  # 6 over the three edges of the whole graph


def test_mean_of_an_isolated_node_is_zero() -> None:
    block = Graph.from_edges([[0], [1]], num_nodes=3).block()
    assert block.aggregate(torch.ones(3, 1), "mean").tolist() == [[0], [1], [0]]


@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2), (3, 2, 2, 2)])
def test_aggregate_takes_rows_of_any_shape(shape: tuple[int, ...]) -> None:
    graph = Graph.from_edges(EDGES)
    h = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    expected = (adjacency(graph) @ h.reshape(3, -1)).reshape(shape)
    assert torch.equal(graph.block().aggregate(h), expected)


def test_the_same_tensor_may_be_passed_twice() -> None:
    block = Graph.from_edges(EDGES).block()
    h = torch.randn(3, 2, requires_grad=True)
    both = block.aggregate(h) + block.aggregate(h)
    assert torch.allclose(both, 2 * block.aggregate(h))
    (both.sum()).backward()
    assert h.grad is not None
    assert torch.equal(h.grad[:, 0], 2 * block.out_degree())


def test_ties_of_a_maximum_share_the_gradient() -> None:
    block = Graph.from_edges([[0, 1, 2, 2], [3, 3, 3, 3]], num_nodes=4).block()
    h = torch.tensor([[5.0], [1.0], [5.0], [0.0]], requires_grad=True)
    block.aggregate(h, "max").sum().backward()
    assert h.grad is not None
    # three edges attain 5: one from node 0, two from node 2
    assert torch.allclose(h.grad.flatten(), torch.tensor([1 / 3, 0, 2 / 3, 0]))


def test_unknown_reduction_is_refused() -> None:
    with pytest.raises(GraphError, match="sum, mean, max or min, got 'median'"):
        Graph.from_edges(EDGES).block().aggregate(torch.ones(3, 1), "median")


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_sum_and_mean_equal_dense_products(graph: Graph) -> None:
    block, dense, h = graph.block(), adjacency(graph), features(graph)
    h.requires_grad_()
    out = block.aggregate(h)
    assert torch.allclose(out, dense @ h)
    grad = torch.ones_like(out)
    assert torch.allclose(torch.autograd.grad(out, h, grad)[0], dense.t() @ grad)
    mean = dense / dense.sum(1, keepdim=True).clamp(min=1)
    assert torch.allclose(block.aggregate(h, "mean"), mean @ h)


@settings(deadline=None, max_examples=40)
@given(graph=graphs())
def test_weights_and_scales_multiply_edges_and_rows(graph: Graph) -> None:
    block, h = graph.block(), features(graph)
    scale = 1 + torch.arange(graph.num_nodes, dtype=torch.float64)
    assert torch.allclose(
        block.aggregate(h, src_scale=scale, dst_scale=1 / scale),
        adjacency(graph) @ (h * scale[:, None]) / scale[:, None],
    )
    if "weight" in graph.edge_data:
        weight = block.edge("weight").clone().requires_grad_()
        out = block.aggregate(h, weight=weight)
        assert torch.allclose(out, adjacency(graph, weighted=True) @ h)
        out.sum().backward()
        assert weight.grad is not None
        assert torch.allclose(weight.grad, h[block.indices.long()].sum(1))


@settings(deadline=None, max_examples=40)
@given(graph=graphs(relations=3))
def test_one_relation_is_the_dense_product_of_its_edges(graph: Graph) -> None:
    block, h = graph.block(), features(graph)
    weight = torch.rand(graph.num_edges, dtype=torch.float64)
    for relation in range(3):
        dense = adjacency(graph, relation=relation)
        assert torch.allclose(block.aggregate(h, relation=relation), dense @ h)
        count = dense.sum(1, keepdim=True).clamp(min=1)
        assert torch.allclose(block.aggregate(h, "mean", relation=relation), dense @ h / count)
        assert torch.equal(block.in_degree(relation=relation).double(), dense.sum(1))
        assert torch.equal(block.out_degree(relation=relation).double(), dense.sum(0))
        assert block.relation(relation) is block.relation(relation)
    parts = sum(block.aggregate(h, weight=weight, relation=relation) for relation in range(3))
    assert torch.allclose(torch.as_tensor(parts), block.aggregate(h, weight=weight))
    with pytest.raises(GraphError, match="relation 3 asked for, the block has 3"):
        block.aggregate(h, relation=3)


@settings(deadline=None, max_examples=40)
@given(graph=graphs())
def test_maximum_and_minimum_equal_a_loop(graph: Graph) -> None:
    block, h = graph.block(), features(graph)
    dense = adjacency(graph)
    for reduce, pick in (("max", torch.amax), ("min", torch.amin)):
        expected = torch.zeros_like(h)
        for v in range(graph.num_nodes):
            sources = dense[v].nonzero().flatten()
            if len(sources):
                expected[v] = pick(h[sources], 0)
        assert torch.equal(block.aggregate(h, reduce), expected)


def dense_attention(graph: Graph, score: Tensor, value: Tensor) -> Tensor:
    """Softmax over incoming edges, edge by edge: score [E, H] in block order, value [N, H, D]."""
    block = graph.block()
    out = torch.zeros(graph.num_nodes, *value.shape[1:], dtype=value.dtype)
    for v in range(graph.num_nodes):
        edges = slice(int(block.indptr[v]), int(block.indptr[v + 1]))
        alpha = torch.softmax(score[edges], 0)
        out[v] = (alpha.unsqueeze(-1) * value[block.indices[edges].long()]).sum(0)
    return out


@settings(deadline=None, max_examples=30)
@given(graph=graphs())
def test_attention_of_every_score_equals_a_loop(graph: Graph) -> None:
    block, n, e = graph.block(), graph.num_nodes, graph.num_edges
    make = torch.Generator().manual_seed(1)
    a, b, v = (torch.randn(n, 2, 3, dtype=torch.float64, generator=make) for _ in range(3))
    edge = torch.randn(e, 2, 3, dtype=torch.float64, generator=make)
    weight = torch.randn(2, 3, dtype=torch.float64, generator=make)
    src, dst = block.edge_index()
    slope = torch.nn.functional.leaky_relu

    additive = slope(a[src, :, 0] + b[dst, :, 0] + edge[..., 0], 0.1)
    out = block.attend(
        Additive(a[..., 0].contiguous(), b[..., 0].contiguous(), 0.1, edge[..., 0].contiguous()), v
    )
    assert torch.allclose(out, dense_attention(graph, additive, v))

    gatv2 = (slope(a[src] + b[dst] + edge, 0.2) * weight).sum(-1)
    assert torch.allclose(
        block.attend(GATv2Score(a, b, weight, edge=edge), v), dense_attention(graph, gatv2, v)
    )

    dot = 0.5 * (a[src] * b[dst]).sum(-1)
    assert torch.allclose(block.attend(DotScore(a, b, 0.5), v), dense_attention(graph, dot, v))


def test_attention_dropout_follows_the_clock_and_the_layer() -> None:
    graph = Graph.from_edges(torch.randint(0, 20, (2, 200), generator=torch.Generator().manual_seed(0)))
    block, n = graph.block(clock=torch.tensor([1, 0, 0])), graph.num_nodes
    score, value = Additive(torch.zeros(n, 1), torch.zeros(n, 1)), torch.rand(n, 1, 2)
    first = block.attend(score, value, 0.5)
    assert torch.equal(first, block.attend(score, value, 0.5))
    assert not torch.equal(first, block.attend(score, value, 0.5, layer=1))
    assert block.clock is not None
    block.clock[1] = 7
    assert not torch.equal(first, block.attend(score, value, 0.5))
    block.clock = None
    torch.manual_seed(3)
    fresh = block.attend(score, value, 0.5)
    assert not torch.equal(fresh, block.attend(score, value, 0.5))
    torch.manual_seed(3)
    assert torch.equal(fresh, block.attend(score, value, 0.5))


def test_a_block_that_communicates_overrides_src_alone() -> None:
    class Doubling(Block):
        def src(self, h):  # type: ignore[no-untyped-def, override]
            return torch.cat([h, 10 * h])

    block = Doubling(
        torch.tensor([0, 1]), torch.tensor([1]), num_src=2
    )  # holds one row, the other is fetched
    h = torch.tensor([[3.0]])
    assert block.aggregate(h).tolist() == [[30]]
    assert block.propagate(lambda u, v: u + v, src=[h], dst=[block.dst(h)]).tolist() == [[33]]
    assert block.attend(Additive(h, h), h.unsqueeze(-1)).tolist() == [[[30]]]


def test_what_is_cached_is_made_once_and_outlives_inference_mode() -> None:
    block = Graph.from_edges(EDGES).block()
    with torch.inference_mode():
        norm = block.cached("norm", lambda: block.in_degree().rsqrt())
    assert not norm.is_inference()
    assert block.cached("norm", lambda: torch.zeros(0)) is norm


def test_sparse_features_aggregate_to_sparse_ones_where_that_stays_small() -> None:
    dense = torch.zeros(3, 64)
    dense[0, 3], dense[1, 7], dense[2, 3] = 2.0, 3.0, 4.0
    graph = Graph.from_edges(EDGES, x=SparseFeatures.from_dense(dense))
    block = graph.block()
    assert block.aggregates_sparse(graph.x)
    assert block.prefers_aggregate_first(graph.x)
    out = block.aggregate(graph.x, "mean")
    assert isinstance(out, SparseFeatures)
    assert torch.allclose(out.to_dense(), block.aggregate(dense, "mean"))
    assert block.dst(graph.x) is graph.x


def test_sparse_features_that_would_fill_up_aggregate_to_dense_ones() -> None:
    x = SparseFeatures.from_dense(torch.eye(3))
    graph = Graph.from_edges(EDGES, x=x)
    assert not graph.block().aggregates_sparse(x)
    assert not graph.block().prefers_aggregate_first(x)
    out = graph.block().aggregate(x)
    assert isinstance(out, Tensor)
    assert torch.equal(out.double(), adjacency(graph))


@settings(deadline=None, max_examples=40)
@given(graph=graphs())
def test_sparse_aggregation_equals_the_dense_one(graph: Graph) -> None:
    block = graph.block()
    dense = features(graph, 600) * (features(graph, 600, seed=1) > 1.5)
    sparse = SparseFeatures.from_dense(dense)
    scale = 1 + torch.arange(graph.num_nodes, dtype=torch.float64)
    out = block.aggregate(sparse, "mean", src_scale=scale, dst_scale=scale)
    expected = block.aggregate(dense, "mean", src_scale=scale, dst_scale=scale)
    assert torch.allclose(out if isinstance(out, Tensor) else out.to_dense(), expected)


def test_degrees_of_a_block_with_more_destinations_than_sources() -> None:
    block = Block(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 0]), num_src=2)
    assert block.in_degree().tolist() == [1, 1, 1]
    assert block.in_degree("src").tolist() == [1, 1]
    assert block.out_degree().tolist() == [2, 1]
    assert block.out_degree("dst").tolist() == [2, 1, 0]
    h = torch.tensor([[2.0], [4.0]])
    assert block.aggregate(h, "mean").flatten().tolist() == [2, 4, 2]


def test_own_degrees_are_by_row_whatever_the_ids() -> None:
    block = Block(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1]), num_src=2, src_ids=torch.tensor([70, 50]))
    assert block.in_degree().tolist() == [1, 2]
    assert block.relation(0).in_degree().tolist() == [1, 2]
    assert block.out_degree().tolist() == [1, 2]


def test_weights_of_a_16_bit_input_keep_their_precision() -> None:
    block = Block(torch.tensor([0, 2]), torch.tensor([0, 1]), num_src=2)
    h = torch.tensor([[256.0], [256.0]], dtype=torch.bfloat16)
    out = block.aggregate(h, weight=torch.tensor([1 + 1 / 512, -1.0]))
    assert out.dtype == torch.bfloat16
    assert out.tolist() == [[0.5]]


def test_the_destinations_of_edges_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), num_src=2)
    assert block.edge_dst.tolist() == [0, 0, 1]
    monkeypatch.setattr(block, "indptr", None)  # read again, it would fail
    assert block.edge_dst.tolist() == [0, 0, 1]
