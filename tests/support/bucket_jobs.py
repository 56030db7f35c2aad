"""What ranks run in the tests of buckets."""

import time
from pathlib import Path
from typing import Any

import torch

import weft
from weft.comm.group import Group
from weft.config import make_recipe
from weft.graph.graph import Graph
from weft.layers.base import GraphInfo
from weft.strategies.buckets.buckets import Buckets
from weft.strategies.buckets.visits import Visits
from weft.strategies.local import LocalGraph
from weft.tasks.base import put_head
from weft.tasks.choose import TaskChoice
from weft.train.trainer import Place
from weft.train.workers.run_parts import whole_in_parts
from weft.train.workers.worker import prepare, run_worker

TASK = {
    "name": "link_prediction",
    "width": 6,
    "score": "distmult",
    "loss": "softmax",
    "split": {"val": 0.1, "test": 0.1},
    "target": [["person", "likes", "thing"], ["person", "knows", "person"], ["thing", "beside", "thing"]],
}


def typed_links() -> Graph:
    """Return two types and three relations, one of them within a type."""
    generator = torch.Generator().manual_seed(3)

    def edges(a: int, b: int, count: int) -> torch.Tensor:
        return torch.stack([torch.randint(0, n, (count,), generator=generator) for n in (a, b)])

    ends = {
        ("person", "likes", "thing"): edges(40, 30, 200),
        ("person", "knows", "person"): edges(40, 40, 150),
        ("thing", "beside", "thing"): edges(30, 30, 90),
    }
    nodes = {"person": {"num_nodes": 40}, "thing": {"num_nodes": 30}}
    return Graph.from_types(nodes, {kind: {"edge_index": held} for kind, held in ends.items()})


def strategy_of(
    group: Group | None, *, epochs: int, dtype: torch.dtype = torch.float32, **options: Any
) -> tuple[dict[str, Any], Buckets]:
    """Train as one of a group's ranks; return what came of it, and the strategy."""
    graph = typed_links()
    task: Any = TaskChoice.of(TASK).make(graph)
    task.hides(True)
    shown = task.prepared(graph)
    held: Graph | LocalGraph = shown if group is None else whole_in_parts(shown, Buckets, {"parts": 8})
    model = put_head(task, weft.nn.NoLayers(), GraphInfo.of(shown), seed=1).to(dtype)
    given: dict[str, Any] = {"task": task, "seed": 7, "group": group, **options}
    strategy = Buckets(held, batch=40, chunk=20, negatives={"count": 8}, **given)
    strategy.check_model(model)
    optimizer = torch.optim.Adagrad(strategy.parameters(model), lr=0.1)
    losses = [strategy.epoch(model, optimizer) for _ in range(epochs)]
    if group is not None and group.rank:
        time.sleep(0.3)  # the first rank, which removes the files of all, is done before
    ids = torch.arange(graph.num_nodes)
    rows = strategy.layout.rows_of(torch.empty(0), ids)
    weights = [value.detach().clone() for value in model.parameters()]
    return {"losses": losses, "rows": rows.tolist(), "weights": [each.tolist() for each in weights]}, strategy


def trained(
    group: Group | None, partitions: int, buffer: int, epochs: int = 2, dtype: torch.dtype = torch.float32
) -> dict[str, Any]:
    """Return losses, rows and weights after some epochs of rounds."""
    options = {"partitions": partitions, "buffer": buffer, "order": "rounds"}
    found, strategy = strategy_of(group, epochs=epochs, dtype=dtype, **options)
    strategy.layout.finish()
    strategy.close()
    return found


def freely_trained(group: Group, slow: int, seconds: float, epochs: int = 2) -> dict[str, Any]:
    """Return what comes of epochs in which workers take buckets as they come, one of them slower."""
    trained = Visits._visit

    def visit(self: Visits, *given: Any) -> float:
        loss = trained(self, *given)
        if group.rank == slow:
            time.sleep(seconds)
        return loss

    Visits._visit = visit  # type: ignore[method-assign]
    found, strategy = strategy_of(group, epochs=epochs, partitions=6, buffer=3, asynchronous=True)
    found["told"] = strategy.layout.told()["buckets"]
    found["versions"] = [*strategy.layout.tables.buffer.versions]
    folder = strategy.layout.tables.files.folder
    found["left"] = sorted(path.name for path in folder.glob("relations-*"))
    strategy.layout.finish()
    strategy.close()
    return found


def sections(graph: Path) -> dict[str, Any]:
    """Return a recipe of rounds of buckets."""
    return {
        "data": {"path": str(graph)},
        "task": TASK,
        "strategy": {
            "name": "buckets",
            "partitions": 8,
            "order": "rounds",
            "batch": 40,
            "chunk": 20,
            "negatives": {"count": 8},
        },
        "train": {"optimizer": "adagrad", "lr": 0.1, "epochs": 2, "eval_every": 10},
    }


def run_rounds(group: Group, graph: Path, out: Path, stop: int = 0, *, resume: bool = False) -> None:
    """Train a recipe as the ranks of a group, from where it was left; `stop`: leave after so many steps."""
    made = make_recipe(sections(graph))
    group.prepare(lambda: prepare(made, out, workers=group.size))
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return 0 < stop <= asked

    run_worker(made, Place(out=out, resume=resume, stop=stopped), group)
