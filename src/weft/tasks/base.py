"""What a task is: which targets there are, what a model's rows become for them, the loss, the metrics.

A strategy runs a model and has a row for each node that it holds. The task says which targets are asked for,
makes outputs of the rows (`Targets.outputs`, `Task.of_batch`), and sums their losses. So no strategy knows of
labels, and no task of how a graph is distributed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from weft.errors import GraphError, InputError, RecipeError
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.graph.views import GraphView
from weft.layers.base import GraphInfo
from weft.layers.seeded import seeded
from weft.registry import Registry
from weft.samplers.edges import Draws
from weft.samplers.loader import Loader
from weft.tasks.loss import Loss
from weft.tasks.metrics import Metric
from weft.tasks.predicted import lists
from weft.tasks.ranking import Ranks

SPLITS = ("train", "val", "test")
EVALUATION = -1
"""Stands for the epoch where nothing may depend on one."""

NO_LABELS = "the graph has no labels y; training needs them, with -1 for nodes without a label"

Total = Callable[[Tensor], Tensor]
"""Gives the sum of a tensor over all workers; called by all."""
Rows = Callable[[Tensor, Tensor], Tensor]
"""(rows of the own nodes [n, d], global ids [m]) to the rows of these nodes [m, d], whoever holds them."""


Pieces = Iterable[tuple[Tensor | Ranks, Tensor]]
"""Outputs [n, columns] of some targets after the other, or ranks, and what these are compared with [n, …]."""


def are_ranks(pieces: Pieces) -> bool:
    """Return whether pieces are ranks, which are few numbers a pair, and can be gone through again."""
    return isinstance(pieces, list) and all(isinstance(outputs, Ranks) for outputs, _ in pieces)


class Targets(ABC):
    """The targets that a worker holds of one split."""

    rows: Tensor
    """[n] own rows of the target type, where targets are nodes."""
    places: Tensor
    """[n] the same among all own rows."""
    y: Tensor
    """[n, ...] what outputs are compared with; not read where the outputs alone tell."""
    count: int = 0
    """How many all workers hold together."""
    scored: bool = True
    """Whether an evaluation scores them."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many this worker holds."""

    @abstractmethod
    def outputs(self, model: nn.Module, h: Tensor, rows: Rows, epoch: int) -> Tensor:
        """Return one row of outputs per target, from the model's rows of all own nodes.

        Every worker calls it, also one without a target.
        """

    def pieces(
        self, model: nn.Module, h: Tensor, rows: Rows, together: Iterable[Tensor] | None = None
    ) -> Pieces:
        """Give outputs and what they are compared with for an evaluation, some targets after the other.

        What other workers hold is asked for before the first piece is given. `together` are all nodes by
        where their rows lie, rising in each: whoever reads all rows reads them so.
        """
        outputs = self.outputs(model, h, rows, EVALUATION)
        return [(outputs, self.y)]

    def details(self, total: Total) -> dict[str, Any]:
        """Return what the last evaluation found beyond metrics, ready for JSON; called by all workers."""
        return {}


