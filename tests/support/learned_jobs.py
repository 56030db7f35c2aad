"""What ranks do in the tests of learned rows: importable by name, so that other processes find it."""

from typing import Any

import torch
from halo_jobs import NODES, far, features, graph_of, local_graph
from torch import Tensor, nn

from weft.comm.group import Group
from weft.graph import Graph
from weft.layers.learned import LearnedRows, rows_of
from weft.samplers import ClusterSampler, Loader
from weft.strategies.base import Strategy
from weft.strategies.halo.halo import Halo
from weft.strategies.learned import RowOptimizerName
from weft.strategies.minibatch.clustered import Clustered, Saint
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.sequential.sequential import Sequential
from weft.strategies.single import Single
from weft.tasks.metrics import METRICS
from weft.train.model import build_model, ready

# A model, a graph and an optimiser of rows: without features, of a type without, beside features.
CASES: list[tuple[str, dict[str, Any], str, RowOptimizerName]] = [
    ("sage", {}, "bare", "adam"),
    ("rgcn", {"embedding": {"width": 5, "types": ["venue", "paper"]}}, "typed", "rowwise_adagrad"),
    ("sage", {"embedding": {"width": 5}}, "directed", "adagrad"),
    ("gat", {"heads": 2}, "bare", "sgd"),
]
BATCHES: dict[str, Any] = {"fanout": [3, 2], "batch_size": 5, "prepare": 0}


def graph_without(kind: str) -> Graph:
    """Return a graph of the halo's tests, or one whose nodes have no features; few are trained on."""
    if kind != "bare":
        return graph_of(kind)
    generator = torch.Generator().manual_seed(8)
    data: dict[str, Any] = features(NODES, 4)
    del data["x"]
    data["train_mask"] = torch.arange(NODES) < 7  # of which the last part of four has none
    data["val_mask"], data["test_mask"] = torch.arange(NODES) >= 30, torch.arange(NODES) == 20
    return Graph.from_edges(torch.randint(0, NODES, (2, 90), generator=generator), num_nodes=NODES, **data)


def model_for(graph: Any, layer: str, options: dict[str, Any], dtype: torch.dtype) -> nn.Module:
    """Return a model with the same first weights everywhere."""
    model = build_model(graph, layer, {"hidden": 8, "layers": 2, "dropout": 0.3, **options}, seed=1)
    return ready(model, device=torch.device("cpu"), dtype=dtype)


def learned(
    strategy: Strategy, model: nn.Module, name: RowOptimizerName, epochs: int = 3
) -> dict[str, Tensor]:
    """Train with learned rows where their owners are; return losses, scores and weights."""
    strategy.learn_rows(model, name, lr=0.05)
    assert strategy.learned, "it has tables"
    assert not [key for key in model.state_dict() if "embeddings" in key], "they are lent"
    optimizer = torch.optim.Adam(strategy.parameters(model), lr=0.02)
    found = {f"loss {n}": torch.tensor(strategy.epoch(model, optimizer)) for n in range(epochs)}
    scores = strategy.evaluate(model, {"accuracy": METRICS["accuracy"]})
    found |= {f"loss of {split}": torch.tensor(held["loss"]) for split, held in scores.items()}
    for place, rows in [*model.named_modules()]:
        if isinstance(rows, LearnedRows) and strategy.group.size > 1:
            held = strategy.learned.tables[place]
            assert len(held.whole(strategy.group.rank == 1)) == len(rows.nodes) * (strategy.group.rank == 1)
    strategy.learned.give_back()
    strategy.close()
    return found | {name: value.detach().clone() for name, value in model.state_dict().items()}


def in_torch(strategy: Strategy, model: nn.Module, rival: Any, epochs: int = 3) -> dict[str, Tensor]:
    """Train as `learned` does with torch's optimiser of sparse gradients, on the rows that were read."""
    read: dict[int, list[Tensor]] = {}
    tables = [module for module in model.modules() if isinstance(module, LearnedRows)]
    for table in tables:
        table.register_forward_hook(
            lambda module, given, _: read.setdefault(id(module), []).append(given[0] - module.nodes.start)
        )
    own = {id(table.weight) for table in tables}
    dense = torch.optim.Adam([p for p in model.parameters() if id(p) not in own], lr=0.02)
    sparse = rival([table.weight for table in tables], lr=0.05)

    def step(*_: Any) -> None:
        for table in tables:
            rows = torch.cat(read.pop(id(table))).unique()
            grad = table.weight.grad  # None where no row of the table was read
            found = table.weight.new_zeros(0, table.width) if grad is None else grad[rows]
            table.weight.grad = torch.sparse_coo_tensor(rows[None], found, table.weight.shape)
        sparse.step()
        for table in tables:
            table.weight.grad = None

    dense.register_step_post_hook(step)
    found = {f"loss {n}": torch.tensor(strategy.epoch(model, dense)) for n in range(epochs)}
    return found | {name: value.detach().clone() for name, value in model.state_dict().items()}


