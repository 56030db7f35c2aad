"""Batches of edges."""

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pair_jobs
import pytest
import torch
from hidden_graphs import removed, weighted_graph
from ranks import run_ranks
from torch import Tensor, nn

from weft.comm import Group
from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.graph.parts.shard import make_shards
from weft.layers.base import layers
from weft.layers.stack import Stack
from weft.samplers import EdgeLoader, LaborSampler, NegativeSampler, NeighborSampler, split_edges
from weft.samplers.gpu import transfer
from weft.samplers.gpu.transfer import Courier, tensors_of
from weft.samplers.workers.partitioned import PartitionedSampler


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
    with pytest.raises(GraphError, match="got -3"):
        EdgeLoader(NeighborSampler(graph, [1]), NegativeSampler(graph), [5, -3])
    with pytest.raises(GraphError, match="pairs: expected ids 0 … 39, got 40"):
        EdgeLoader(NeighborSampler(graph, [1]), None, Pairs(torch.tensor([3]), torch.tensor([40])))
    with pytest.raises(InputError, match="hide: its draws see all edges"):
        EdgeLoader(LaborSampler(graph, [1]), None)  # type: ignore[arg-type]
    workers = PartitionedSampler(make_shards(graph, torch.zeros(40).int())[0], Group.alone(), [1])
    with pytest.raises(InputError, match="pairs: with workers expected Pairs"):
        EdgeLoader(workers, None)
    with pytest.raises(InputError, match="courier: batches of workers stay"):
        EdgeLoader(workers, None, Pairs(*graph.edge_index.long()), courier=Courier("cpu", graph))


# Pairs of any kind, and any negatives


def some_pairs(graph: Graph, **columns: Tensor) -> Pairs:
    """Return pairs that are no edges, in an order and with keys of their own."""
    made = torch.Generator().manual_seed(4)
    src, dst = torch.randint(graph.num_nodes, (2, 30), generator=made)
    return Pairs(src, dst, torch.arange(30) * 7, data={"w": torch.rand(30, 2, generator=made)}, **columns)


def test_pairs_bring_what_is_known_of_them_and_need_no_negatives() -> None:
    graph = random_graph()
    pairs = some_pairs(graph, y=torch.arange(30) % 3)
    seen = []
    for batch in EdgeLoader(NeighborSampler(graph, [4, 4]), None, pairs, batch_size=8):
        places = batch.edges // 7
        assert torch.equal(batch.nodes.seeds[batch.src], pairs.src[places])
        assert torch.equal(batch.nodes.seeds[batch.dst], pairs.dst[places])
        assert torch.equal(batch.pairs.y, places % 3)
        assert torch.equal(batch.pairs.data["w"], pairs.data["w"][places])
        assert batch.negative.shape == (len(places), 0)
        assert batch.total == len(places)
        seen.append(places)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(30))


def test_negatives_may_be_shared_or_of_both_sides_and_know_the_whole_step() -> None:
    graph = random_graph()
    pairs, steps = some_pairs(graph), []

    def joint(some: Pairs, epoch: int, step: int, *, batch: Pairs) -> Any:
        steps.append((epoch, step, batch.keys.tolist()))
        masked = some.dst[:, None] == torch.arange(5)
        return SimpleNamespace(nodes=torch.arange(5), masked=masked, log_q=torch.zeros(5))

    loader = EdgeLoader(NeighborSampler(graph, [2]), joint, pairs, batch_size=8, threads=0)
    loader.seek(3)
    for batch in loader:
        assert torch.equal(batch.nodes.seeds[batch.negative], torch.arange(5))
        assert torch.equal(batch.masked, batch.pairs.dst[:, None] == torch.arange(5))
        assert batch.log_q.shape == (5,)
    assert [(epoch, step) for epoch, step, _ in steps] == [(3, step) for step in range(4)]
    assert sorted(key for *_, keys in steps for key in keys) == pairs.keys.tolist()

    def both(some: Pairs, epoch: int, step: int, *, batch: Pairs) -> Tensor:
        return torch.stack([(some.keys + each) % 40 for each in range(3)], 1).repeat(2, 1)

    batch = EdgeLoader(NeighborSampler(graph, [2]), both, pairs, batch_size=8).batch(0, 1)
    assert batch.negative.shape == (16, 3)
    assert torch.equal(batch.nodes.seeds[batch.negative[8:]], both(batch.pairs, 0, 1, batch=batch.pairs)[8:])