class Task(ABC):
    """What is learned of a graph. It is made of the options of `[task]`; `targets` shows it the data."""

    name: ClassVar[str] = ""
    over: ClassVar[Literal["nodes", "pairs"]] = "nodes"
    """What a target is: a node, or a pair of nodes."""
    metrics: Mapping[str, Metric] = {}
    metric: ClassVar[str] = ""
    """The metric that the best epoch is judged by, where nothing is said."""
    measures: ClassVar[Mapping[str, Metric]] = {}
    """What metrics must be read with and no epoch is judged by: how many negatives there were, say."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Names of what `scores_of_rows` may tell beside the metrics."""
    watched: ClassVar[tuple[str, ...]] = ()
    """Metrics that are also computed at every evaluation."""
    losses: ClassVar[Mapping[str, Any]] = {}
    """What `train.loss` may name; the first is what "auto" means."""
    loss: Loss
    width: int = 1
    """The columns of the outputs."""

    def prepared(self, graph: Graph) -> Graph:
        """Return the graph that messages flow along, and keep the targets that are no longer in it."""
        return graph

    def hides(self, batches: bool) -> None:  # noqa: B027  nodes are not hidden
        """Settle how targets are kept out of messages; with `batches` a step has a graph of its own."""

    @classmethod
    def hides_batches(cls, options: Mapping[str, Any]) -> bool | None:
        """Return whether a step on a batch hides its targets from messages; None: they are no messages."""
        return None

    def files(self) -> dict[str, bytes]:
        """Return what workers read beside their parts, as files by name."""
        return {}

    def read(self, folder: Path) -> None:  # noqa: B027  nodes come with the parts
        """Take what `files` gave, on a worker, from the folder of the parts."""

    @property
    def pairs(self) -> Mapping[str, Pairs]:
        """The pairs of each split, where targets are pairs: what workers are given beside their parts."""
        return {}

    known_as: ClassVar[str] = "label"
    """What is known of a target, in a word."""
    split_by: ClassVar[str] = "{}_mask"
    """What says which targets are of a split; `{}` stands for its name."""

    def with_targets(self, graph: Graph) -> Graph:
        """Return a graph that a model can be made for, where nothing is known of this one's targets."""
        return graph

    def facts(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a report tells of targets, from the summary of a graph; see `weft.tasks.classes`."""
        return {}

    @abstractmethod
    def columns(self, info: GraphInfo) -> int:
        """Return how many columns the model gives for a node."""

    def make_head(self, columns: int, info: GraphInfo) -> nn.Module | None:
        """Return what turns rows of nodes into outputs and is learned or kept with the model, if anything."""
        return None

    def begin(self, model: nn.Module) -> None:  # noqa: B027  most heads need nothing
        """Give the model's head what the data told, the units of its numbers say; after `targets`."""

    @abstractmethod
    def targets(self, graph: GraphView, total: Total) -> dict[str, Targets]:
        """Return the own targets of every split that some worker has; called by all workers."""

    loss_choice: str | Mapping[str, Any] | Loss = "auto"

    @classmethod
    def loss_of(cls, name: str, options: Mapping[str, Any]) -> Loss:
        """Return one of the losses by its name, with its options if it has any."""
        if options:
            raise RecipeError(f"task.loss: {name!r} has no options in {cls.name!r}, got {shown([*options])}")
        loss: Loss = cls.losses[name]
        return loss

    def make_loss(self, train: Targets, total: Total) -> Loss:
        """Return the loss that was asked for; class weights, say, are those of all training targets."""
        return chosen_loss(self, self.loss_choice)

    rows_per_target: int = 1
    """The rows of outputs that a training target has."""

    def make_loader(self, sampler: Any, **options: Any) -> Loader | None:
        """Return what prepares batches of training targets that are no nodes; None: they are nodes.

        `options` are those of `Loader`. With a sampler of workers all of them call it.
        """
        return None

    def evaluation_loader(self, sampler: Any, split: str, **options: Any) -> Loader | None:
        """Return batches of the targets of a split to evaluate on, in order; None: they are nodes."""
        return None

    def evaluated_batch(self, model: nn.Module, h: Tensor, batch: Any) -> tuple[Tensor | Ranks, Tensor]:
        """Return the outputs of a batch of `evaluation_loader`, and what they are compared with."""
        return self.of_batch(model, h, batch), self.values_of_batch(batch)

    def evaluated_nothing(self, split: str) -> tuple[Tensor | Ranks, Tensor]:
        """Return what `evaluated_batch` gives of no target."""
        return torch.zeros(0, self.width), torch.zeros(0)

    def step_negatives(self) -> Draws | None:
        """Return what draws the negatives of a step; None: there are none."""
        return None

    def record_mark(self) -> str | None:
        """Return what tells the records of this task's pairs from those of others; None: of nodes."""
        return None

    def of_batch(self, model: nn.Module, h: Tensor, batch: Any) -> Tensor:
        """Return the outputs of a batch's own targets, from the model's rows of its nodes."""
        return h[: batch.seeds.numel()]

    def values_of_batch(self, batch: Any) -> Tensor:
        """Return what the outputs of a batch are compared with."""
        y: Tensor | None = batch.y
        assert y is not None, "a strategy is made of a graph with labels"
        return y

    def scores_of_rows(self, model: nn.Module, h: Tensor, total: Total) -> Mapping[str, dict[str, float]]:
        """Return what the rows of own nodes tell in an evaluation beside the targets' metrics, by split.

        All workers call it.
        """
        return {}

    def rows_out(self, model: nn.Module, rows: Tensor) -> Tensor:
        """Return the model's rows of nodes as they are given to users."""
        return finished(model, rows)

    def shown(self, graph: Graph, *, all_edges: bool = False) -> Graph:
        """Return the graph that messages flow along where nothing is trained; labels need not be there."""
        return graph

    def predicted(self, outputs: Tensor, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return what the rows of predictions hold, columns by name, for outputs [n, columns].

        `names` are those of the outputs, of classes say, where they have any.
        """
        return {"output": lists(outputs)}

    def output_names(self, training: Mapping[str, Any], target_type: str) -> list[str] | None:
        """Return the names of classes in the data of training, by what its record tells; None without any."""
        named = training.get("classes", {})
        names = named.get(target_type) or (next(iter(named.values())) if len(named) == 1 else None)
        return list(names) if names else None

    def holds(self, scored: Mapping[str, Targets]) -> bool:
        """Return whether the outputs of all targets may be in memory at once, for metrics that need them."""
        return True

    def gathers(self, scored: Mapping[str, Targets]) -> bool:
        """Return whether the end of a run may bring the outputs of all targets to every worker."""
        return False

    def check_rows(self, h: Any, num_rows: int | None) -> None:
        """Refuse what a model gave where it is not one row per node; `num_rows` None: whatever it has."""
        if not isinstance(h, Tensor):
            raise InputError(f"expected a tensor from the model, got {type(h).__name__}")
        if h.dim() != 2 or num_rows not in (None, h.shape[0]):
            got = tuple(h.shape)
            raise InputError(
                f"expected outputs of shape ({num_rows or 'rows'}, columns), got {got}; a row is a node"
            )


tasks: Registry[type[Task]] = Registry("task", "weft.tasks")

HEAD = "task_head"
"""The name of a task's head among the modules of a model."""


def head_of(model: nn.Module) -> nn.Module | None:
    """Return the head that a task put on a model; None where rows of nodes are outputs as they are."""
    head = getattr(model, HEAD, None)
    return head if isinstance(head, nn.Module) else None


def finished(model: nn.Module, rows: Tensor) -> Tensor:
    """Return rows of nodes as outputs: through the model's head, where it has one of nodes."""
    head = head_of(model)
    outputs: Tensor = head(rows) if head is not None and of_nodes(head) else rows
    return outputs


def of_nodes(head: nn.Module | None) -> bool:
    """Return whether a head takes rows of nodes, one at a time, rather than those of pairs."""
    return bool(getattr(head, "of_nodes", False))


def columns_of(task: Task, info: GraphInfo) -> int:
    """Return how many columns a model gives for a node; refuse a graph that does not tell."""
    columns = task.columns(info)
    if not columns:
        raise GraphError(NO_LABELS)
    return columns


def put_head(task: Task, model: nn.Module, info: GraphInfo, *, seed: int) -> nn.Module:
    """Return the model with the task's head, whose first weights depend on the seed alone."""
    if head_of(model) is None:
        with seeded(seed):
            head = task.make_head(task.columns(info), info)
        if head is not None:
            model.add_module(HEAD, head)
    return model


def chosen_loss(task: Task, choice: str | Mapping[str, Any] | Loss) -> Loss:
    """Return a task's loss of a name, its first for "auto", or one of the user's own."""
    if isinstance(choice, Loss):
        return choice
    options = {"name": choice} if isinstance(choice, str) else dict(choice)
    name = options.pop("name", "auto")
    name = next(iter(task.losses)) if name == "auto" else name
    if name not in task.losses:
        fitting = shown([*task.losses])
        raise RecipeError(
            f"train.loss: {name!r} does not fit the task {task.name!r}; use 'auto' or {fitting}"
        )
    return task.loss_of(name, options)


def shown(names: Sequence[str]) -> str:
    """Return names as messages list them."""
    return ", ".join(map(repr, names))
