"""What tasks of nodes share: a target is a node of the target type whose y is known."""

from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import GraphError, InputError
from weft.graph.graph import Graph
from weft.graph.untimed import with_all_times
from weft.graph.views import GraphView
from weft.layers.base import GraphInfo
from weft.tasks.base import NO_LABELS, SPLITS, Rows, Targets, Task, Total, finished
from weft.tasks.loss import Loss


class NodeTargets(Targets):
    """Own nodes of one split: their rows among all own rows, and what is known of them."""

    def __init__(self, rows: Tensor, y: Tensor, first: int) -> None:
        self.rows = rows  # [n] rows of the target type
        self.y = y[rows]
        self.places = rows + first  # [n] rows of all that this worker holds

    def __len__(self) -> int:
        return len(self.rows)

    def outputs(self, model: nn.Module, h: Tensor, rows: Rows, epoch: int) -> Tensor:
        """Return one row of outputs per node."""
        return finished(model, h[self.places])


class NodeTask(Task):
    """A task whose targets are nodes. A subclass names its losses and metrics, and says what y must be."""

    def __init__(self, *, loss: str | Loss = "auto") -> None:
        self.loss_choice = loss

    def prepared(self, graph: Graph) -> Graph:
        """Return the graph; refuse a y that this task does not predict before a model is made."""
        self.check_labels(graph)
        return by_time(graph)

    def with_targets(self, graph: Graph) -> Graph:
        """Return the graph; one without labels as one of two classes."""
        if graph.y is not None or self.columns(GraphInfo.of(graph)):
            return graph
        rows = graph.rows_of_type(graph.target_type)
        return graph.with_data(y=torch.arange(rows.stop - rows.start) % 2)

    def check_labels(self, graph: GraphView) -> Tensor:
        """Return y where it is what this task predicts; refuse another."""
        if graph.y is None:
            raise GraphError(NO_LABELS)
        return graph.y

    def targets(self, graph: GraphView, total: Total) -> dict[str, Targets]:
        """Return the own nodes of every split that some worker has, and settle what the loss is."""
        y = self.check_labels(graph)
        own: dict[str, Targets] = dict(node_targets(graph, y))
        sizes = total(torch.tensor([len(each) for each in own.values()])).tolist()
        if not sizes[0]:
            raise GraphError(_nothing_known(graph, y))
        for targets, size in zip(own.values(), sizes):
            targets.count = size
        self.loss = self.make_loss(own["train"], total)
        return {split: targets for split, targets in own.items() if targets.count}

    def of_batch(self, model: nn.Module, h: Tensor, batch: Any) -> Tensor:
        """Return the outputs of a batch's seeds."""
        return finished(model, h[: batch.seeds.numel()])


def by_time(graph: Graph) -> Graph:
    """Return the graph with a time for every edge, where targets have times: batches may go by these."""
    timed = "time" in graph.edge_data and graph.of_target("time") is not None
    return with_all_times(graph, "time") if timed else graph


def node_targets(graph: GraphView, y: Tensor) -> dict[str, NodeTargets]:
    """Return the own nodes of each split, those without a known y left out."""
    owned = graph.owned  # replicas count where their root is
    own = None if owned is None else owned[graph.target_rows]
    by_split = {}
    for name in SPLITS:
        mask = graph.of_target(f"{name}_mask")
        mask = mask if mask is None or own is None else mask & own
        rows = (
            torch.zeros(0, dtype=torch.int64, device=y.device) if mask is None else mask.nonzero().flatten()
        )
        by_split[name] = NodeTargets(graph.labelled(rows), y, int(graph.target_rows.start or 0))
    return by_split


def _nothing_known(graph: GraphView, y: Tensor) -> str:
    """Return why there is no node to train on."""
    mask = graph.of_target("train_mask")
    if mask is None or not bool(mask.any()):
        return "the graph has no train_mask; pass train_mask= (and val_mask=, test_mask=), a boolean a node"
    node = int(mask.nonzero()[0])
    what, none = ("target", "nan") if y.is_floating_point() else ("label", "-1")
    return f"no node of train_mask has a {what}: y is {none} at all of them, the first is node {node:,}"


def check_columns(width: int, wanted: int, what: str, *, exact: bool) -> None:
    """Refuse outputs of fewer columns than there are classes, or of another number where it must be that."""
    if width != wanted if exact else width < wanted:
        raise InputError(
            f"the model gives {width} outputs a node, the graph has {wanted} {what}; make it with {wanted}"
        )
