"""What ranks do in the tests of the sampled strategy: importable by name, so that other processes find it."""

import tempfile
import warnings
from typing import Any

import numpy as np
import torch
from halo_jobs import MODELS, far, graph_of, local_graph, model_of, parts_of, trained
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import spread
from weft.graph.graph import Graph
from weft.graph.parts.closure import close
from weft.graph.parts.shard import Shard, make_shards
from weft.graph.sparse import SparseFeatures
from weft.samplers import Batch, NeighborSampler
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.samplers.workers.replicas import Replicate, importance, important, with_replicas
from weft.stores import rankers
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.closing import closed_shard
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.minibatch.sampler_ranks import SamplerRank
from weft.train.inference.infer import infer
from weft.train.model import adapt

# A fanout a hop for each relation, named in full or by its own word.
OWN = {"paper cites paper": [2, 3], "writes": [3, 1], "venue holds paper": [0, 1], "of": [-1, 1]}
# Model, graph, options. Four seeds a batch, so that with four ranks some have none in a step.
Case = tuple[str, str, dict[str, Any]]
CASES: list[Case] = [
    ("gcn", "directed", {"fanout": [3, 2], "batch_size": 4}),
    ("sage max", "isolated", {"fanout": [2, 2, 2], "batch_size": 4, "prepare": 0}),
    ("gcn", "hub", {"fanout": [5, 2], "batch_size": 7}),
    ("gat", "hub", {"fanout": [4, 4], "batch_size": 7, "sampler": {"weight": "weight"}}),
    ("gin", "sparse", {"fanout": [2, 3], "batch_size": 5, "sampler": {"resample": "step"}}),
    ("gin", "sparse", {"fanout": [3, 3], "batch_size": 5, "sampler": {"replace": True}}),
    ("rgcn", "typed", {"fanout": [2, 2], "batch_size": 4}),
    ("hgt", "typed", {"fanout": [2, 1], "batch_size": 4, "evaluate": [2, 2]}),
    ("gcn", "directed", {"fanout": -1, "batch_size": 1000}),
    ("gcn", "hub", {"fanout": [3, 2], "batch_size": 7, "sampler": "labor"}),
    ("gin", "hub", {"fanout": [3, 2], "batch_size": 7, "sampler": {"weight": "in_degree"}}),
    ("gin", "hub", {"fanout": [3, 2], "batch_size": 7, "sampler": {"weight": "weight", "pick": "top"}}),
    ("rgcn", "typed", {"fanout": OWN, "batch_size": 4}),
    ("rgcn", "typed", {"fanout": OWN, "batch_size": 4, "sampler": {"name": "labor", "shared_hops": True}}),
]


def outputs(model: Any, graph: Any) -> Tensor:
    """Return exact outputs piece by piece, as the trainer gives them to strategies."""
    return infer(model, graph).tensor()


def equal_to_one_process(group: Group, share: int = 1) -> list[str]:
    """Train by samples on all ranks and in one process; return where they differ.

    One in `share` of the cases also in float32, with sampling ranks, or, others, on closed parts.
    """
    wrong = []
    for place, (name, kind, options) in enumerate(CASES):
        for dtype in (torch.float64,) if place % share else (torch.float32, torch.float64):
            graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=dtype)
            num_parts = 4 if group.size == 2 else group.size
            local = local_graph(group, graph, parts_of(kind, num_parts), num_parts)
            reference = trained(Sampled(graph, seed=3, **options), model_of(graph, name, dtype))
            found = trained(Sampled(local, seed=3, group=group, **options), model_of(local, name, dtype))
            bound = 1e-5 if dtype == torch.float32 else 1e-10
            for what, value in reference.items():
                distance = far(found[what], value)
                if not distance <= bound:
                    wrong.append(f"{name} on {kind} in {dtype}: {what} differs by {distance:.1e}")
    wrong += by_time(group)
    wrong += same_batches(group)
    wrong += stores(group)
    wrong += sampler_ranks(group, CASES[::share])
    wrong += closed_parts(group, CASES[share - 1 :: share])
    wrong += own_shuffles(group)
    wrong += pauses(group)
    return wrong


