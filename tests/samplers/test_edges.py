"""Batches of edges."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.kernels import native
from weft.layers.base import layers
from weft.layers.stack import Stack
from weft.samplers import EdgeLoader, NegativeSampler, NeighborSampler, split_edges


def random_graph() -> Graph:
    made = torch.Generator().manual_seed(0)
    edges = torch.randint(40, (2, 150), generator=made)
    return Graph.from_edges(edges, num_nodes=40, x=torch.rand(40, 3, generator=made)).symmetrise()


def loader(graph: Graph, **options: object) -> EdgeLoader:
    return EdgeLoader(
        NeighborSampler(graph, [-1, 4]),
        NegativeSampler(graph, 2),
        batch_size=50,
        **options,  # type: ignore[arg-type]
    )


def test_rows_are_the_ends_of_the_edges_and_every_edge_comes_once() -> None:
    graph, seen = random_graph(), []
    for batch in loader(graph):
        seeds = batch.nodes.seeds
        assert torch.equal(seeds[batch.src], graph.indices[batch.edges].long())
        assert torch.equal(seeds[batch.dst], torch.repeat_interleave(graph.indptr.diff())[batch.edges])
        assert batch.negative.shape == (len(batch.edges), 2)
        assert torch.equal(batch.x, graph.x[batch.nodes.nodes])
        assert batch.blocks[-1].num_dst == len(seeds)
        seen.append(batch.edges)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(graph.num_edges))


def test_no_message_flows_along_an_edge_that_is_to_be_predicted_or_its_reverse() -> None:
    graph = random_graph()
    shown = 0
    for hide in (True, False):
        for batch in loader(graph, hide=hide):
            seeds = batch.nodes.seeds
            ends = torch.stack([seeds[batch.src], seeds[batch.dst]]).T.tolist()
            asked = {tuple(pair) for pair in ends} | {(v, u) for u, v in ends}
            for block in batch.blocks:
                src, dst = block.src_ids[block.indices.long()], block.dst_ids[block.edge_dst]
                flows = set(zip(src.tolist(), dst.tolist()))
                shown += len(flows & asked) if not hide else 0
                assert not (hide and flows & asked)
                assert torch.equal(
                    block.indptr.diff(), torch.bincount(block.edge_dst, minlength=block.num_dst)
                )
                if not hide:
                    assert torch.equal(block.in_degree(), graph.in_degree()[block.dst_ids])
    assert shown  # there was something to hide


def test_the_same_batches_on_any_number_of_threads_and_after_a_resume() -> None:
    graph = random_graph()
    one = [(batch.edges, batch.negative, batch.nodes.nodes) for batch in loader(graph, threads=0)]
    later = loader(graph, threads=3)
    later.load_state({"epoch": 0, "step": 1})
    two = [(batch.edges, batch.negative, batch.nodes.nodes) for batch in later]
    assert len(one) == len(two) + 1
    assert all(torch.equal(a, b) for first, second in zip(one[1:], two) for a, b in zip(first, second))


def test_a_split_hides_both_directions_and_keeps_the_rest() -> None:
    graph = random_graph()
    left, val, test = split_edges(graph, val=0.1, test=0.2)
    kept = {tuple(pair) for pair in left.edge_index.T.tolist()}
    held = {tuple(pair) for pair in torch.cat([val, test], 1).T.tolist()}
    assert len(held) == val.shape[1] + test.shape[1]
    assert not kept & (held | {(v, u) for u, v in held})
    everything = {tuple(pair) for pair in graph.edge_index.T.tolist()}
    assert kept | held | {(v, u) for u, v in held} == everything
    assert torch.equal(left.x, graph.x)
    with pytest.raises(InputError, match="shares"):
        split_edges(graph, val=0.5, test=0.5)


def test_edges_outside_are_refused() -> None:
    graph = random_graph()
    with pytest.raises(GraphError, match="expected places"):
        EdgeLoader(NeighborSampler(graph, [1]), NegativeSampler(graph), [graph.num_edges])
    with pytest.raises(GraphError, match="hidden: expected places"):
        NeighborSampler(graph, [1]).sample([0], hidden=torch.tensor([graph.num_edges]))
    with pytest.raises(InputError, match="reverse: nothing is hidden"):
        loader(graph, hide=False, reverse=True)


def test_hidden_edges_do_not_come_back_as_pyg_data() -> None:
    pytest.importorskip("torch_geometric")
    graph = random_graph()
    for expand in ("hop", "once"):
        sampler = NeighborSampler(graph, [-1, 4], expand=expand)  # type: ignore[arg-type]
        for batch in EdgeLoader(sampler, NegativeSampler(graph, 2), batch_size=50):
            seeds = batch.nodes.seeds
            ends = torch.stack([seeds[batch.src], seeds[batch.dst]]).T.tolist()
            data = batch.nodes.to_pyg()
            flows = {tuple(pair) for pair in data.n_id[data.edge_index].T.tolist()}
            assert flows
            assert not flows & ({tuple(pair) for pair in ends} | {(v, u) for u, v in ends})
            assert sum(data.num_sampled_edges) == data.edge_index.shape[1]
            first = data.edge_index[1, : data.num_sampled_edges[0]]
            assert int(first.max()) < len(seeds), "edges of the first hop go to seeds"


def test_what_an_edge_loader_cannot_do_is_refused_by_name() -> None:
    graph = random_graph()
    with pytest.raises(InputError, match="courier: batches of edges"):
        loader(graph, courier=object())
    with pytest.raises(GraphError, match="got -3"):
        EdgeLoader(NeighborSampler(graph, [1]), NegativeSampler(graph), [5, -3])


# A hidden edge is a removed edge

EDGE_TYPES = tuple(("node", name, "node") for name in "abc")
LAYER_OPTIONS: dict[str, dict[str, Any]] = {
    "gat": {"heads": 2},
    "gatv2": {"heads": 2},
    "gine": {"edge_features": 3},
    "rgcn": {"num_relations": 3, "bases": 2},
    "hgt": {"edge_types": EDGE_TYPES, "heads": 2},
    "appnp": {"hops": 2},
}
LAYERS = [(name, LAYER_OPTIONS.get(name, {})) for name in layers.names()]
LAYERS += [("sage", {"aggregate": how}) for how in ("sum", "max")] + [("rgcn", {"num_relations": 3})]


def weighted_graph(*, typed: bool) -> Graph:
    """Return an undirected graph with parallel edges, a self loop, weights and, if typed, relations."""
    made = torch.Generator().manual_seed(1)
    edges = torch.randint(30, (2, 110), generator=made)
    edges = torch.cat([edges, edges[:, :15], torch.tensor([[3], [3]])], 1)
    count = edges.shape[1]
    twice = {
        "edge_weight": torch.rand(count, generator=made, dtype=torch.float64).repeat(2) + 0.1,
        "edge_attr": torch.randn(count, 3, generator=made, dtype=torch.float64).repeat(2, 1),
        "edge_type": torch.randint(3, (count,), generator=made).repeat(2) if typed else None,
    }
    x = torch.randn(30, 6, generator=made, dtype=torch.float64)
    relations = 3 if typed else None
    return Graph.from_edges(
        torch.cat([edges, edges.flip(0)], 1), num_nodes=30, x=x, num_relations=relations, **twice
    )


def removed(graph: Graph, edges: Tensor) -> Graph:
    """Return the graph built again without some canonical edges."""
    kept = torch.ones(graph.num_edges, dtype=torch.bool)
    kept[graph.edge_ids[edges].long()] = False
    kinds = graph.given_edge_type()
    return Graph.from_edges(
        graph.edge_index[:, kept],
        num_nodes=graph.num_nodes,
        x=graph.x,
        edge_type=None if kinds is None else kinds[kept],
        num_relations=graph.num_relations if kinds is not None else None,
        **{f"edge_{name}": value[kept] for name, value in graph.given_edge_data().items()},
    )


def between(graph: Graph, batch: Any) -> Tensor:
    """Return the edges that join the ends of a batch's edges, either way, by looking at all."""
    seeds = batch.nodes.seeds
    ends = torch.stack([seeds[batch.src], seeds[batch.dst]]).T.tolist()
    asked = {tuple(pair) for pair in ends} | {(v, u) for u, v in ends}
    src, dst = graph.indices.tolist(), torch.repeat_interleave(graph.indptr.diff()).tolist()
    return torch.tensor([edge for edge, pair in enumerate(zip(src, dst)) if pair in asked])


