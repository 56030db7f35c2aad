"""NeighborSampler: which edges are drawn, what blocks say of them, and what sums over them stand for."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import weft
from weft.errors import GraphError, InputError
from weft.graph import Graph, SparseFeatures
from weft.kernels import native
from weft.samplers import Batch, NeighborSampler

AUTHOR = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")


def random_graph(num_nodes: int = 60, num_edges: int = 900, **data: Any) -> Graph:
    made = torch.Generator().manual_seed(1)
    edges = torch.randint(num_nodes - 3, (2, num_edges), generator=made)  # three nodes have no edges
    return Graph.from_edges(edges, num_nodes=num_nodes, **data)


def typed_graph() -> Graph:
    made = torch.Generator().manual_seed(2)
    writes = torch.stack([torch.randint(10, (60,), generator=made), torch.randint(15, (60,), generator=made)])
    cites = torch.randint(15, (2, 90), generator=made)
    nodes = {"author": {"x": torch.rand(10, 3)}, "paper": {"x": torch.rand(15, 4), "y": [0, 1, 0] * 5}}
    return Graph.from_types(nodes, {AUTHOR: writes, CITES: cites})


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


@pytest.mark.parametrize("how", ["uniform", "replace", "weight", "relations"])
def test_sums_and_means_estimate_those_of_the_whole_graph(how: str) -> None:
    made = torch.Generator().manual_seed(3)
    weight = torch.rand(900, generator=made) + 0.1
    graph = random_graph(edge_weight=weight, edge_type=torch.arange(900) % 2)
    options: dict[str, Any] = {"replace": {"replace": True}, "weight": {"weight": "weight"}}.get(how, {})
    fanout: Any = [4] if how != "relations" else [{kind: 2 + k for k, kind in enumerate(graph.edge_types)}]
    sampler = NeighborSampler(graph, fanout, **options)
    h = torch.rand(60, 2, generator=made, dtype=torch.float64) + 0.5
    seeds = torch.arange(60)
    for reduce in ("sum", "mean"):
        whole = graph.block().aggregate(h, reduce)
        total = torch.zeros_like(whole)
        for epoch in range(400):
            block = sampler.sample(seeds, epoch).blocks[0]
            total += block.aggregate(h[block.src_ids], reduce)
        assert (total / 400 - whole).abs().max() < 0.15 * whole.abs().max()
        assert (total.sum() / 400 / whole.sum() - 1).abs() < 0.02


def test_user_messages_are_scaled_like_sums() -> None:
    graph = random_graph(edge_weight=torch.rand(900))
    for options in ({}, {"weight": "weight"}):
        block = NeighborSampler(graph, [4], **options).sample(range(20)).blocks[0]
        h = torch.rand(block.num_src, 3)
        for reduce in ("sum", "mean"):
            made = block.propagate(lambda u: u * 2, src=[h], reduce=reduce)
            torch.testing.assert_close(made, 2 * block.aggregate(h, reduce))
        largest = block.propagate(lambda u: u, src=[h], reduce="max")
        torch.testing.assert_close(largest, block.aggregate(h, "max"))


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


def temporal_graph(later: int = 0) -> Graph:
    """Return a graph whose edges after time 50 depend on `later`."""
    made = torch.Generator().manual_seed(4)
    edges = torch.randint(30, (2, 600), generator=made)
    time = torch.arange(600) // 6
    made.manual_seed(100 + later)
    edges[:, time > 50] = torch.randint(30, (2, int((time > 50).sum())), generator=made)
    return Graph.from_edges(edges, num_nodes=30, edge_time=time)


def test_no_edge_is_later_than_its_seed() -> None:
    graph = temporal_graph()
    times = torch.tensor([50, 10, 99, 0])
    batch = NeighborSampler(graph, [5, 5], temporal=True).sample([1, 2, 3, 4], times=times)
    assert batch.seed_of is not None
    for block in batch.blocks:
        seed = batch.seed_of[: block.num_dst][block.edge_dst]
        assert (block.edge("time") <= times[seed]).all()
        assert torch.equal(batch.seed_of[block.indices.long()], seed)  # nothing passes from seed to seed
        src = block.src_ids[block.indices.long()]
        assert torch.equal(src, graph.indices[block.edge_ids].long())
        for row in range(block.num_dst):
            into = slice(int(graph.indptr[block.dst_ids[row]]), int(graph.indptr[block.dst_ids[row] + 1]))
            seen = int((graph.edge_data["time"][into] <= times[batch.seed_of[row]]).sum())
            assert block.in_degree()[row] == seen
            assert block.indptr[row + 1] - block.indptr[row] == min(5, seen)


def test_the_future_and_other_seeds_change_nothing() -> None:
    found = []
    for later, others in ((0, [9]), (1, [4, 8])):
        graph = temporal_graph(later)
        sampler = NeighborSampler(graph, [4, 4], temporal=True)
        times = torch.tensor([50] + [70] * len(others))
        batch = sampler.sample([3, *others], times=times)
        block = batch.blocks[0]
        assert batch.seed_of is not None
        own = batch.seed_of[: block.num_dst][block.edge_dst] == 0
        given = graph.edge_ids[block.edge_ids[own]].sort().values
        h = torch.arange(30.0)[block.src_ids][:, None]
        found.append((given, block.aggregate(h)[batch.seed_of[: block.num_dst] == 0]))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1].sort(0).values, found[1][1].sort(0).values)


def test_one_node_at_two_times_is_two_seeds() -> None:
    sampler = NeighborSampler(temporal_graph(), [5], temporal=True)
    block = sampler.sample([3, 3], times=torch.tensor([5, 90])).blocks[0]
    assert block.num_dst == 2
    assert block.in_degree()[0] < block.in_degree()[1]
    with pytest.raises(GraphError, match="twice"):
        sampler.sample([3, 3], times=torch.tensor([5, 5]))
    with pytest.raises(GraphError, match="needs the time of each seed"):
        sampler.sample([3])
    for time in (torch.nan, torch.inf):
        with pytest.raises(GraphError, match="the time of seed 4 is not a finite number"):
            sampler.sample([3, 4], times=torch.tensor([5.0, time]))


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


def test_pyg_gets_one_graph_with_counts_of_hops() -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.utils import trim_to_layer

    graph = random_graph(x=torch.rand(60, 5), y=[0, 1, 2] * 20)
    seeds = torch.arange(0, 60, 7)
    data = NeighborSampler(graph, [4, 3]).sample(seeds).to_pyg()
    assert data.batch_size == len(seeds)
    assert torch.equal(data.n_id[: len(seeds)], seeds)
    assert torch.equal(data.x, graph.x[data.n_id])
    assert torch.equal(data.n_id[data.edge_index], graph.edge_index[:, data.e_id])
    assert sum(data.num_sampled_nodes) == data.num_nodes
    assert sum(data.num_sampled_edges) == data.edge_index.shape[1]
    x, edge_index, _ = trim_to_layer(
        1, data.num_sampled_nodes, data.num_sampled_edges, data.x, data.edge_index
    )
    assert edge_index.max() < x.shape[0]
    batch = NeighborSampler(graph, [4, 3], expand="once").sample(seeds)
    assert torch.equal(batch.to_pyg().edge_index, batch.blocks[0].edge_index())


def test_pyg_models_run_on_batches_of_sparse_features() -> None:
    pyg = pytest.importorskip("torch_geometric")
    dense = torch.rand(60, 5) * (torch.rand(60, 5) < 0.3)
    graph = random_graph(x=SparseFeatures.from_dense(dense), y=[0, 1, 2] * 20)
    data = NeighborSampler(graph, [4, 3]).sample(torch.arange(0, 60, 7)).to_pyg()
    assert torch.equal(data.x, dense[data.n_id])
    model = pyg.nn.GraphSAGE(5, 8, num_layers=2, out_channels=3)
    model(data.x, data.edge_index).sum().backward()


def test_pyg_gets_types_by_name() -> None:
    pytest.importorskip("torch_geometric")
    graph = typed_graph()
    data = NeighborSampler(graph, [2, 2]).sample(torch.arange(10, 16)).to_pyg()
    whole = graph.to_pyg()
    assert data["paper"].batch_size == 6
    assert data["paper"].n_id[:6].tolist() == list(range(6))
    assert torch.equal(data["author"].x, whole["author"].x[data["author"].n_id])
    for source, relation, target in (AUTHOR, CITES):
        store, full = data[source, relation, target], whole[source, relation, target]
        ends = torch.stack([data[source].n_id[store.edge_index[0]], data[target].n_id[store.edge_index[1]]])
        assert torch.equal(ends, full.edge_index[:, store.e_id])
        assert sum(store.num_sampled_edges) == store.edge_index.shape[1]


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