def timed_graph(kind: str, later: int = 0) -> Graph:
    """Return a graph whose edges have times 0 … 9 and whose nodes to train on and to test have 0 … 6.

    Where edges later than 6 begin depends on `later`.
    """
    graph = graph_of(kind)
    made = torch.Generator().manual_seed(11)
    edges, time = graph.edge_index, torch.randint(10, (graph.num_edges,), generator=made)
    if later:
        made = torch.Generator().manual_seed(later)
        late = (time > 6).nonzero().flatten()
        edges[0, late] = edges[0, late[torch.randperm(len(late), generator=made)]]
    timed = graph.with_edges(edges, graph.given_edge_type(), {"time": time})
    timed = timed.remove_self_loops()  # a late one would stand for the loop that GCN adds
    rows = graph.target_rows
    return timed.with_data(time=torch.arange(rows.stop - rows.start) % 7)


def by_time(group: Group) -> list[str]:
    """Return what differs from one process where no neighbour is later than its seed."""
    wrong = []
    for name, kind, options in (
        ("gat", "directed", {"fanout": [3, 2], "batch_size": 4}),
        ("gcn", "hub", {"fanout": [4, 2], "batch_size": 7, "evaluate": [3, 3]}),
        ("rgcn", "typed", {"fanout": OWN, "batch_size": 4, "prepare": 0}),
    ):
        graph = adapt(timed_graph(kind), MODELS[name][0])
        local = local_graph(group, graph, parts_of(kind, group.size), group.size)
        given: dict[str, Any] = {**options, "seed": 3, "temporal": True}
        expected = trained(Sampled(graph, **given), model_of(graph, name, torch.float32))
        found = trained(Sampled(local, group=group, **given), model_of(local, name, torch.float32))
        for what, value in expected.items():
            off = far(found[what], value)
            wrong += [f"{name} on {kind} by time: {what} differs by {off:.1e}"] if not off <= 1e-5 else []
    return wrong


def same_batches(group: Group) -> list[str]:
    """Return the seeds whose neighbourhoods are not those that one process draws."""
    wrong = []
    for kind in ("hub", "typed"):
        graph = graph_of(kind)
        local = local_graph(group, graph, parts_of(kind, group.size), group.size)
        shard = local.shard
        seeds = torch.arange(*graph.target_rows.indices(graph.num_nodes))
        seeds = seeds[torch.isin(seeds, shard.node_ids)]
        found = PartitionedSampler(shard, group, [3, 2], seed=5).sample(seeds, 2, 7)
        whole = NeighborSampler(graph, [3, 2], seed=5).sample(seeds, 2, 7)
        wrong += [f"{kind}: {name}" for name in differing(found, whole)]
    return wrong


def differing(found: Batch, whole: Batch) -> list[str]:
    """Return in what two batches differ by a bit."""
    pairs: list[tuple[str, Any, Any]] = [("nodes", found.nodes, whole.nodes), ("y", found.y, whole.y)]
    for mine, theirs in zip(found.blocks, whole.blocks):
        for name in ("indptr", "indices", "edge_ids", "src_ids", "edge_type"):
            pairs.append((name, getattr(mine, name), getattr(theirs, name)))
        pairs.append(("in-degree", mine.in_degree("src"), theirs.in_degree("src")))
        if whole.seed_of is None:
            pairs.append(("out-degree", mine.out_degree("src"), theirs.out_degree("src")))
        pairs.append(("stands for", mine.multiplicity(), theirs.multiplicity()))
        if theirs.has_edge("weight"):
            pairs.append(("weight", mine.edge("weight"), theirs.edge("weight")))
    x, given = (each if isinstance(each, dict) else {"node": each} for each in (found.x, whole.x))
    pairs += [(f"x of {name}", _dense(x[name]), _dense(given[name])) for name in given]
    return [name for name, a, b in pairs if not _same(a, b)]