def test_no_end_of_a_pair_sees_what_came_after_it() -> None:
    graph, made = random_graph(), torch.Generator().manual_seed(6)
    time = torch.randint(9, (graph.num_edges,), generator=made)
    timed = Graph.from_edges(graph.edge_index, x=graph.x, edge_time=time)
    pairs = some_pairs(graph, time=torch.arange(30) % 9)
    sampler = NeighborSampler(timed, [-1, -1], temporal=True)
    shown = 0
    for batch in EdgeLoader(sampler, NegativeSampler(timed, 2), pairs, batch_size=11):
        seeds = batch.nodes.seeds
        until = torch.full((len(seeds),), -1)
        for rows in (batch.src[:, None], batch.dst[:, None], batch.negative):
            known = until[rows]
            assert bool(((known == -1) | (known == batch.pairs.time[:, None])).all()), "one row, one time"
            until[rows] = batch.pairs.time[:, None].expand_as(rows)
        assert torch.equal(seeds[batch.src], batch.pairs.src)
        assert torch.equal(seeds[batch.dst], batch.pairs.dst)
        for block in batch.blocks:
            row_seed = batch.nodes.seed_of[: block.num_dst][block.edge_dst]
            came = block.edge("time")
            assert bool((came <= until[row_seed]).all())
            shown += int((came == until[row_seed]).sum())
    assert shown, "edges of the same time are seen"

    def joint(some: Pairs, epoch: int, step: int, *, batch: Pairs) -> Tensor:
        return torch.arange(3)

    with pytest.raises(InputError, match="different times cannot share"):
        EdgeLoader(sampler, joint, pairs).batch(0, 0)


# On their way to a device


def test_all_of_a_batch_is_carried_with_the_degrees_of_the_graph_that_it_sees() -> None:
    graph = weighted_graph(typed=True)
    sampler, negatives = NeighborSampler(graph, [3, 3]), NegativeSampler(graph, 2)
    batch = EdgeLoader(sampler, negatives, batch_size=12).batch(0, 0)
    batch.masked = torch.zeros(12, 2, dtype=torch.bool)
    near = batch.carried(Courier("cpu", graph))
    for name in ("src", "dst", "negative", "masked", "edges", "x"):
        assert torch.equal(getattr(near, name), getattr(batch, name)), name
    for mine, theirs in zip(near.blocks, batch.blocks):
        assert torch.equal(mine.edge("weight"), theirs.edge("weight"))
        for relation in (None, 0, 1, 2):
            for weighted in (False, True):
                for ask in ("in_degree", "out_degree"):
                    pair = (getattr(each, ask)("src", relation, weighted=weighted) for each in (mine, theirs))
                    assert torch.equal(*pair)
    graph = random_graph()  # without data of edges, which stay behind
    far = loader(graph).batch(0, 0).carried(Courier("meta", graph))
    far.masked = far.src > 0
    assert {each.device.type for each in tensors_of(far)} == {"meta"}
    assert found_in(far, far.src, far.negative, far.masked, far.pairs.keys, far.blocks[0].indices, far.x)


def found_in(value: Any, *wanted: Tensor) -> bool:
    given = list(tensors_of(value))
    return all(any(each is tensor for each in given) for tensor in wanted)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_courier_hands_over_the_batches_of_a_loader(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(record_event=lambda: event, wait_event=lambda given: None)
    event = SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(transfer, "new_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda given: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    graph = random_graph()
    carried = list(loader(graph, threads=threads, courier=Courier("cpu", graph)))
    for mine, theirs in zip(carried, loader(graph, threads=0), strict=True):
        for name in ("src", "dst", "negative", "edges", "x"):
            assert torch.equal(getattr(mine, name), getattr(theirs, name)), name
        for block, other in zip(mine.blocks, theirs.blocks):
            assert torch.equal(block.indices, other.indices)
            assert torch.equal(block.in_degree(), other.in_degree())


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


@pytest.mark.parametrize("size", [1, 2, 4])
def test_any_number_of_workers_has_the_pairs_and_the_rows_of_one_process(size: int) -> None:
    answers = (
        [pair_jobs.pair_batches(Group.alone())] if size == 1 else run_ranks(size, pair_jobs.pair_batches)
    )
    for wrong in answers:
        assert wrong == []
