"""What ranks do in the tests of the drift meter: importable by name, so that other processes find it."""

from typing import Any

import torch
from halo_jobs import graph_of, local_graph, model_of, parts_of

from weft.comm.group import Group
from weft.exchanges.drift import Meter
from weft.strategies.halo.halo import Halo
from weft.train.model import adapt

EPOCHS = 6


def trained(group: Group, **options: Any) -> dict[str, Any]:
    """Return losses, errors and what was chosen in each epoch, interrupted by a checkpoint in the middle."""
    graph = adapt(graph_of("hub"), "sage").to(dtype=torch.float64)
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    model = model_of(local, "sage max", torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told: dict[str, Any] = {"losses": [], "errors": [], "chosen": []}
    strategy = Halo(local, seed=3, group=group, **options)
    for epoch in range(EPOCHS):
        if epoch == 3:
            state = {name: value.clone() for name, value in strategy.state().items()}
            strategy.close()
            strategy = Halo(local, seed=3, group=group, **options)
            strategy.seek(epoch)
            strategy.load_state(state)
        told["losses"].append(strategy.epoch(model, optimizer))
        told["errors"].append(list(strategy.layout.exchange_errors().values()))
        told["chosen"].append(strategy.layout.exchange_settings())
    strategy.close()
    return told


def everything(group: Group) -> dict[str, dict[str, Any]]:
    """Return what is told of each case."""
    sampled, skip = {"name": "sampled", "p": 0.5}, {"name": "skip", "interval": 3}
    cases: dict[str, dict[str, Any]] = {
        "exact": {"exchange": "exact", "drift": True},
        "sampled, not measured": {"exchange": sampled},
        "sampled": {"exchange": sampled, "drift": True},
        "sampled, every third": {"exchange": sampled, "drift": 3},
        "all sampled": {"exchange": {"name": "sampled", "p": 1.0}, "drift": True},
        "none sampled": {"exchange": {"name": "sampled", "p": 0.0}, "drift": True},
        "stale": {"exchange": "stale", "drift": True},
        "skip": {"exchange": skip, "drift": True},
        "8 bits": {"exchange": "quantised", "drift": True},
        "2 bits": {"exchange": {"name": "quantised", "bits": 2}, "drift": True},
        "sampled for 0.2": {"exchange": sampled, "error": 0.2},
        "sampled for 2": {"exchange": sampled, "error": 2.0},
        "coded for 0.2": {"exchange": "quantised", "error": 0.2},
        "coded for 1e-4": {"exchange": "quantised", "error": 1e-4},
        "skip for 1e-3": {"exchange": "skip", "error": 1e-3},
        "skip for 1": {"exchange": "skip", "error": 1.0},
    }
    return {name: trained(group, **options) for name, options in cases.items()} | {"meter": by_hand(group)}


def by_hand(group: Group) -> dict[str, Any]:
    """Return the error of a step whose halo rows are all doubled, and that of one without any."""
    graph = graph_of("directed")
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    strategy = Halo(local, group=group)
    shard, plan = local.shard, strategy.layout.exchange.whole_plan
    meter = Meter(shard, plan, group, strategy.clock)
    own, halo = torch.ones(len(shard.node_ids), 2), torch.ones(plan.num_halo, 2)
    meter.begin()
    for slot, (rows, kept) in enumerate(((2 * halo, None), (halo[:0], torch.zeros(len(halo)).bool()))):
        meter.sent(slot, own)
        meter.arrived(slot, rows, kept, 1.0)
    meter.sent(2, own)
    meter.arrived(2, halo[::2], torch.arange(len(halo)) % 2 == 0, torch.full((len(halo[::2]),), 2.0))
    drift = meter.finish()
    strategy.close()
    return {"errors": drift.errors, "spread": drift.spread}