def important_of(graph: Graph, asked: Replicate) -> Tensor:
    """Return the nodes that are important by some k, and those at most k − 1 hops before them."""
    chosen: set[int] = set()
    for hops in range(1, asked.hops + 1):
        found = (rankers.importance(graph, hops) >= asked.threshold).nonzero().flatten()
        for _ in range(hops - 1):
            src, dst = graph.edge_index.long()
            found = torch.cat([found, src[torch.isin(dst, found)]]).unique()
        chosen |= set(found.tolist())
    return torch.tensor(sorted(chosen))


def replicas(group: Group) -> list[str]:
    """Return what differs where ranks hold important neighbourhoods, or whether that saves no bytes."""
    wrong = []
    for kind, options, asked in (
        ("hub", {}, Replicate(threshold=1.0)),
        ("directed", {"kind": "labor"}, Replicate(threshold=0.8, hops=2)),
        ("typed", {}, Replicate(threshold=0.5, hops=2)),
        ("hub", {"weight": "weight"}, Replicate(threshold=1.5)),
        ("sparse", {"replace": True}, Replicate(threshold=0.1)),
        ("hub", {"temporal": True}, Replicate(threshold=1.0)),
    ):
        graph = timed_graph(kind, 0) if "temporal" in options else graph_of(kind)
        shard = local_graph(group, graph, parts_of(kind, group.size), group.size).shard
        nodes = important(shard, group, asked)
        whole = rankers.importance(graph, asked.hops)
        if not torch.equal(importance(shard, group, asked.hops), whole):
            wrong.append(f"{kind}: another importance than of the whole graph")
        if not set((whole >= asked.threshold).nonzero().flatten().tolist()) <= set(nodes.tolist()):
            wrong.append(f"{kind}: important nodes are left out")
        if not torch.equal(nodes, important_of(graph, asked)):
            wrong.append(f"{kind}: others are held than those of the whole graph")
        seeds = torch.arange(*graph.target_rows.indices(graph.num_nodes))
        seeds = seeds[torch.isin(seeds, shard.node_ids)]
        found, sent = [], []
        for held in (False, True):
            sampler = PartitionedSampler(shard, group, [3, 2], seed=5, **options)
            if held:
                sampler.hold(with_replicas(sampler, nodes), nodes)
            group.ledger.snapshot(clear=True)
            found.append(sampler.sample(seeds, 2, 7))
            sent.append(group.ledger.snapshot(clear=True)["bytes_sent"])
        wrong += [f"{kind} with replicas: {what}" for what in differing(*found)]
        total = group.all_reduce(torch.tensor(sent)).wait().tolist()
        if group.size > 1 and (len(nodes) == 0 or not total[1] < total[0]):
            wrong.append(f"{kind}: {len(nodes)} replicas, {total} bytes")
    return wrong


def typed_stores(group: Group) -> list[str]:
    """Return what differs from one process where each node type has a store."""
    graph = adapt(graph_of("typed"), "rgcn")
    local = local_graph(group, graph, parts_of("typed", group.size), group.size)
    options: dict[str, Any] = {"seed": 3, "fanout": [3, 2], "batch_size": 4}
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        path = {kind: f"{folder}/{kind}.npy" for kind in ("paper", "author")}
        for kind, file in path.items():
            np.save(file, graph.node_data[kind]["x"].numpy())
        for store in (
            "memory",
            {"name": "mmap", "path": path},
            {"name": "cached", "capacity": 12, "ranker": "importance", "storage": "float16"},
            {"name": "cached", "capacity": 0.4, "ranker": "frequency", "path": path},
        ):
            whole = Sampled(graph, **options, store=store, infer=outputs)
            reference = trained(whole, model_of(graph, "rgcn", torch.float32))
            strategy = Sampled(local, **options, store=store, group=group)
            found = trained(strategy, model_of(local, "rgcn", torch.float32))
            off = max(far(found[what], value) for what, value in reference.items())
            wrong += [f"typed, {store}: off by {off:.1e}"] if not off <= 2e-5 else []
            counters = strategy.batching.counters()
            assert counters is not None
            cached = "cached" in str(store)
            held = (
                sum(each.capacity for each in strategy.batching.neighbours.source.opened.held.values())
                if cached
                else 0
            )  # type: ignore[union-attr]
            near = group.size == 1 or (counters.hits > 0) == ("mmap" not in str(store))
            wrong += [f"{store}: {counters}, {held}"] if not near or held not in (0, 12) else []
    return wrong


