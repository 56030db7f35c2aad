"""Which task a run has: the one that `[task]` names, or the one that the graph's labels suggest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from weft.config import bind
from weft.errors import GraphError, RecipeError
from weft.graph.checks import may_be_classes
from weft.graph.views import GraphView
from weft.registry import suggest
from weft.tasks.base import Task, shown, tasks
from weft.tasks.loss import Loss

AUTO = "auto"
_BY_LABELS = ("node_classification", "node_multilabel", "node_regression")
"""What `auto` may come to."""


@dataclass(frozen=True)
class TaskChoice:
    """The name and the options of a task, checked before any data is read; "auto": the labels decide."""

    name: str = AUTO
    options: dict[str, Any] = field(default_factory=dict)
    loss: str | dict[str, Any] = "auto"
    """A name, or a table with a name and the options of the loss."""

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> "TaskChoice":
        """Return what a recipe's `[task]` says."""
        options = dict(section)
        name = options.pop("name", AUTO)
        if not isinstance(name, str):
            raise RecipeError(f"task.name: expected a string, got {name!r}")
        if name == AUTO and options:
            raise RecipeError(f"task.{next(iter(options))}: name the task that it is an option of: task.name")
        loss = options.pop("loss", AUTO)
        called = loss.get("name") if isinstance(loss, Mapping) else loss
        if not isinstance(called, str):
            raise RecipeError(f"task.loss: expected a name, or a table with one, got {loss!r}")
        bound = {} if name == AUTO else bind(tasks[name], options, "task", given=("loss",))
        chosen = cls(name, bound, dict(loss) if isinstance(loss, Mapping) else loss)
        chosen.check_names(called, AUTO, {}, where="task")
        if isinstance(loss, Mapping) and name != AUTO:
            tasks[name].loss_of(called, {key: value for key, value in loss.items() if key != "name"})
        return chosen

    @property
    def kinds(self) -> list[type[Task]]:
        """The task of the name, or those that "auto" may come to."""
        return [tasks[each] for each in (_BY_LABELS if self.name == AUTO else [self.name])]

    @property
    def metrics(self) -> list[str]:
        """The names of their metrics."""
        return list(dict.fromkeys(name for kind in self.kinds for name in kind.metrics))

    @property
    def losses(self) -> list[str]:
        """The names of their losses."""
        return list(dict.fromkeys(name for kind in self.kinds for name in kind.losses))

    def check_names(self, loss: str, metric: str, own: Mapping[str, Any], *, where: str = "train") -> None:
        """Refuse a loss or a metric that the task does not have; `own` are metrics of the user's."""
        known = ("auto", *self.losses)
        if loss not in known and ":" not in loss:
            raise RecipeError(
                f"{where}.loss: {suggest(loss, known)}expected one of {shown(known)}, or "
                f"a function of your own as 'module:function', got {loss!r}"
            )
        known = ("auto", *self.metrics, *own)
        if metric not in known:
            raise RecipeError(
                f"train.metric: {suggest(metric, known)}expected one of {shown(known)}, got {metric!r}"
            )

    def make(self, graph: GraphView, *, loss: str | Loss = "auto") -> Task:
        """Return the task, or the one that suits the labels."""
        made: Any = tasks[_suggested(graph) if self.name == AUTO else self.name]
        task: Task = made(**self.options, loss=self.loss if loss == AUTO else loss)
        return task

    def to_dict(self) -> dict[str, Any]:
        """Return the section as a run keeps it."""
        return {"name": self.name, **self.options, **({} if self.loss == AUTO else {"loss": self.loss})}


def usual_task(graph: GraphView) -> Task:
    """Return the task that suits the labels of a graph."""
    return TaskChoice().make(graph)


def known_metrics() -> list[str]:
    """Return the names of the metrics of every task, and of what is told beside them."""
    kinds = [tasks[name] for name in tasks.names()]
    told = (name for kind in kinds for name in (*kind.metrics, *kind.measures, *kind.beside))
    return list(dict.fromkeys(told))


def suggested_by(recorded: Mapping[str, Any], graph: GraphView) -> str:
    """Return the task of a run of before, which had labels alone, by what it told of its graph."""
    return "node_multilabel" if recorded.get("multilabel", graph.multilabel) else "node_classification"


def _suggested(graph: GraphView) -> str:
    if graph.y is None:
        return _BY_LABELS[0]
    if graph.y.dim() == 2:
        return "node_multilabel"
    if not graph.y.is_floating_point():
        return "node_classification"
    if _holds_all(graph):  # of some of the numbers a worker could not tell
        _check_numbers(graph.y)
    return "node_regression"


def _holds_all(graph: GraphView) -> bool:
    """Return whether every node of the target type is here."""
    kind = graph.node_types.index(graph.target_type)
    return len(graph.of_target("y")) == graph.node_offsets[kind + 1] - graph.node_offsets[kind]  # type: ignore[arg-type]


def _check_numbers(y: Tensor) -> None:
    """Refuse to guess what whole numbers are that may be classes, of which some are nan or far too large."""
    known = y[y.isfinite()]
    if not known.numel() or bool((known != known.round()).any()) or int(known.min()) < -1:
        return
    unknown = y.isnan()
    if may_be_classes(y, len(y)):
        node = int(unknown.nonzero()[0])
        raise GraphError(
            f"y holds nan at node {node:,} and whole numbers elsewhere: name task.name = 'node_regression' "
            "to predict numbers, or write -1 where a class is not known"
        )
    node = int(torch.where(unknown, -torch.inf, y).argmax())
    raise GraphError(
        f"y holds whole numbers, {int(y[node]):,} at node {node:,}, which is more than there are classes: "
        "name task.name = 'node_regression' to predict numbers, or number the classes 0 … C-1, as "
        "numpy.unique(y, return_inverse=True)[1] does"
    )
