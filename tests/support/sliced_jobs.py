"""What ranks do in the tests of the sliced strategy: importable by name, so that other processes find it."""

from typing import Any

import torch
from halo_jobs import far, graph_of, local_graph, parts_of, trained
from torch import nn

from weft.comm.group import Group
from weft.config import make_recipe
from weft.errors import InputError
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.minibatch.sliced import Sliced
from weft.train.model import adapt, build_model, ready
from weft.train.saved.checkpoint import optimizer_state
from weft.train.trainer import Place
from weft.train.workers.worker import run_worker

# Layer and its options, graph, options of the strategy. Few seeds a batch: with four ranks some have none.
CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("gcn", {}, "directed", {"fanout": [3, 2], "batch_size": 4}),
    ("sage", {"layers": 3}, "isolated", {"fanout": [2, 2, 2], "batch_size": 4, "prepare": 0}),
    ("sage", {"aggregate": "gcn", "residual": True}, "hub", {"fanout": [5, 2], "batch_size": 7}),
    ("gat", {"heads": 2}, "hub", {"fanout": [4, 4], "batch_size": 7, "sampler": {"weight": "weight"}}),
    ("gin", {"jumping": "cat"}, "directed", {"fanout": [2, 3], "batch_size": 5, "seeds": "local"}),
    ("gcn", {"layers": 1}, "hub", {"fanout": -1, "batch_size": 1000}),
]

# How many products of |V1| rows the first layer takes.
PRODUCTS = [("gcn", 1), ("sage", 2), ("gin", 2)]


def built(graph: Any, layer: str, options: dict[str, Any], dtype: torch.dtype) -> nn.Module:
    model = build_model(graph, layer, {"hidden": 8, "layers": 2, **options}, seed=1)
    return ready(model, device=torch.device("cpu"), dtype=dtype)


def equal_to_sampled(group: Group) -> list[str]:
    """Train by slices and by rows on the same ranks; return where they differ."""
    wrong = []
    for place, (layer, options, kind, how) in enumerate(CASES):
        for dtype in (torch.float64,) if place else (torch.float32, torch.float64):
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
    return (
        wrong
        + owned_state(group)
        + delays(group)
        + [wrong for layer, products in PRODUCTS for wrong in volumes(group, layer, products)]
    )


def in_two_sessions(group: Group, sections: dict[str, Any], folder: str, more: int) -> None:
    """Train a recipe whose parts are in the folder, and go on with it up to so many epochs."""
    run_worker(make_recipe(sections), Place(out=folder), group)
    longer = {**sections, "train": {**sections["train"], "epochs": more}}
    run_worker(make_recipe(longer), Place(out=folder, resume=True), group)


def owned_state(group: Group) -> list[str]:
    """Return what is wrong with the first layer's weights: state 1/P a rank, decay and resume as by rows."""
    graph = adapt(graph_of("hub"), "gcn").to(dtype=torch.float64)
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    how: dict[str, Any] = {"seed": 3, "group": group, "fanout": [4, 4], "batch_size": 6}
    by_rows, by_columns = Sampled(local, **how), Sliced(local, **how)
    models = [built(local, "gcn", {}, torch.float64) for _ in range(2)]
    pair = list(zip((by_rows, by_columns), models))
    adams = [torch.optim.AdamW(s.parameters(m), lr=0.05, weight_decay=0.1) for s, m in pair]
    for (strategy, model), adam in zip(pair, adams):
        strategy.epoch(model, adam)
        strategy.gather_weights(model)
    wrong = []
    whole = models[0].layers[0].lin.weight  # type: ignore[union-attr]
    first = next(each for each in adams[1].param_groups[0]["params"] if each.dim() == 2)
    width = whole.shape[1] * (group.rank + 1) // group.size - whole.shape[1] * group.rank // group.size
    if first.shape != (8, width) or adams[1].state[first]["exp_avg"].shape != first.shape:
        wrong.append(f"a rank keeps state of {tuple(first.shape)}, expected 8 by {width}")
    states = [
        strategy.reducer.joined_state(adam, optimizer_state(adam)[0])
        for (strategy, _), adam in zip(pair, adams)
    ]
    if states[0].keys() != states[1].keys():
        wrong.append(f"states {sorted(states[0])} and {sorted(states[1])}")
    for name, value in (states[0] | dict(models[0].state_dict())).items():
        distance = far((states[1] | dict(models[1].state_dict()))[name], value)
        if not distance <= 1e-10:
            wrong.append(f"after AdamW {name} differs by {distance:.1e}")
    if any(
        not torch.equal(value, optimizer_state(adams[1])[0][name])
        for name, value in by_columns.reducer.own_state(adams[1], states[1]).items()
    ):
        wrong.append("own columns of what was joined are others")
    try:
        by_columns.epoch(models[1], torch.optim.SGD(models[1].parameters()))
        wrong.append("an optimiser of whole weights was taken")
    except InputError:
        pass
    by_rows.close()
    by_columns.close()
    return wrong


def delays(group: Group) -> list[str]:
    """Return what is wrong with products that are computed some steps early."""
    graph = adapt(graph_of("hub"), "gcn").to(dtype=torch.float64)
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    losses: dict[tuple[int, float], list[float]] = {}
    for delay in (0, 1, 3):
        for lr in (0.0, 0.5):
            model = built(local, "gcn", {"dropout": 0.0}, torch.float64)
            strategy = Sliced(local, seed=3, group=group, fanout=[4, 4], batch_size=6, delay=delay)
            optimizer = torch.optim.SGD(strategy.parameters(model), lr=lr)
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


def volumes(group: Group, layer: str, products: int) -> list[str]:
    """Return where the products that travelled are not 2 (P − 1) |V1| H numbers each."""
    graph = adapt(graph_of("hub"), layer)
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    model = built(local, layer, {}, torch.float32)
    strategy = Sliced(local, seed=3, group=group, fanout=[4, 4], batch_size=6)
    group.ledger.clear()
    strategy.epoch(model, torch.optim.SGD(strategy.parameters(model), lr=0.1))
    loader = strategy.batching.loader
    group.barrier()
    rows = sum(loader.batch(0, step).blocks[0].num_dst for step in range(len(loader)))
    volumes = group.ledger.snapshot()["volumes"]
    sent = sum(each["bytes_sent"] for each in volumes if each["kind"] == "pull")
    features = sum(each["bytes_sent"] for each in volumes if each["kind"] == "features")
    total = group.all_reduce(torch.tensor([sent, rows])).wait().tolist()
    expected = products * 2 * (group.size - 1) * total[1] * 8 * 4
    wrong = [] if total[0] == expected else [f"{layer}: {total[0]} bytes of products, expected {expected}"]
    # Gradients of all weights but those that are cut travel, with a number each that says it is there.
    whole = {id(each) for each in model.parameters()}
    shared = [each for each in strategy.parameters(model) if id(each) in whole]
    numbers = sum(each.numel() for each in shared) + len(shared)
    sent = sum(each["bytes_sent"] for each in volumes if each["kind"] == "gradient")
    once = 2 * (group.size - 1) * 4 * numbers // group.size
    if sent != len(loader) * once:
        wrong.append(f"{layer}: {sent} bytes of gradients, expected {len(loader)} steps of {once}")
    return wrong + ([] if features == 0 else ["features travelled"])
