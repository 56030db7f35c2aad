"""What ranks do in the tests of planned memory: importable by name, so that other processes find it."""

from collections import Counter
from typing import Any
from unittest.mock import patch

import torch
from halo_jobs import graph_of, local_graph, parts_of
from torch import Tensor

from weft.comm.group import Group
from weft.errors import RecipeError
from weft.strategies.halo.halo import Halo
from weft.strategies.local import LocalGraph
from weft.train.model import adapt, build_model

MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("sage", "directed", {"dropout": 0.3, "layers": 4, "hidden": 64}),
    ("sage", "isolated", {"aggregate": "max", "norm": "layer", "residual": True, "layers": 3}),
    ("gat", "hub", {"heads": 2, "attention_dropout": 0.4, "jumping": "cat", "layers": 3}),
    ("rgcn", "typed", {"dropout": 0.2, "layers": 3}),
]


def same_bits_and_bytes(group: Group) -> list[str]:
    """Train with what layers keep chosen by a plan, and return where bits or what was sent are others."""
    wrong, picked = [], Counter[str]()
    for name, kind, options in MODELS:
        graph = adapt(graph_of(kind), name)
        local = local_graph(group, graph, parts_of(kind, 4), 4)
        expected, sent, _ = trained(group, local, name, options)
        most = trained(group, local, name, options, activation="auto", memory=1 << 30)[2]
        for speed, wanted in ((1e-12, "offload"), (1e3, "recompute")):  # moving is free, and never pays
            with patch("weft.strategies.memory.planned.aside_seconds", lambda *_, speed=speed: speed):
                memory = max(int(1.1 * most.least), int(0.8 * most.everything))
                found, again, plan = trained(group, local, name, options, activation="auto", memory=memory)
            chosen = [each["choice"] for each in plan.told()["layers"]]
            picked[wanted] += wanted in chosen
            if any(not torch.equal(a, b) for a, b in zip(found, expected, strict=True)):
                wrong.append(f"{name}: other bits with {chosen}")
            if again != sent:
                wrong.append(f"{name}: {again} bytes were sent instead of {sent}")
    return wrong + [f"{way} was never chosen" for way in ("offload", "recompute") if not picked[way]]


def trained(
    group: Group, local: LocalGraph, name: str, options: dict[str, Any], **how: Any
) -> tuple[list[Tensor], int, Any]:
    """Return all that three steps left in a model, the bytes that the last two sent, and the plan."""
    model = build_model(local, name, {"hidden": 8, **options}, seed=1)
    strategy = Halo(local, seed=3, group=group, **how)
    strategy.check_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sent = 0
    for epoch in range(3):
        strategy.epoch(model, optimizer)
        traffic = strategy.take_traffic() or {"bytes_sent": 0}
        sent += traffic["bytes_sent"] if epoch else 0
    held = [each.detach().clone() for each in (*model.parameters(), *model.buffers())]
    held += [each.grad for each in model.parameters() if each.grad is not None]
    layout: Any = strategy.layout
    return held, sent, layout.layers.plan if how else None


def refuses_batch_norm(group: Group) -> str:
    """Return what is said of a norm over the rows of all workers."""
    graph = graph_of("directed")
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    strategy = Halo(local, seed=3, group=group, activation="auto", memory=1 << 30)
    try:
        strategy.check_model(build_model(local, "sage", {"norm": "batch"}, seed=1))
    except RecipeError as error:
        return str(error)
    return ""
