"""What ranks do in the tests of subgraphs and control variates: importable by name by other processes."""

from typing import Any

import torch
from halo_jobs import MODELS, far, graph_of, local_graph, model_of, parts_of, trained

from weft.comm.group import Group
from weft.config import make_recipe
from weft.errors import GraphError, InputError, RecipeError
from weft.graph import Graph
from weft.samplers import ClusterSampler, Loader
from weft.samplers.workers.inputs import InputSampler, PartitionedInputs
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.clustered import Clustered, Saint
from weft.strategies.minibatch.control_variate import ControlVariate
from weft.train.model import adapt
from weft.train.trainer import Place
from weft.train.workers.worker import run_worker

PARTS = 6
# Layers that normalise by degrees, attend, take the largest, look at whole batches or at relations.
SUBGRAPHS = [
    ("gcn", "hub"),
    ("sage mean", "isolated"),
    ("sage max", "directed"),
    ("gat", "hub"),
    ("gin", "sparse"),
    ("rgcn", "typed"),
    ("hgt", "typed"),
    ("edgeconv", "directed"),
    ("gine", "attributed"),
]
SAINTS: list[dict[str, Any]] = [
    {"how": "walk", "size": 5, "length": 2, "steps": 4, "prepare": 0},
    {"how": "node", "size": 12},
    {"how": "edge", "size": 9, "steps": 3},
]
VARIATES: list[tuple[str, str, dict[str, Any]]] = [
    ("gcn", "hub", {"fanout": [2], "batch_size": 4}),
    ("gcn", "hub", {"fanout": [2], "batch_size": 4, "preprocess": False}),
    ("gcn", "directed", {"fanout": 1, "batch_size": 7, "safe": False, "prepare": 0}),
    ("gin", "sparse", {"fanout": [2, -1], "batch_size": 5}),
    ("deep", "isolated", {"fanout": [2, 1], "batch_size": 3}),
    ("gcn", "directed", {"fanout": -1, "batch_size": 1000}),
]
DTYPES = (torch.float32, torch.float64)


def equal_to_one_process(group: Group, share: int = 1) -> list[str]:
    """Train on all ranks and in one process, in every way; return where they differ.

    One in `share` of the models takes steps on clusters, others on random subgraphs: clusters are those of
    the proof of equivalence, and both are subgraphs to a layer.
    """
    MODELS.update({"deep": ("sage", {"layers": 3}), "gine": ("gine", {})})
    return clusters(group, share) + saints(group, share) + variates(group) + refusals(group) + pauses(group)


def clusters(group: Group, share: int) -> list[str]:
    """Return where steps on clusters differ."""
    wrong = []
    for number, (name, kind) in list(enumerate(SUBGRAPHS))[::share]:
        dtype = DTYPES[(number // share + 1) % 2]
        graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=dtype)
        local = held(group, graph, kind)
        options: dict[str, Any] = {"seed": 3, "together": 2, "enhance": 0.3 if name == "gcn" else 0.0}
        whole = Clustered(graph, clusters=PARTS, **options)
        sampler = ClusterSampler(
            graph, PARTS, seed=3, enhance=options["enhance"], parts=parts_of(kind, PARTS)
        )
        whole.batching._loader = Loader(sampler, range(PARTS), batch_size=2, threads=0)  # without cutting
        reference = trained(whole, model_of(graph, name, dtype))
        found = trained(Clustered(local, group=group, **options), model_of(local, name, dtype))
        wrong += differences(f"clusters, {name} on {kind}", dtype, found, reference)
    return wrong


def saints(group: Group, share: int) -> list[str]:
    """Return where steps on random subgraphs differ."""
    wrong = []
    for number, (name, kind) in list(enumerate(SUBGRAPHS))[share - 1 :: share]:
        options = {"seed": 3, "coverage": 5, **SAINTS[number % len(SAINTS)]}
        dtype = DTYPES[number // share % 2]
        graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=dtype)
        local = held(group, graph, kind)
        reference = trained(Saint(graph, **options), model_of(graph, name, dtype))
        found = trained(Saint(local, group=group, **options), model_of(local, name, dtype))
        wrong += differences(f"saint by {options['how']}, {name} on {kind}", dtype, found, reference)
    return wrong


def variates(group: Group) -> list[str]:
    """Return where steps with histories differ, or the histories."""
    wrong = []
    for number, (name, kind, options) in enumerate(VARIATES):
        dtype = DTYPES[number % 2]
        graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=dtype)
        local = held(group, graph, kind)
        whole = ControlVariate(graph, seed=3, **options)
        reference = trained(whole, model_of(graph, name, dtype))
        part = ControlVariate(local, seed=3, group=group, **options)
        found = trained(part, model_of(local, name, dtype))
        known = isinstance(whole.batching.loader.sampler, InputSampler)
        if isinstance(part.batching.loader.sampler, PartitionedInputs) != known:
            wrong.append(f"histories, {name} on {kind}: sums of inputs are known in one process: {known}")
        if part.batching.loader.threads != options.get("prepare", 2):
            wrong.append(
                f"histories, {name} on {kind}: {part.batching.loader.threads} threads prepare batches"
            )
        for layer, rows in whole.batching.history.rows.items():
            reference[f"history {layer}"] = rows[local.shard.node_ids]
            found[f"history {layer}"] = part.batching.history.rows[layer]
        wrong += differences(f"histories, {name} on {kind}", dtype, found, reference)
    return wrong


