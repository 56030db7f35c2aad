"""What ranks do where one of them has nothing: no node, no training node, no edge, no row in a step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from batch_jobs import differences
from halo_jobs import trained
from torch import Tensor

from weft.comm.group import Group
from weft.errors import WeftError, WorkerLost
from weft.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import Shard, make_shards
from weft.samplers import ClusterSampler, Loader
from weft.strategies.base import Strategy, strategies
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.clustered import Clustered
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.single import Single
from weft.train.model import adapt, build_model, ready

NODES = 11
DTYPE = torch.float64
TYPED = {"paper": 5, "author": 4, "venue": 2}
OPTIONS: dict[str, dict[str, Any]] = {"hgt": {"heads": 2}, "gat": {"heads": 2}, "gatv2": {"heads": 2}}
BATCHES: dict[str, dict[str, Any]] = {
    "sampled": {"fanout": [2, 2], "batch_size": 2},
    "sliced": {"fanout": [2, 2], "batch_size": 2},
    "saint": {"how": "walk", "size": 2, "length": 2, "steps": 3, "coverage": 2},
    "control_variate": {"fanout": 1, "batch_size": 2},
    "clustered": {"together": 1},
}


def rows_of(count: int) -> dict[str, Tensor]:
    """Return features, labels and a split of a few nodes."""
    ids, generator = torch.arange(count), torch.Generator().manual_seed(count)
    return {
        "x": torch.randn(count, 4, generator=generator),
        "y": ids % 3,
        "train_mask": ids % 2 == 0,
        "val_mask": ids % 4 == 1,
        "test_mask": ids % 4 == 3,
    }


def plain_graph() -> Graph:
    """Return a tiny graph with features and weights on its edges."""
    generator = torch.Generator().manual_seed(7)
    edges = torch.randint(0, NODES, (2, 24), generator=generator)
    attr = torch.randn(24, 3, generator=generator)
    return Graph.from_edges(edges, num_nodes=NODES, edge_attr=attr, **rows_of(NODES))  # type: ignore[arg-type]


def typed_graph() -> Graph:
    """Return a tiny graph of three node types; one relation has a single edge."""
    generator = torch.Generator().manual_seed(8)

    def links(count: int, source: str, target: str) -> dict[str, Tensor]:
        most = (TYPED[source], TYPED[target])
        return {"edge_index": torch.stack([torch.randint(0, n, (count,), generator=generator) for n in most])}

    author = {"x": torch.randn(TYPED["author"], 3, generator=generator)}
    return Graph.from_types(
        {"paper": rows_of(TYPED["paper"]), "author": author, "venue": {"num_nodes": TYPED["venue"]}},
        {
            ("paper", "cites", "paper"): links(8, "paper", "paper"),
            ("author", "writes", "paper"): links(8, "author", "paper"),
            ("venue", "holds", "paper"): links(1, "venue", "paper"),
        },
    )


GRAPHS: dict[str, Callable[[], Graph]] = {"plain": plain_graph, "typed": typed_graph}


def node_parts(graph: Graph, ranks: int) -> Tensor:
    """Return a part for each node: labelled ones to the first, all others to the next, none to the last."""
    ids = torch.arange(graph.num_nodes)
    first, last = graph.target_rows.start, graph.target_rows.stop
    train = torch.zeros(graph.num_nodes, dtype=torch.bool)
    assert graph.train_mask is not None
    train[first:last] = graph.train_mask
    others = 1 + ids % max(1, ranks - 2) if ranks > 2 else torch.zeros_like(ids)
    return torch.where(train, 0, others).int()


def held(group: Group, graph: Graph, kind: type[Strategy], options: Mapping[str, Any]) -> LocalGraph:
    """Return what a rank holds of a graph whose last part is empty."""
    if kind.cuts == "edges":
        parts = torch.arange(graph.num_edges).int() % max(1, group.size - 1)
        cut = Assignment(parts, group.size, cuts="edges")
    else:
        cut = Assignment(node_parts(graph, group.size), group.size)
    shards = make_shards(graph, kind.arranged(cut, options, group.size))
    return LocalGraph(Shard.merge([shards[group.rank]]))


REFUSED = {
    "asynchronous": "needs a node on every worker",
    "sliced": "use 'sampled'",
    "staged": "sums and means over neighbours, the model needs",
}


def everywhere(group: Group, names: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Train some layers by every strategy with an empty rank; return where it is not as in one process."""
    wrong = []
    for layer, what in product(names, kinds):
        graph = adapt(GRAPHS[what](), layer).to(dtype=DTYPE)
        for name, options, reference in cases(graph):
            wrong += compared(group, graph, layer, name, options, reference)
            group.drain()
    return wrong


def cases(graph: Graph) -> Iterator[tuple[str, dict[str, Any], Callable[[], Strategy]]]:
    """Give each strategy that trains on workers, its options, and the one process that it is held to."""
    for name in strategies.names():
        kind = strategies[name]
        if name in BATCHES:
            options = BATCHES[name]
            yield name, options, lambda name=name, options=options: one_process(graph, name, options)
        elif kind.on_workers:
            for layout in kind.layouts(3):
                yield name, layout, lambda: Single(graph, seed=3)


def one_process(graph: Graph, name: str, options: Mapping[str, Any]) -> Strategy:
    """Return the strategy of one process that draws the same batches."""
    if name == "sliced":
        return Sampled(graph, seed=3, **options)
    if name != "clustered":
        return strategies[name](graph, seed=3, **options)
    whole, parts = Clustered(graph, clusters=3, seed=3, **options), node_parts(graph, 3)
    whole.batching._loader = Loader(
        ClusterSampler(graph, 3, seed=3, parts=parts), range(3), batch_size=1, threads=0
    )
    return whole


def compared(
    group: Group, graph: Graph, layer: str, name: str, options: Mapping[str, Any], reference: Any
) -> list[str]:
    """Return where a strategy differs from one process; both may refuse a layer."""
    kind: Any = strategies[name]
    what = f"{name} {dict(options)}, {layer} on {len(graph.node_types)} types"
    try:
        wanted = trained(reference(), model_of(graph, layer))
    except WeftError:
        return []  # not for such a layer or graph, on any number of workers
    try:
        local = held(group, graph, kind, options)
        found = trained(kind(local, seed=3, group=group, **options), model_of(local, layer))
    except WorkerLost as error:
        raise WorkerLost(f"{what}: {error}") from None
    except WeftError as error:
        refused = REFUSED.get(name)  # a layer, by name
        return [] if refused is not None and refused in str(error) else [f"{what}: {error}"]
    return differences(what, DTYPE, found, wanted)


def model_of(graph: Any, layer: str) -> torch.nn.Module:
    """Return a model with the same first weights everywhere."""
    model = build_model(graph, layer, {"hidden": 4, "layers": 2, **OPTIONS.get(layer, {})}, seed=1)
    return ready(model, device=torch.device("cpu"), dtype=DTYPE)
