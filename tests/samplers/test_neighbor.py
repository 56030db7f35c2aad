"""NeighborSampler: which edges are drawn, what blocks say of them, and what sums over them stand for."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from sampler_graphs import AUTHOR, CITES, random_graph, typed_graph

import weft
from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.kernels import native
from weft.samplers import Batch, NeighborSampler


def same(one: Batch, other: Batch) -> bool:
    pairs = [(one.nodes, other.nodes)]
    for a, b in zip(one.blocks, other.blocks, strict=True):
        pairs += [(a.indptr, b.indptr), (a.indices, b.indices), (a.edge_ids, b.edge_ids)]
    return all(torch.equal(a, b) for a, b in pairs)


def test_blocks_hold_edges_of_the_graph_with_seeds_first() -> None:
    graph = random_graph()
    batch = NeighborSampler(graph, [4, 3], seed=5).sample([7, 3, 11])
    assert batch.seeds.tolist() == [7, 3, 11]
    assert [block.num_dst for block in batch.blocks] == [batch.blocks[1].num_src, 3]
    assert torch.equal(batch.blocks[0].src_ids, batch.nodes)
    assert batch.nodes.unique().numel() == batch.num_nodes
    for block, fanout in zip(batch.blocks, (3, 4)):
        src, dst = block.src_ids[block.indices.long()], block.dst_ids[block.edge_dst]
        assert torch.equal(src, graph.indices[block.edge_ids].long())
        assert torch.equal(dst, torch.repeat_interleave(graph.indptr.diff())[block.edge_ids])
        degree = graph.in_degree()[block.dst_ids]
        assert torch.equal(block.indptr.diff().float(), degree.clamp(max=fanout))
        assert block.edge_ids.unique().numel() == block.num_edges
        assert torch.equal(block.in_degree("src"), graph.in_degree()[block.src_ids])
        assert block.typed_rows("src") == [("node", slice(0, block.num_src))]  # type: ignore[attr-defined]
        assert block.type_ranges("dst") == {"node": slice(0, block.num_dst)}


def test_hops_are_drawn_anew_and_once_is_not() -> None:
    graph = Graph.from_edges([[*range(1, 40), 0], [0] * 39 + [1]])
    far, near = NeighborSampler(graph, [5, 5]).sample([0]).blocks
    assert set(far.edge_ids[:5].tolist()) != set(near.edge_ids.tolist())
    far, near = NeighborSampler(graph, [5, 5], expand="once").sample([0]).blocks
    assert torch.equal(far.edge_ids[:5], near.edge_ids)


def test_a_node_keeps_its_sample_for_an_epoch() -> None:
    graph = random_graph()

    def drawn(resample: Any, epoch: int, step: int, seeds: list[int]) -> set[int]:
        block = NeighborSampler(graph, [3], resample=resample).sample(seeds, epoch, step).blocks[0]
        return set(block.edge_ids[: int(block.indptr[1])].tolist())

    assert drawn("epoch", 2, 0, [4]) == drawn("epoch", 2, 9, [4, 5, 6])
    assert drawn("epoch", 2, 0, [4]) != drawn("epoch", 3, 0, [4])
    assert drawn("step", 2, 0, [4]) != drawn("step", 2, 9, [4])


def test_a_graph_may_be_shared_with_other_processes_meanwhile() -> None:
    graph = random_graph(4000, 60_000)
    sampler, seeds = NeighborSampler(graph, [5, 5]), torch.arange(0, 4000, 7)
    before = sampler.sample(seeds)
    for part in (graph.indptr, graph.indices):
        address = part.data_ptr()
        part.share_memory_()
        assert part.data_ptr() != address
    assert same(before, sampler.sample(seeds))


def test_seeds_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(GraphError, match=r"expected seeds \[n\] of node ids, got \['a'\]"):
        NeighborSampler(random_graph(), [2]).sample(["a"])


def test_degree_two_and_fanout_one_draw_both_neighbours() -> None:
    graph = Graph.from_edges([[1, 2], [0, 0]])
    drawn = [NeighborSampler(graph, [1]).sample([0], epoch).nodes[1].item() for epoch in range(400)]
    assert 150 < drawn.count(1) < 250


def test_all_edges_equal_the_whole_graph() -> None:
    graph = random_graph(x=torch.rand(60, 5), y=[0, 1, 2] * 20).add_self_loops()
    seeds = torch.arange(0, 60, 7)
    for name in ("sage", "gcn", "gat", "gin"):
        torch.manual_seed(0)
        model = weft.nn.Stack(5, 3, layer=name, layers=2, hidden=8, dropout=0.0)
        gradients = []
        for batch in (None, NeighborSampler(graph, [-1, -1]).sample(seeds)):
            model.zero_grad()
            out = model(graph.block(), graph.x)[seeds] if batch is None else model(batch.blocks, batch.x)
            out.square().sum().backward()
            gradients.append([out.detach(), *[p.grad.clone() for p in model.parameters()]])
        for whole, sampled in zip(*gradients):
            torch.testing.assert_close(sampled, whole, rtol=1e-4, atol=1e-5)


def test_heavy_edges_are_drawn_in_proportion() -> None:
    graph = Graph.from_edges([[1, 2, 3, 4], [0] * 4], edge_weight=torch.tensor([1.0, 2.0, 5.0, 0.0]))
    sampler = NeighborSampler(graph, [1], weight="weight")
    drawn = [int(sampler.sample([0], epoch).nodes[1]) for epoch in range(2000)]
    counts = [drawn.count(node) / 2000 for node in (1, 2, 3, 4)]
    torch.testing.assert_close(
        torch.tensor(counts), torch.tensor([1 / 8, 2 / 8, 5 / 8, 0.0]), atol=0.03, rtol=0
    )
    two = NeighborSampler(graph, [3], weight="weight").sample([0]).blocks[0]
    assert two.num_edges == 3  # an edge without weight is never drawn
    assert two.edge_scale is not None
    assert two.edge_scale.tolist() == [1.0, 1.0, 1.0]


def test_typed_rows_come_by_type_in_each_hop() -> None:
    graph = typed_graph()
    fanout = [{AUTHOR: 2, CITES: 3}, {AUTHOR: 1, CITES: 0}]
    batch = NeighborSampler(graph, fanout).sample(torch.arange(10, 16))
    near, far = batch.blocks[1], batch.blocks[0]
    for block, limits in ((near, (2, 3)), (far, (1, 0))):
        assert block.edge_type is not None
        dst_rows = block.edge_dst
        for row in range(block.num_dst):
            kinds = block.edge_type[dst_rows == row].tolist()
            assert kinds == sorted(kinds)
            for relation, limit in enumerate(limits):
                degree = int(graph.in_degree(relation)[block.dst_ids[row]])
                assert kinds.count(relation) == min(limit, degree)
    runs = near.typed_rows("src")  # type: ignore[attr-defined]
    assert [kind for kind, _ in runs] == ["paper", "author", "paper"]
    assert runs[0][1] == slice(0, runs[1][1].start)
    with pytest.raises(GraphError, match="rows of type 'paper' lie in several ranges"):
        near.type_ranges("src")
    assert batch.x["paper"].shape[0] + batch.x["author"].shape[0] == batch.num_nodes
    papers = batch.nodes[batch.nodes >= 10] - 10
    assert torch.equal(batch.x["paper"], graph.x["paper"][papers])
    assert batch.y is not None
    assert batch.y.tolist() == graph.y[:6].tolist()  # type: ignore[index]


def test_rows_as_a_whole_keep_the_order_of_relations() -> None:
    graph = random_graph(edge_type=torch.arange(900) % 3)
    block = NeighborSampler(graph, [6]).sample(range(30)).blocks[0]
    assert block.edge_type is not None
    assert block.indptr.diff().max() == 6
    for row in range(30):
        kinds = block.edge_type[block.indptr[row] : block.indptr[row + 1]].tolist()
        assert kinds == sorted(kinds)


def test_typed_models_run_on_all_edges_as_on_the_whole_graph() -> None:
    graph = typed_graph()
    info = weft.layers.base.GraphInfo.of(graph)
    seeds = torch.arange(10, 25, 2)
    for name in ("rgcn", "hgt"):
        torch.manual_seed(0)
        model = weft.nn.Stack(8, 2, layer=name, layers=2, hidden=8, dropout=0.0, info=info)
        batch = NeighborSampler(graph, [-1, -1]).sample(seeds)
        whole = model(graph.block(), graph.x)[seeds]
        torch.testing.assert_close(model(batch.blocks, batch.x), whole, rtol=1e-4, atol=1e-5)


def test_pyg_convolutions_that_normalise_see_drawn_edges_scaled() -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn import GCNConv

    graph = random_graph(x=torch.rand(60, 4)).add_self_loops()
    conv = GCNConv(4, 3, add_self_loops=False)
    block = NeighborSampler(graph, [3]).sample(range(12)).blocks[0]
    h = graph.x[block.src_ids]
    expected = block.aggregate(h @ conv.lin.weight.t(), **_gcn(block)) + conv.bias
    torch.testing.assert_close(weft.nn.PyG(conv)(block, h), expected, rtol=1e-4, atol=1e-5)


def _gcn(block: Any) -> dict[str, Any]:
    return weft.layers.base.gcn_scales(block, torch.float32)


# Time


# Threads


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_any_number_of_threads_gives_the_same_batches(threads: int) -> None:
    sampler = NeighborSampler(random_graph(), [4, 3])
    seeds = [torch.arange(start, start + 9) for start in range(0, 50, 5)]
    expected = [sampler.sample(one, 1) for one in seeds]
    with ThreadPoolExecutor(threads) as pool:
        made = list(pool.map(lambda one: sampler.sample(one, 1), seeds))
    assert all(same(a, b) for a, b in zip(expected, made))


# PyG


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fanout": []}, "a fanout for each hop"),
        ({"fanout": [2.5]}, "a number of edges"),
        ({"fanout": [-2]}, "-1 for all"),
        ({"fanout": [10**20]}, "a number of edges"),
        ({"fanout": 5}, "a fanout for each hop"),
        ({"fanout": [{("a", "b", "c"): 1}]}, "no relation"),
        ({"fanout": [1], "weight": "heavy"}, "no edge data 'heavy'"),
        ({"fanout": [1], "pick": "top"}, "'top' where edges have a weight"),
        ({"fanout": [1], "weight": torch.full((900,), -1.0)}, "at least 0"),
        ({"fanout": [1], "replace": True, "weight": torch.ones(900)}, "without replacement"),
        ({"fanout": [1], "temporal": True}, "needs edge_time"),
        ({"fanout": [1], "expand": "twice"}, "expand must be"),
        ({"fanout": [1], "resample": "never"}, "resample must be"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NeighborSampler(random_graph(), **options)


def test_mixed_seeds_must_be_sorted_by_type() -> None:
    with pytest.raises(GraphError, match="sorted by type"):
        NeighborSampler(typed_graph(), [2]).sample([12, 3])


# AliGraph's ways of choosing neighbours


def test_the_heaviest_edges_are_taken_and_their_mean_is_the_rows() -> None:
    made = torch.Generator().manual_seed(3)
    weight = torch.randint(6, (900,), generator=made).double()  # some alike, some 0
    graph = random_graph(edge_weight=weight, edge_type=torch.arange(900) % 3)
    kinds = dict(zip(graph.edge_types, (1, 4, 0)))
    sampler = NeighborSampler(graph, [4, kinds], weight="weight", pick="top")
    batch, held = sampler.sample(range(60), 0), graph.edge_data["weight"]
    assert torch.equal(sampler.sample(range(60), 5).blocks[0].edge_ids, batch.blocks[0].edge_ids)
    for block, counts in zip(reversed(batch.blocks), ((4, 4, 4), (1, 4, 0))):
        for row, node in enumerate(block.dst_ids.tolist()):
            mine = block.edge_ids[block.indptr[row] : block.indptr[row + 1]]
            into = torch.arange(int(graph.indptr[node]), int(graph.indptr[node + 1]))
            for relation, count in enumerate(counts):
                here = into[graph.edge_type[into] == relation]  # type: ignore[index]
                heaviest = sorted(here[held[here] > 0].tolist(), key=lambda e: (-float(held[e]), e))[:count]
                assert mine[graph.edge_type[mine] == relation].tolist() == sorted(heaviest)  # type: ignore[index]
    block, h = batch.blocks[-1], torch.rand(60, 2, dtype=torch.float64, generator=made)
    part = block.relation(1)
    found = block.aggregate(h[batch.nodes], "mean", relation=1)
    row = next(row for row in range(60) if part.indptr[row + 1] > part.indptr[row])
    taken = h[batch.nodes][part.indices[part.indptr[row] : part.indptr[row + 1]].long()]
    torch.testing.assert_close(found[row], taken.mean(0), rtol=1e-6, atol=0)


def test_sources_are_drawn_by_their_in_degree() -> None:
    sources = torch.arange(1, 6)
    into = torch.repeat_interleave(sources, torch.tensor([1, 2, 3, 0, 6]))  # in-degrees of 1 … 5
    edges = torch.cat([torch.stack([sources, torch.zeros(5).long()]), torch.stack([into * 0 + 6, into])], 1)
    graph = Graph.from_edges(edges, num_nodes=7)
    sampler = NeighborSampler(graph, [1], weight="in_degree")
    drawn = torch.tensor([int(sampler.sample([0], epoch).nodes[1]) for epoch in range(3000)])
    counts = torch.bincount(drawn, minlength=7)[1:6].double()
    expected = torch.tensor([1.0, 2.0, 3.0, 0.0, 6.0]).double() / 12 * 3000
    assert counts[3] == 0
    chi = float((((counts - expected) ** 2)[expected > 0] / expected[expected > 0]).sum())
    assert chi < 22  # 3 degrees of freedom: beyond it once in ten thousand
    again = [int(sampler.sample([0], epoch).nodes[1]) for epoch in range(20)]
    assert again == drawn[:20].tolist()


@pytest.mark.parametrize("options", [{"weight": "weight", "pick": "top"}, {"weight": "in_degree"}], ids=str)
def test_both_cores_choose_them_alike(options: dict[str, Any]) -> None:
    weight = torch.rand(900, generator=torch.Generator().manual_seed(5)).round(decimals=1)
    graph = random_graph(edge_weight=weight)
    sampler, gone = NeighborSampler(graph, [3, 2], **options), torch.arange(0, 900, 7)
    for hidden in (None, gone):
        mine = sampler.sample(range(30), 1, hidden=hidden)
        with native.disabled():
            theirs = sampler.sample(range(30), 1, hidden=hidden)
        assert torch.equal(mine.nodes, theirs.nodes)
        for a, b in zip(mine.blocks, theirs.blocks):
            assert torch.equal(a.edge_ids, b.edge_ids)
            assert torch.equal(a.edge_scale, b.edge_scale)  # type: ignore[attr-defined]