def result(model: nn.Module, blocks: Sequence[Any], x: Any) -> list[Tensor]:
    """Return the outputs, the gradient of the input and those of all parameters."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    out = model(blocks, x)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    (out * weight).sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("fanout", [-1, 3])
@pytest.mark.parametrize("typed", [False, True])
def test_a_batch_with_hidden_edges_is_that_of_a_graph_without_them_for_every_layer(
    typed: bool, fanout: int
) -> None:
    graph = weighted_graph(typed=typed)
    sampler = NeighborSampler(graph, [fanout] * 2)
    batch = next(iter(EdgeLoader(sampler, NegativeSampler(graph, 2), batch_size=12, threads=0)))
    gone = between(graph, batch)
    assert len(gone) > 24, "parallel copies and reverses are among them"
    without = removed(graph, gone)
    expected = NeighborSampler(without, [fanout] * 2).sample(batch.nodes.seeds)
    assert torch.equal(batch.nodes.nodes, expected.nodes)
    for name, options in LAYERS:
        if name in ("rgcn", "hgt") and not typed:
            continue
        torch.manual_seed(0)
        inside = {"hidden": 5} if name == "appnp" else {"hidden": 6}
        model = Stack(6, 6, layer=name, dropout=0.0, **inside, **options).double()
        mine, theirs = result(model, batch.blocks, batch.x), result(model, expected.blocks, expected.x)
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")
    for block, other in zip(batch.blocks, expected.blocks):
        for relation in [None, 0, 1, 2] if typed else [None]:
            for weighted in (False, True):
                for ask in ("in_degree", "out_degree"):
                    pair = (getattr(b, ask)("src", relation, weighted=weighted) for b in (block, other))
                    torch.testing.assert_close(*pair, rtol=0, atol=0)


@pytest.mark.parametrize(
    "options", [{}, {"replace": True}, {"weight": "weight"}, {"temporal": True}, {"expand": "once"}], ids=str
)
def test_what_is_hidden_is_not_drawn_and_fanouts_stay_whole(options: dict[str, Any]) -> None:
    made = torch.Generator().manual_seed(2)
    graph = weighted_graph(typed=True)
    graph = Graph.from_edges(
        graph.edge_index, num_nodes=30, edge_type=graph.given_edge_type(), num_relations=3,
        edge_weight=graph.given_edge_data()["weight"], edge_time=torch.arange(graph.num_edges) % 7,
    )  # fmt: skip
    gone = torch.randperm(graph.num_edges, generator=made)[:60].sort().values
    seeds = torch.arange(20)
    given = {"times": torch.full((20,), 4)} if "temporal" in options else {}
    sampler = NeighborSampler(graph, sampler_fanout(graph), **options)
    batch = sampler.sample(seeds, hidden=gone, **given)
    with native.disabled():
        same = sampler.sample(seeds, hidden=gone, **given)
    other = NeighborSampler(removed(graph, gone), sampler_fanout(graph), **options).sample(seeds, **given)
    assert torch.equal(batch.nodes, same.nodes)
    for mine, theirs, built in zip(batch.blocks, same.blocks, other.blocks):
        assert torch.equal(mine.edge_ids, theirs.edge_ids)
        assert not torch.isin(mine.edge_ids, gone).any()
        assert torch.equal(mine.edge_scale, theirs.edge_scale)
        if "weight" not in options:  # whose draws are keyed by the ids of edges, which are others there
            assert torch.equal(mine.indices, built.indices)
            assert torch.equal(mine.edge_scale, built.edge_scale)
            assert torch.equal(mine.in_degree(), built.in_degree())
            assert torch.equal(mine.in_degree("src", 1), built.in_degree("src", 1))


def test_both_ends_of_a_hidden_edge_have_a_degree_less() -> None:
    graph = Graph.from_edges([[0, 0, 3], [1, 2, 1]], num_nodes=4)  # nothing leads to 0
    (block,) = NeighborSampler(graph, [-1]).sample(range(4), hidden=torch.tensor([0])).blocks
    assert block.out_degree("src").tolist() == [1, 0, 0, 1]
    assert block.in_degree("src").tolist() == [0, 1, 1, 0]


def sampler_fanout(graph: Graph) -> list[Any]:
    return [3, dict.fromkeys(graph.edge_types, 2)]


def test_node_types_and_their_reverses_are_hidden_by_endpoints() -> None:
    made = torch.Generator().manual_seed(3)
    writes = torch.stack([torch.randint(8, (40,), generator=made), torch.randint(12, (40,), generator=made)])
    order = torch.randperm(40, generator=made)  # the reverse relation has its edges in another order
    cites = torch.stack([torch.arange(11), torch.arange(1, 12)])
    graph = Graph.from_types(
        {"author": {"x": torch.rand(8, 4)}, "paper": {"x": torch.rand(12, 4), "y": [0, 1] * 6}},
        {
            ("author", "writes", "paper"): writes,
            ("paper", "by", "author"): writes.flip(0)[:, order],
            ("paper", "cites", "paper"): cites,
        },
    )
    for batch in EdgeLoader(NeighborSampler(graph, [-1, 2]), NegativeSampler(graph), batch_size=16):
        kinds, seeds = graph.edge_type[batch.edges], batch.nodes.seeds  # type: ignore[index]
        asked = set()
        for kind, u, v in zip(kinds.tolist(), seeds[batch.src].tolist(), seeds[batch.dst].tolist()):
            asked |= {(u, v)} if graph.edge_types[kind][1] == "cites" else {(u, v), (v, u)}
        for block in batch.blocks:
            src, dst = block.src_ids[block.indices.long()], block.dst_ids[block.edge_dst]
            assert not set(zip(src.tolist(), dst.tolist())) & asked
        nearest = batch.blocks[-1]  # of all neighbours
        assert torch.equal(nearest.in_degree(), nearest.indptr.diff().float())


def test_a_directed_graph_keeps_its_direction() -> None:
    edges = torch.tensor([[5, 4, 3, 2, 1, 0, 2], [4, 3, 2, 1, 0, 5, 5]])
    graph = Graph.from_edges(torch.cat([edges, edges[:, :2].flip(0)], 1), x=torch.rand(6, 2))
    given = {tuple(pair) for pair in graph.edge_index.T.tolist()}
    left, val, test = split_edges(graph, val=0.3, test=0.3)
    held = {tuple(pair) for pair in torch.cat([val, test], 1).T.tolist()}
    kept = {tuple(pair) for pair in left.edge_index.T.tolist()}
    assert held <= given
    assert kept == given - held
    _, *parts = split_edges(graph, val=0.3, test=0.3, undirected=True)
    assert {tuple(pair) for pair in torch.cat(parts, 1).T.tolist()} <= given
    there = 4 * 6 + 5  # 4 → 5, whose reverse is there too
    place = (graph.indices.long() * 6 + torch.repeat_interleave(graph.indptr.diff()) == there).nonzero()[0]
    for reverse, seen in ((None, True), (True, False)):
        options = {"threads": 0, "reverse": reverse}
        loader = EdgeLoader(NeighborSampler(graph, [-1]), NegativeSampler(graph), place, **options)  # type: ignore[arg-type]
        block = next(iter(loader)).blocks[0]
        ends = zip(block.src_ids[block.indices.long()].tolist(), block.dst_ids[block.edge_dst].tolist())
        flows = set(ends)
        assert (4, 5) not in flows
        assert ((5, 4) in flows) is seen