def kept_near(group: Group) -> list[str]:
    """Return what differs by replicas: batches, steps by a strategy, or that nothing is saved."""
    graph = adapt(graph_of("hub"), "gcn")
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    wrong, runs = replicas(group), []
    for more in (
        {},
        {"replicate": 1.0},
        {"replicate": {"threshold": 1.0, "hops": 2}, "store": {"name": "cached", "ranker": "importance"}},
    ):
        strategy = Sampled(local, seed=3, group=group, fanout=[3, 2], batch_size=7, **more)  # type: ignore[arg-type]
        runs.append(trained(strategy, model_of(local, "gcn", torch.float32)))
    for run in runs[1:]:
        wrong += [f"{what} differs" for what, value in runs[0].items() if not torch.equal(run[what], value)]
    without, near = (drawing_bytes(group, local, more) for more in ({}, {"replicate": 1.0}))
    return wrong + (
        [] if near < without else [f"drawing sends {near} bytes with replicas, {without} without"]
    )


def drawing_bytes(group: Group, local: LocalGraph, more: dict[str, Any]) -> int:
    """Return what all ranks send to draw the batches of a second epoch."""
    model = model_of(local, "gcn", torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    strategy = Sampled(local, seed=3, group=group, fanout=[3, 2], batch_size=7, **more)
    strategy.epoch(model, optimizer)
    group.ledger.clear()
    strategy.epoch(model, optimizer)
    volumes = group.ledger.snapshot(clear=True)["volumes"]
    strategy.close()
    sent = sum(each["bytes_sent"] for each in volumes if each["kind"] == "sample")
    return int(group.all_reduce(torch.tensor([sent])).wait())


def closed_parts(group: Group, cases: list[Case]) -> list[str]:
    """Return what differs from one process where workers hold all that their training nodes read."""
    wrong = []
    for name, kind, options in cases:
        graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=torch.float64)
        local = local_graph(group, graph, parts_of(kind, group.size), group.size)
        reference = trained(Sampled(graph, seed=3, **options), model_of(graph, name, torch.float64))
        strategy = Sampled(local, seed=3, group=group, closed=True, **options)
        found = trained(strategy, model_of(local, name, torch.float64))
        off = max(far(found[what], value) for what, value in reference.items())
        wrong += [f"closed: {name} on {kind} is off by {off:.1e}"] if not off <= 1e-10 else []
    return wrong + same_closure(group) + nothing_travels(group)


