"""What ranks do in the tests of the halo strategy: importable by name, so that other processes find it."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.plan import spread
from weft.graph import Graph, SparseFeatures
from weft.graph.parts.shard import Shard, make_shards
from weft.partitioners.quality import measure
from weft.strategies.halo.halo import Halo
from weft.strategies.local import LocalGraph
from weft.strategies.single import Single
from weft.tasks.metrics import METRICS
from weft.train.model import adapt, build_model, ready

NODES = 36
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gcn": ("gcn", {}),
    "sage mean": ("sage", {"norm": "batch"}),
    "sage max": ("sage", {"aggregate": "max", "layers": 3}),
    "gat": ("gat", {"heads": 2, "attention_dropout": 0.3}),
    "gin": ("gin", {"input_dropout": 0.2, "jumping": "cat"}),
    "rgcn": ("rgcn", {}),
    "edgeconv": ("edgeconv", {}),
    "hgt": ("hgt", {"heads": 2}),
    "sgc": ("sgc", {}),
}


def features(rows: int, salt: int) -> dict[str, Tensor]:
    """Return features, labels and a split."""
    generator = torch.Generator().manual_seed(salt)
    turn = torch.rand(rows, generator=generator)
    return {
        "x": torch.randn(rows, 6, generator=generator),
        "y": torch.randint(0, 3, (rows,), generator=generator),
        "train_mask": turn < 0.5,
        "val_mask": (turn >= 0.5) & (turn < 0.8),
        "test_mask": turn >= 0.8,
    }


def graph_of(kind: str) -> Graph:
    """Return a graph of 36 nodes of one of the kinds below."""
    generator = torch.Generator().manual_seed(5)
    data: dict[str, Any] = features(NODES, 1)
    edges = torch.randint(0, NODES, (2, 120), generator=generator)
    if kind == "hub":
        edges = torch.cat([edges, torch.stack([torch.arange(NODES), torch.full((NODES,), 7)])], 1)
        data["edge_weight"] = torch.rand(edges.shape[1], generator=generator) + 0.1
    elif kind == "attributed":
        data["edge_attr"] = torch.randn(120, 5, generator=generator)
    elif kind == "components":  # one a part of four: no rank has a halo
        edges = torch.randint(0, NODES // 4, (2, 120), generator=generator)
        edges += NODES // 4 * torch.randint(0, 4, (120,), generator=generator)
    elif kind == "isolated":  # half of the nodes have no edge, and only the first part has training nodes
        edges = edges // 2
        data["train_mask"] = torch.arange(NODES) < 6
        data["val_mask"] = torch.arange(NODES) >= 18
        data["test_mask"] = (torch.arange(NODES) >= 6) & (torch.arange(NODES) < 18)
    elif kind == "sparse":
        x = data["x"].relu() * (torch.rand(data["x"].shape, generator=generator) < 0.2)
        data["x"] = SparseFeatures.from_dense(torch.cat([x, torch.zeros(NODES, 60)], 1))
    if kind == "typed":
        return typed_graph(generator)
    return Graph.from_edges(edges, num_nodes=NODES, **data)


def typed_graph(generator: torch.Generator) -> Graph:
    """Return a graph of three node types, one without features; one relation is rare."""

    def links(count: int, sources: int, targets: int) -> dict[str, Tensor]:
        ends = [torch.randint(0, n, (count,), generator=generator) for n in (sources, targets)]
        return {"edge_index": torch.stack(ends)}

    nodes = {"paper": features(20, 2), "author": {"x": torch.randn(10, 4, generator=generator)}}
    return Graph.from_types(
        {**nodes, "venue": {"num_nodes": 6}},
        {
            ("paper", "cites", "paper"): links(40, 20, 20),
            ("author", "writes", "paper"): links(30, 10, 20),
            ("venue", "holds", "paper"): links(2, 6, 20),
            ("paper", "of", "author"): links(20, 20, 10),
        },
    )


def parts_of(kind: str, num_parts: int) -> Tensor:
    """Return contiguous parts, or nodes dealt out in turn."""
    ids = torch.arange(NODES)
    return (ids * num_parts // NODES if kind in ("components", "isolated") else ids % num_parts).int()


def local_graph(group: Group, graph: Graph, parts: Tensor, num_parts: int) -> LocalGraph:
    """Return what a rank holds."""
    held = [part for part, rank in enumerate(spread(num_parts, group.size)) if rank == group.rank]
    shards = make_shards(graph, parts)
    return LocalGraph(Shard.merge([shards[part] for part in held]))


def cases(name: str) -> Iterator[tuple[str, torch.dtype]]:
    """Give the graphs and dtypes to try a model on."""
    typed = name in ("rgcn", "hgt")
    for kind in ("typed",) if typed else ("directed", "hub", "components", "isolated", "sparse"):
        for dtype in (torch.float32, torch.float64):
            yield kind, dtype


def equal_to_one_process(
    group: Group, exchange: Any = "exact", names: Sequence[str] = tuple(MODELS)
) -> list[str]:
    """Train every model on every graph by the strategy and in one process; return where they differ."""
    wrong = []
    for name in names:
        for kind, dtype in cases(name):
            graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=dtype)
            num_parts = 4 if group.size == 2 else group.size
            local = local_graph(group, graph, parts_of(kind, num_parts), num_parts)
            try:
                reference = trained(Single(graph, seed=3), model_of(graph, name, dtype))
                found = trained(
                    Halo(local, seed=3, group=group, exchange=exchange), model_of(local, name, dtype)
                )
            except Exception as error:
                raise AssertionError(f"{name} on {kind}, {dtype}") from error
            bound = 1e-5 if dtype == torch.float32 else 1e-10
            for what, value in reference.items():
                distance = far(found[what], value)
                if not distance <= bound:
                    wrong.append(f"{name} on {kind} in {dtype}: {what} differs by {distance:.1e}")
    return wrong


def far(found: Tensor, reference: Tensor) -> float:
    """Return max |Δ| over max(1, max |reference|)."""
    if found.shape != reference.shape:
        return float("inf")
    return float((found - reference).abs().max() / reference.abs().max().clamp(min=1.0))


def model_of(graph: Any, name: str, dtype: torch.dtype) -> nn.Module:
    """Return the model, with the same first weights everywhere."""
    layer, options = MODELS[name]
    model = build_model(graph, layer, {"hidden": 8, "layers": 2, **options}, seed=1)
    return ready(model, device=torch.device("cpu"), dtype=dtype)


def trained(strategy: Any, model: nn.Module) -> dict[str, Tensor]:
    """Return losses, first gradients, weights after 3 steps, scores and outputs."""
    optimizer = torch.optim.SGD(strategy.parameters(model), lr=0.1)
    losses = [strategy.epoch(model, optimizer)]
    # As a state of the optimiser: of what others train they have the gradient.
    grads = {
        f"{place}.gradient": torch.full_like(p, torch.inf) if p.grad is None else p.grad.clone()
        for place, p in enumerate(optimizer.param_groups[0]["params"])
    }
    joined = strategy.reducer.joined_state(optimizer, grads)
    kept: dict[str, Tensor] = {f"gradient of {n}": value for n, value in joined.items()}
    losses += [strategy.epoch(model, optimizer) for _ in range(2)]
    kept["losses"] = torch.tensor(losses, dtype=torch.float64)
    strategy.gather_weights(model)
    kept |= {f"weight {n}": value.clone() for n, value in model.state_dict().items()}
    scores = strategy.evaluate(model, {name: METRICS[name] for name in ("macro_f1", "roc_auc")})
    kept |= {f"{split} {n}": torch.tensor(v) for split in scores for n, v in scores[split].items()}
    kept["outputs"] = strategy.predict(model)
    strategy.close()
    # No gradient anywhere and no curve at all are equal too, though ∞ − ∞ and nan − nan are not zero.
    return {n: v.double().nan_to_num(nan=-1e6, posinf=1e6) for n, v in kept.items()}


def sampled_sums(group: Group, p: float) -> None:
    """Compare what a block of a sampled epoch gives with sums over the edges that should be left."""
    graph = graph_of("hub")
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    strategy = Halo(local, seed=3, group=group, exchange={"name": "sampled", "p": p})
    table = torch.randn(NODES, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    for epoch in range(3):
        strategy.clock[1] = epoch
        block: Any = strategy.layout.training_block()
        own = block.dst_ids
        h = table[own].requires_grad_()
        remote = ~torch.isin(block.src_ids, own)
        kept = ~remote | torch.cat([torch.ones(len(own)).bool(), strategy.layout.exchange.kept])
        scale = torch.where(remote, 1.0 / p if p else 1.0, 1.0).double()
        edges = dense_edges(graph, own, block.src_ids) * kept
        rows = table[block.src_ids]
        assert far(block.aggregate(h), (edges * scale) @ rows) < 1e-12
        degree = graph.in_degree()[own].double()[:, None].clamp(min=1)
        assert far(block.aggregate(h, "mean"), (edges * scale) @ rows / degree) < 1e-12
        pairs = block.by_relation()
        assert far(pairs.aggregate(block.src(h)[pairs.rows]), (edges * scale) @ rows) < 1e-12
        messages = block.propagate(lambda u: 2 * u, src=(h,))
        assert far(messages, 2 * (edges * scale) @ rows) < 1e-12
        messages = block.propagate(lambda u: 2 * u, src=(h,), reduce="mean")
        assert far(messages, 2 * (edges * scale) @ rows / degree) < 1e-12
        largest = rows.where((edges > 0)[..., None], -torch.inf).amax(1)
        largest = largest.where(largest > -torch.inf, 0.0)
        assert far(block.propagate(lambda u: u, src=(h,), reduce="max"), largest) == 0.0, (
            "no scale in extremes"
        )
        assert block.num_edges == int(edges.sum())
        block.aggregate(h).sum().backward()
        strategy.end_step()
    exact = strategy.layout.exact_block()
    assert far(exact.aggregate(table[exact.dst_ids]), dense_edges(graph, own, block.src_ids) @ rows) < 1e-12
    sampled_sums_of_relations(group, p, table)


def sampled_sums_of_relations(group: Group, p: float, table: Tensor) -> None:
    """Compare sums of blocks made of a sampled epoch's: of one relation, and of (relation, source) pairs."""
    graph = graph_of("typed")
    local = local_graph(group, graph, parts_of("typed", group.size), group.size)
    strategy = Halo(local, seed=3, group=group, exchange={"name": "sampled", "p": p})
    block: Any = strategy.layout.training_block()
    own, h = block.dst_ids, table[block.dst_ids]
    remote = ~torch.isin(block.src_ids, own)
    kept = ~remote | torch.cat([torch.ones(len(own)).bool(), strategy.layout.exchange.kept])
    scale = torch.where(remote, 1.0 / p if p else 1.0, 1.0).double() * kept
    rows = table[block.src_ids]
    for number in range(graph.num_relations):
        wanted = (dense_edges(graph, own, block.src_ids, number) * scale) @ rows
        one = block.relation(number)
        assert far(block.aggregate(h, relation=number), wanted) < 1e-12
        assert far(one.aggregate(h), wanted) < 1e-12
        assert far(one.propagate(lambda u: 2 * u, src=(h,)), 2 * wanted) < 1e-12
    pairs, wanted = block.by_relation(), (dense_edges(graph, own, block.src_ids) * scale) @ rows
    made = block.src(h)[pairs.rows]
    assert far(pairs.aggregate(made), wanted) < 1e-12
    assert far(pairs.propagate(lambda u: 2 * u, src=(made,)), 2 * wanted) < 1e-12
    strategy.close()