def bytes_of_a_big_table(group: Group) -> dict[str, Any]:
    """Return what two epochs on few nodes of many sent, by kind, how many rows they read, and the table's."""
    count, width = 4_000, 32
    generator = torch.Generator().manual_seed(2)
    edges = torch.randint(0, count, (2, 3 * count), generator=generator)
    nodes = torch.arange(count)
    graph = Graph.from_edges(edges, num_nodes=count, y=nodes % 3, train_mask=nodes % 401 == 0)
    local = local_graph(group, graph, (nodes % group.size).int(), group.size)
    model = build_model(local, "sage", {"hidden": width, "layers": 2}, seed=1)
    strategy = Sampled(local, seed=3, group=group, fanout=[3, 3], batch_size=5, prepare=0)
    read = [0]
    tables = [module for module in model.modules() if isinstance(module, LearnedRows)]
    tables[0].register_forward_hook(lambda _, given, __: read.append(len(given[0].unique())))
    strategy.learn_rows(model, "adam", lr=0.05)
    optimizer = torch.optim.Adam(strategy.parameters(model), lr=0.02)
    group.ledger.snapshot(clear=True)
    for _ in range(2):
        strategy.epoch(model, optimizer)
    sent: dict[str, int] = {}
    for volume in group.ledger.snapshot()["volumes"]:
        sent[volume["kind"]] = sent.get(volume["kind"], 0) + volume["bytes_sent"]
    strategy.close()
    return {"sent": sent, "read": sum(read), "width": width, "table": count * width * 4}


def equal_to_one_process(group: Group) -> list[str]:
    """Train every case in batches and on the graph, on all ranks and in one process; return what differs."""
    wrong = []
    for number, (layer, options, kind, name) in enumerate(CASES):
        dtype = torch.float32 if number == 1 else torch.float64
        graph = graph_without(kind).to(dtype=dtype)
        num_parts = 4 if group.size == 2 else group.size
        parts = (
            torch.arange(NODES) * num_parts // NODES if kind == "bare" else torch.arange(NODES) % num_parts
        )
        local = local_graph(group, graph, parts.int(), num_parts)
        model = lambda held: model_for(held, layer, options, dtype)  # noqa: B023, E731
        options_of_batches = BATCHES | ({"evaluate": [2, 2]} if number == 0 else {})
        batches = learned(Sampled(graph, seed=3, **options_of_batches), model(graph), name)
        whole = learned(Single(graph, seed=3), model(graph), name)
        pairs: list[tuple[str, dict[str, Tensor], Strategy]] = [
            ("sampled", batches, Sampled(local, seed=3, group=group, **options_of_batches)),
            ("halo", whole, Halo(local, seed=3, group=group)),
            ("sequential", whole, Sequential(local, seed=3, group=group)),
        ]
        saint: dict[str, Any] = {
            "seed": 3,
            "coverage": 5,
            "how": "node",
            "size": 12,
            "steps": 3,
            "prepare": 0,
        }
        if number == 1:
            drawn = learned(Saint(graph, **saint), model(graph), name)
            pairs.append(("saint", drawn, Saint(local, group=group, **saint)))
            clusters = Clustered(graph, clusters=num_parts, seed=3, together=1)
            sampler = ClusterSampler(graph, num_parts, seed=3, parts=parts.int())
            clusters.batching._loader = Loader(sampler, range(num_parts), batch_size=1, threads=0)
            cut = learned(clusters, model(graph), name)
            pairs.append(("clustered", cut, Clustered(local, seed=3, together=1, group=group)))
        for told, reference, strategy in pairs:
            with rows_of(local.own_ids if number % 2 else None):
                made = model(local)
            found = learned(strategy, made, name)
            bound = 2e-5 if dtype == torch.float32 else 1e-10
            for what, value in reference.items():
                distance = far(found[what], value)
                if not distance <= bound:
                    wrong.append(f"{told}, {layer} on {kind}: {what} differs by {distance:.1e}")
    return wrong