def nothing_travels(group: Group) -> list[str]:
    """Return what closed parts send in an epoch beside gradients, and what others do not."""
    graph = adapt(graph_of("hub"), "gcn")
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    wrong = []
    for partitioner, closed in (("metis", False), ("selfreliant", True)):
        model = model_of(local, "gcn", torch.float32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        strategy = Sampled(local, group=group, fanout=[3, 2], batch_size=7, partitioner=partitioner)
        sent = []
        for _ in range(2):
            group.ledger.clear()
            strategy.epoch(model, optimizer)
            volumes = group.ledger.snapshot(clear=True)["volumes"]
            sent.append({volume["kind"] for volume in volumes if volume["bytes_sent"]})
        strategy.close()
        first, second = ({"closure"}, set[str]()) if closed else ({"features"}, {"features", "sample"})
        rows = {"closure", "features", "sample"}
        wrong += [f"{partitioner}, first epoch: {sent[0]}"] if not first <= sent[0] else []
        wrong += [f"{partitioner}, first epoch: {sent[0]}"] if closed and "features" in sent[0] else []
        wrong += [f"{partitioner}, second epoch: {sent[1]}"] if sent[1] & rows != second else []
    return wrong


def same_closure(group: Group) -> list[str]:
    """Return where what workers copy is not the closure of their training nodes in the whole graph."""
    wrong = []
    for kind in ("hub", "typed"):
        graph = graph_of(kind)
        shard = local_graph(group, graph, parts_of(kind, group.size), group.size).shard
        seeds = shard.node_ids[:5]
        for hops in (1, 2, 3):
            found, whole = closed_shard(shard, group, seeds, hops), close(graph, seeds, hops)
            made = whole.graph
            pairs: list[tuple[str, Any, Any]] = [
                ("nodes", found.node_ids, whole.node_ids),
                ("indptr", found.indptr, made.indptr),
                ("indices", found.indices.long(), made.indices.long()),
                ("in-degree", found.degree("in", None, False), made.degree("in", None, False)),
                ("edge type", found.edge_type, made.edge_type),
            ]
            pairs += [(name, found.edge_data[name], made.edge_data[name]) for name in made.edge_data]
            for node_type, data in made.node_data.items():
                if "x" in data:
                    pairs.append((f"x of {node_type}", found.node_data[node_type]["x"], data["x"]))
            wrong += [f"{hops} hops on {kind}: {name}" for name, a, b in pairs if not _same(a, b)]
    return wrong


def stores(group: Group) -> list[str]:
    """Return what differs from one process where features are read from a store of the workers."""
    graph = adapt(graph_of("directed"), "gcn")
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    options: dict[str, Any] = {"seed": 3, "fanout": [3, 2], "batch_size": 8}
    wrong = typed_stores(group)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.npy"
        np.save(path, graph.x.numpy())
        cached = {"name": "cached", "capacity": 0.5}
        for store in (
            "memory",
            {"name": "memory", "storage": "int8"},
            {"name": "mmap", "path": path},
            cached,
            {**cached, "ranker": "frequency", "storage": "bfloat16"},
            {**cached, "path": path, "ranker": "random"},
        ):
            whole = Sampled(graph, **options, store=store, infer=outputs)
            reference = trained(whole, model_of(graph, "gcn", torch.float32))
            strategy = Sampled(local, **options, store=store, group=group)
            found = trained(strategy, model_of(local, "gcn", torch.float32))
            off = max(far(found[what], value) for what, value in reference.items())
            wrong += [f"{store}: off by {off:.1e}"] if not off <= 2e-5 else []
            counters = strategy.batching.counters()
            assert counters is not None
            near = counters.hits > 0
            wrong += [f"{store}: {counters}"] if near != ("mmap" not in str(store)) else []
    return wrong


def sampler_ranks(group: Group, cases: list[Case]) -> list[str]:
    """Return what differs from one process where half of the ranks sample for the others."""
    samplers = group.size // 2
    trainers = group.size - samplers
    wrong = []
    for name, kind, options in cases:
        options = {**options, "store": {"name": "memory", "storage": "float16"}} if name == "gat" else options
        if "evaluate" in options:
            continue
        graph = adapt(graph_of(kind), MODELS[name][0])
        parts = parts_of(kind, trainers)
        if group.rank >= trainers:
            whole = Shard.merge(make_shards(graph, parts))
            owners = spread(trainers, trainers)
            given = {**options, "samplers": samplers}
            SamplerRank(group, whole, graph.seeds(), seed=3, options=given, part_rank=owners).serve()
            continue
        team = group.subgroup(range(trainers), purpose="trainers")
        local = local_graph(team, graph, parts, trainers)
        reference = Sampled(graph, seed=3, infer=outputs, **options)
        expected = trained(reference, model_of(graph, name, torch.float32))
        strategy = Sampled(local, seed=3, group=team, samplers=samplers, **options)
        found = trained(strategy, model_of(local, name, torch.float32))
        off = max(far(found[what], value) for what, value in expected.items())
        wrong += [f"{name} on {kind} with samplers: off by {off:.1e}"] if not off <= 2e-5 else []
    return wrong + left_early(group, trainers)


def left_early(group: Group, trainers: int) -> list[str]:
    """Return what differs where trainers leave an epoch after two steps and take it up again."""
    graph = graph_of("directed")
    samplers, options = group.size - trainers, {"fanout": [3, 2], "batch_size": 4}
    weights = []
    for cut in (False, True):
        if group.rank >= trainers:
            whole = Shard.merge(make_shards(graph, parts_of("directed", trainers)))
            given, owners = {**options, "samplers": samplers}, spread(trainers, trainers)
            SamplerRank(group, whole, graph.seeds(), seed=3, options=given, part_rank=owners).serve()
            continue
        team = group.subgroup(range(trainers), purpose="trainers")
        local = local_graph(team, graph, parts_of("directed", trainers), trainers)
        model = model_of(local, "gcn", torch.float32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        strategy = Sampled(local, seed=3, group=team, samplers=samplers, **options)  # type: ignore[arg-type]
        if cut:
            strategy.epoch(model, optimizer, lambda clock=strategy.clock: int(clock[2]) == 2)  # type: ignore[misc]
        losses = [strategy.epoch(model, optimizer) for _ in range(2)]
        strategy.close()
        weights.append([torch.tensor(losses), *(value.clone() for value in model.state_dict().values())])
    same = not weights or all(torch.equal(a, b) for a, b in zip(*weights))
    return [] if same else ["a pause with samplers changes the epoch"]


def own_shuffles(group: Group) -> list[str]:
    """Return what is wrong with steps of which each rank shuffles its own seeds."""
    graph = graph_of("directed")
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        strategy = Sampled(local, seed=3, group=group, fanout=[3, 2], batch_size=5, seeds="local")
    wrong = [] if any("number of workers" in str(each.message) for each in told) else ["nothing is told"]
    model = model_of(local, "gcn", torch.float32)
    strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loader: Any = strategy.batching.loader
    seen = torch.cat([loader.seeds_of(0, step) for step in range(len(loader))])
    own = local.shard.node_ids[strategy.targets["train"].rows]
    wrong += [] if torch.equal(seen.sort().values, own) else ["not every own seed once"]
    total = sum(loader.count(0, step) for step in range(len(loader)))
    return wrong + ([] if total == strategy.targets["train"].count else [f"{total} seeds in all"])


def pauses(group: Group) -> list[str]:
    """Return what differs where an epoch is left after two steps and taken up by another strategy."""
    graph = graph_of("directed")
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    weights = []
    for cut in (False, True):
        model = model_of(local, "gcn", torch.float32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        strategy = Sampled(local, seed=3, group=group, fanout=[3, 2], batch_size=4)
        if cut:
            strategy.epoch(model, optimizer, lambda clock=strategy.clock: int(clock[2]) == 2)  # type: ignore[misc]
            state = strategy.state()
            strategy.close()
            strategy = Sampled(local, seed=3, group=group, fanout=[3, 2], batch_size=4)
            strategy.seek(0)
            strategy.load_state(state)
        loss = strategy.epoch(model, optimizer)
        strategy.close()
        weights.append([torch.tensor(loss), *(value.clone() for value in model.state_dict().values())])
    return [] if all(torch.equal(a, b) for a, b in zip(*weights)) else ["a pause changes the epoch"]


def _dense(x: Any) -> Any:
    return x.to_dense() if isinstance(x, SparseFeatures) else x


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b if a is None or b is None else torch.equal(a, b)