def refusals(group: Group) -> list[str]:
    """Return what was to be refused and is not."""
    local = held(group, graph_of("directed"), "directed")
    looped = held(group, adapt(graph_of("directed"), "gcn"), "directed")
    gat = model_of(looped, "gat", torch.float32)
    wrong = []
    for what, attempt in {
        "clusters of another number": lambda: Clustered(local, group=group, clusters=5),
        "a store": lambda: Saint(local, group=group, store="memory"),
        "no diagonal": lambda: Clustered(local, group=group, enhance=1.0, together=1).batching.make_loader(
            torch.nn.Identity()
        ),
        "a diagonal under attention": lambda: Clustered(
            looped, group=group, enhance=1.0, together=PARTS, prepare=0
        ).epoch(gat, torch.optim.SGD(gat.parameters(), lr=0.1)),
    }.items():
        try:
            attempt()
            wrong.append(f"{what} was not refused")
        except (RecipeError, GraphError, InputError):
            pass
    return wrong


def pauses(group: Group) -> list[str]:
    """Return what differs where an epoch is left after a step and taken up by another strategy."""
    local = held(group, adapt(graph_of("directed"), "gcn"), "directed")
    makers: dict[str, Any] = {
        "clusters": lambda: Clustered(local, seed=3, group=group, together=2),
        "saint": lambda: Saint(local, seed=3, group=group, size=6, steps=3, coverage=2),
        "histories": lambda: ControlVariate(local, seed=3, group=group, fanout=1, batch_size=4),
    }
    return [f"a pause changes {name}" for name, make in makers.items() if not same_after_pause(local, make)]


def same_after_pause(local: LocalGraph, make: Any) -> bool:
    """Return whether an epoch in two sessions gives the weights of one."""
    weights = []
    for cut in (False, True):
        model, strategy = model_of(local, "gcn", torch.float32), make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if cut:
            strategy.epoch(model, optimizer, lambda clock=strategy.clock: int(clock[2]) == 1)
            state = {name: value.clone() for name, value in strategy.state().items()}
            strategy.close()
            strategy = make()
            strategy.seek(0)
            strategy.load_state(state)
        loss = strategy.epoch(model, optimizer)
        strategy.close()
        weights.append([torch.tensor(loss), *(value.clone() for value in model.state_dict().values())])
    return all(torch.equal(a, b) for a, b in zip(*weights))


def held(group: Group, graph: Graph, kind: str) -> LocalGraph:
    """Return what a rank holds of a graph in six parts."""
    return local_graph(group, graph, parts_of(kind, PARTS), PARTS)


def differences(what: str, dtype: torch.dtype, found: dict[str, Any], reference: dict[str, Any]) -> list[str]:
    """Return what is farther from the reference than rounding."""
    bound = 1e-5 if dtype == torch.float32 else 1e-10
    away = {name: far(found[name], value) for name, value in reference.items()}
    return [f"{what} in {dtype}: {name} differs by {d:.1e}" for name, d in away.items() if not d <= bound]


def by_recipe(group: Group, sections: dict[str, Any], folder: str) -> float:
    """Return the last loss of the run of a recipe whose parts were written into its folder."""
    summary = run_worker(make_recipe(sections), Place(out=folder), group)
    assert summary is not None
    return summary.loss
