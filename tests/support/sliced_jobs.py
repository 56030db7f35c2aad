"""What ranks do in the tests of the sliced strategy: importable by name, so that other processes find it."""

from typing import Any

import torch
from halo_jobs import far, graph_of, local_graph, parts_of, trained
from torch import nn

from weft.comm.group import Group
from weft.strategies.sampled import Sampled
from weft.strategies.sliced import Sliced
from weft.train.model import adapt, build_model, ready

# Layer and its options, graph, options of the strategy. Few seeds a batch: with four ranks some have none.
CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("gcn", {}, "directed", {"fanout": [3, 2], "batch_size": 4}),
    ("sage", {"layers": 3}, "isolated", {"fanout": [2, 2, 2], "batch_size": 4, "prepare": 0}),
    ("sage", {"aggregate": "gcn", "residual": True}, "hub", {"fanout": [5, 2], "batch_size": 7}),
    ("gat", {"heads": 2}, "hub", {"fanout": [4, 4], "batch_size": 7, "sampler": {"weight": "weight"}}),
    ("gin", {"jumping": "cat"}, "directed", {"fanout": [2, 3], "batch_size": 5, "seeds": "local"}),
    ("gcn", {"layers": 1}, "hub", {"fanout": -1, "batch_size": 1000}),
]


def built(graph: Any, layer: str, options: dict[str, Any], dtype: torch.dtype) -> nn.Module:
    model = build_model(graph, layer, {"hidden": 8, "layers": 2, **options}, seed=1)
    return ready(model, device=torch.device("cpu"), dtype=dtype)


def equal_to_sampled(group: Group) -> list[str]:
    """Train by slices and by rows on the same ranks; return where they differ."""
    wrong = []
    for layer, options, kind, how in CASES:
        for dtype in (torch.float32, torch.float64):
            graph = adapt(graph_of(kind), layer).to(dtype=dtype)
            local = local_graph(group, graph, parts_of(kind, group.size), group.size)
            reference = trained(
                Sampled(local, seed=3, group=group, **how), built(local, layer, options, dtype)
            )
            found = trained(Sliced(local, seed=3, group=group, **how), built(local, layer, options, dtype))
            bound = 1e-5 if dtype == torch.float32 else 1e-10
            for what, value in reference.items():
                distance = far(found[what], value)
                if not distance <= bound:
                    wrong.append(f"{layer} on {kind} in {dtype}: {what} differs by {distance:.1e}")
    return wrong + delays(group) + volumes(group)


def delays(group: Group) -> list[str]:
    """Return what is wrong with products that are computed some steps early."""
    graph = adapt(graph_of("hub"), "gcn").to(dtype=torch.float64)
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    losses: dict[tuple[int, float], list[float]] = {}
    for delay in (0, 1, 3):
        for lr in (0.0, 0.5):
            model = built(local, "gcn", {"dropout": 0.0}, torch.float64)
            strategy = Sliced(local, seed=3, group=group, fanout=[4, 4], batch_size=6, delay=delay)
            optimizer = torch.optim.SGD(model.parameters(), lr=lr)
            losses[delay, lr] = [strategy.epoch(model, optimizer) for _ in range(4)]
            strategy.close()
    wrong = [
        f"delay {delay} changes what weights that stand still give"
        for delay in (1, 3)
        if far(torch.tensor(losses[delay, 0.0]), torch.tensor(losses[0, 0.0])) > 1e-12
    ]
    wrong += [f"delay {delay} changes nothing" for delay in (1, 3) if losses[delay, 0.5] == losses[0, 0.5]]
    wrong += [
        f"delay {delay} does not learn" for delay in (1, 3) if not losses[delay, 0.5][-1] < losses[0, 0.5][0]
    ]
    return wrong


def volumes(group: Group) -> list[str]:
    """Return where the products that travelled are not 2 (P − 1) |V1| H numbers."""
    graph = adapt(graph_of("hub"), "gcn")
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    model = built(local, "gcn", {}, torch.float32)
    strategy = Sliced(local, seed=3, group=group, fanout=[4, 4], batch_size=6)
    group.ledger.clear()
    strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loader = strategy.loader
    group.barrier()
    rows = sum(loader.batch(0, step).blocks[0].num_dst for step in range(len(loader)))
    volumes = group.ledger.snapshot()["volumes"]
    sent = sum(each["bytes_sent"] for each in volumes if each["kind"] == "pull")
    features = sum(each["bytes_sent"] for each in volumes if each["kind"] == "features")
    total = group.all_reduce(torch.tensor([sent, rows])).wait().tolist()
    expected = 2 * (group.size - 1) * total[1] * 8 * 4
    wrong = [] if total[0] == expected else [f"{total[0]} bytes of products, expected {expected}"]
    return wrong + ([] if features == 0 else ["features travelled"])
