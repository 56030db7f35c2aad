"""Graphs and ranks of the tests of training from records: importable by name, so that ranks find them."""

import shutil
from typing import Any

import numpy as np
import torch
from halo_jobs import local_graph
from pair_jobs import pair_graph

import weft
from weft.comm.group import Group
from weft.layers.stack import Stack
from weft.strategies.records.record_graph import RecordGraph
from weft.strategies.records.record_loader import RecordFiles
from weft.strategies.records.records import RecordTraining
from weft.tasks.choose import TaskChoice
from weft.train import METRICS
from weft.train.model import build_model


def plain_graph() -> weft.Graph:
    """Return a graph with hubs, loops, repeated edges and isolated nodes."""
    draw = np.random.default_rng(3)
    edges = np.stack([draw.integers(0, 60, 900), (draw.random(900) ** 3 * 50).astype(np.int64)])
    x = torch.from_numpy(draw.random((60, 3), dtype=np.float32))
    y = torch.from_numpy(draw.integers(0, 3, 60))
    return weft.Graph.from_edges(edges, num_nodes=60, x=x, y=y, train_mask=torch.arange(60) < 25)


def numbered_graph() -> weft.Graph:
    """Return a graph of one node type and numbered relations."""
    graph, kinds = plain_graph(), torch.arange(900) % 3
    data: dict[str, Any] = {"x": graph.x, "y": graph.y, "train_mask": graph.train_mask}
    return weft.Graph.from_edges(graph.edge_index, num_nodes=60, edge_type=kinds, **data)


def typed_graph() -> weft.Graph:
    """Return a graph of two node types and three relations."""
    draw = np.random.default_rng(4)

    def pairs(src: int, dst: int) -> Any:
        return np.stack([draw.integers(0, src, 120), draw.integers(0, dst, 120)])

    x = draw.random((30, 2), dtype=np.float32)
    train = np.arange(30) % 3 > 0
    nodes = {"b": {"num_nodes": 20}, "a": {"x": x, "y": np.arange(30) % 2, "train_mask": train}}
    edges = {("a", "r", "a"): pairs(30, 30), ("b", "s", "a"): pairs(20, 30), ("a", "t", "b"): pairs(30, 20)}
    return weft.Graph.from_types(nodes, edges)


def train_on_ranks(group: Group, records: str) -> dict[str, Any]:
    """Train on all ranks: three epochs of one step, and one of small steps."""
    graph = plain_graph()
    local = local_graph(group, graph, torch.arange(60) % group.size, group.size)
    torch.manual_seed(0)
    model = Stack(3, 3, layer="sage", hidden=8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    strategy = RecordTraining(local, group=group, records=records, batch_size=100)
    for _ in range(3):
        strategy.epoch(model, optimizer)
    strategy.close()
    weights = [value.clone() for value in model.state_dict().values()]
    flat = torch.cat([value.flatten() for value in weights])
    both = group.all_gather(flat[None]).wait()
    small = RecordTraining(local, group=group, records=records, batch_size=4)
    loss = small.epoch(model, optimizer)
    small.close()
    served = {}
    for staleness in (0, 2):
        torch.manual_seed(0)
        other = Stack(3, 3, layer="sage", hidden=8)
        moving = torch.optim.Adam(other.parameters(), lr=0.01)
        apart = RecordTraining(local, group=group, records=records, batch_size=4, staleness=staleness)
        served[staleness] = [apart.epoch(other, moving) for _ in range(6)]
        apart.close()
        served[f"weights {staleness}"] = [value.tolist() for value in other.state_dict().values()]
        served[f"state {staleness}"] = sorted(len(held) for held in moving.state.values())
    torch.manual_seed(0)
    other = Stack(3, 3, layer="sage", hidden=8)
    moving = torch.optim.Adam(other.parameters(), lr=0.01)
    together = RecordTraining(local, group=group, records=records, batch_size=4)
    served["together"] = [together.epoch(other, moving) for _ in range(6)]
    served["weights"] = [value.tolist() for value in other.state_dict().values()]
    together.close()
    losses = group.all_gather(torch.tensor([loss])).wait().tolist()
    return {
        "weights": [value.tolist() for value in weights],
        "differ": float((both - both[0]).abs().max()),
        "small": losses,
        "served": served,
    }


def train_without_graph(group: Group, folder: str) -> dict[str, Any]:
    """Train on all ranks, with the graph and, when its folder is gone, from records that hold all of it."""
    graph = weft.Graph.load(f"{folder}/g")
    found = {}
    for there in (True, False):
        held: Any = local_graph(group, graph, torch.arange(60) % group.size, group.size)
        if not there:
            group.barrier()
            if group.rank == 0:
                shutil.rmtree(f"{folder}/g")
            group.barrier()
            held = RecordGraph(RecordFiles.open(f"{folder}/r"), rank=group.rank, workers=group.size)
        torch.manual_seed(0)
        model = Stack(3, 3, layer="gcn", hidden=8)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        evaluate: Any = "exact" if there else "records"
        strategy = RecordTraining(held, group=group, records=f"{folder}/r", batch_size=6, evaluate=evaluate)
        losses = [strategy.epoch(model, optimizer) for _ in range(3)]
        scores = strategy.evaluate(model, {"accuracy": METRICS["accuracy"]})
        strategy.close()
        found["there" if there else "gone"] = {"losses": losses, "scores": scores}
    return found


def pairs_on_ranks(group: Group, records: str, section: dict[str, Any]) -> dict[str, Any]:
    """Train on records of pairs on all ranks, three epochs of one step; return losses, scores and weights."""
    task = TaskChoice.of(section).make(pair_graph("mirrored"))
    task.hides(batches=False)
    shown = task.prepared(pair_graph("mirrored")).to(dtype=torch.float64)
    local = local_graph(group, shown, torch.arange(shown.num_nodes) % group.size, group.size)
    model = build_model(local, "sage", {"hidden": 8, "layers": 2}, task=task, seed=1).to(torch.float64)
    strategy = RecordTraining(local, task=task, group=group, records=records, batch_size=10**6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = [strategy.epoch(model, optimizer) for _ in range(3)]
    scores = strategy.evaluate(model, {"mrr": task.metrics["mrr"]})["test"]
    strategy.close()
    weights = torch.cat([value.flatten() for value in model.state_dict().values()]).tolist()
    return {"losses": losses, "scores": [scores["mrr"]], "weights": weights}