def dense_edges(graph: Graph, dst: Tensor, src: Tensor, relation: int | None = None) -> Tensor:
    """Return how many edges, of all or of one relation, lead from each of some nodes to each of others."""
    counts = torch.zeros(NODES, NODES, dtype=torch.float64)
    chosen = slice(None) if relation is None else cast(Tensor, graph.edge_type) == relation
    source, target = graph.block().edge_index()[:, chosen]
    counts.index_put_((target, source), torch.ones(len(source), dtype=torch.float64), accumulate=True)
    return counts[dst][:, src]


def one_exchange_a_tensor(group: Group) -> list[int]:
    """Return how many messages were sent for one tensor asked for twice, then for a changed one."""
    graph = graph_of("directed")
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    strategy = Halo(local, group=group)
    block = strategy.layout.training_block()
    counts = []
    h = torch.ones(block.num_dst, 2)
    group.ledger.clear()
    for reduce in ("sum", "max", "mean"):
        block.aggregate(h, reduce)
    counts.append(group.ledger.messages)
    h += 1
    block.aggregate(h)
    counts.append(group.ledger.messages)
    for _ in range(3):
        block.aggregate(local.x)
    counts.append(group.ledger.messages)
    return counts


def forecast_and_sent(group: Group) -> dict[str, tuple[int, int]]:
    """Return the bytes of halo rows and gradients that an epoch should send, and that it sent from here."""
    told = {}
    for kind in ("directed", "sparse", "filling"):
        graph = graph_of("directed" if kind == "filling" else kind)
        if kind == "filling":
            graph = graph.with_data(x=SparseFeatures.from_dense(torch.ones(NODES, 16)))
        parts = parts_of(kind, group.size)
        strategy = Halo(local_graph(group, graph, parts, group.size), group=group)
        model = build_model(strategy.graph, "sage", {"hidden": 8, "layers": 3}, seed=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        strategy.epoch(model, optimizer)  # the first brings the features, once
        group.ledger.clear()
        strategy.epoch(model, optimizer)
        volumes = group.ledger.volumes.items()
        sent = sum(each.bytes_sent for (label, _), each in volumes if label.kind.startswith("halo"))
        expected = measure(graph, parts, group.size, hidden=8, layers=3).predicted["exact"]
        told[kind] = (expected, sent)
        strategy.close()
    return told


class TwoMeans(nn.Module):
    """A layer of two scales, which are equal where every degree is 1."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lin = nn.Linear(4, 2)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        block = blocks[0]
        degree = block.in_degree("dst").clamp(min=1)
        mean, half = (block.aggregate(x, "sum", dst_scale=degree**power) for power in (-1.0, -0.5))
        out: Tensor = self.lin(mean + half)
        return out


def scales_equal_on_one_rank(group: Group) -> list[float]:
    """Return the losses of such a layer; the nodes of the last part have one edge each."""
    src = [1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2, 0, 4, 5, 6]
    dst = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 6, 7]
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    graph = Graph.from_edges(
        [src, dst], x=x, y=torch.arange(8) % 2, train_mask=torch.ones(8, dtype=torch.bool)
    )
    parts = (torch.arange(8) // 4).int() if group.size > 1 else torch.zeros(8, dtype=torch.int32)
    strategy = Halo(local_graph(group, graph, parts, group.size), group=group)
    model = TwoMeans()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [strategy.epoch(model, optimizer) for _ in range(3)]
