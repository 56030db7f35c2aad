"""What every strategy gives the trainer: an epoch of training and an exact evaluation.

A strategy owns the graph's blocks and the clock (seed, epoch, step) that keys every random draw. The trainer
knows nothing of how the work is done; the strategy knows nothing of checkpoints or early stopping.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar, TypedDict, Unpack, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.events import Events
from weft.graph.graph import Graph
from weft.registry import Registry
from weft.strategies.loss_scale import LossScale
from weft.strategies.step import fill_gradients, take_step
from weft.tasks.base import Targets, Task
from weft.tasks.choose import usual_task

Scores = dict[str, dict[str, float]]
Metrics = Mapping[str, Callable[[Tensor, Tensor], float]]


@dataclass(frozen=True)
class Traffic:
    """What a run sent to other workers."""

    bytes_sent: int = 0
    messages: int = 0
    exposed_seconds: float = 0.0


class Given(TypedDict, total=False):
    """What the trainer gives every strategy beside the options of the recipe; each passes it on."""

    task: Task | None
    seed: int
    events: Events | None
    autocast: torch.dtype | None


class Strategy:
    """A way of doing one epoch over a graph."""

    name: ClassVar[str] = ""
    over: ClassVar[tuple[str, ...]] = ("nodes",)
    """What targets may be: nodes, pairs."""
    hides_batches: ClassVar[bool] = False
    """Whether a step can leave edges out of its messages."""
    on_workers: ClassVar[bool] = False
    """Whether several workers can train together; then it is a `Distributed`."""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    """Where one process can train."""
    worker_devices: ClassVar[tuple[str, ...]] = ("cpu",)
    """Where several workers can, by exchanges that can too."""
    exchanges: ClassVar[tuple[str, ...]] = ()
    """The exchanges that it allows."""
    takes_whole: ClassVar[bool] = True
    """Whether one process may hold the graph itself instead of its parts."""
    workers: int = 1
    _device: torch.device | None = None
    between: Callable[[], bool] | None = None
    """Asked between two steps of an epoch, on every worker, whether to leave it there."""

    def __init__(
        self,
        graph: Graph,
        *,
        task: Task | None = None,
        seed: int = 0,
        events: Events | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.graph = graph
        self.task = usual_task(graph) if task is None else task
        self.events = events if events is not None else Events()
        self.autocast = autocast
        self.clock = torch.tensor([seed, 0, 0], dtype=torch.int64)
        self.targets: dict[str, Targets] = self.task.targets(graph, lambda value: value)

    @classmethod
    def graph_on_device(cls, options: Mapping[str, Any]) -> bool:
        """Return whether the graph is to lie where the model is; else the strategy brings what is needed."""
        return True

    @classmethod
    def records_alone(cls, options: Mapping[str, Any]) -> str | None:
        """Return the folder of records that all is read from; None where a graph is."""
        return None

    @property
    def scored(self) -> dict[str, Targets]:
        """The targets that an evaluation scores, by split."""
        return {split: held for split, held in self.targets.items() if held.scored}

    @property
    def device(self) -> torch.device:
        """Where the model is: where the graph lies, unless the strategy keeps that elsewhere."""
        return self.graph.indptr.device if self._device is None else self._device

    @cached_property
    def loss_scale(self) -> LossScale | None:
        """What keeps small gradients in float16; None in other precisions."""
        return LossScale(self.device, self.agree) if self.autocast is torch.float16 else None

    @classmethod
    def check_pairs(cls, options: Mapping[str, Any], hides: bool) -> None:
        """Refuse options that do not go with pairs, before any data is read.

        `hides`: a step is to leave its own pairs out of its messages.
        """

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that cannot be trained like this, before the run's folder is made."""

    def parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Return what this worker trains, for its optimiser: all that the model does not hold fixed."""
        return [each for each in model.parameters() if each.requires_grad]

    def gather_weights(self, model: nn.Module) -> None:
        """Bring weights that other workers train into the model, before anybody reads it; called by all."""

    def joined_state(
        self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return an optimiser's state, by `parameter.name`, with what other workers keep; called by all."""
        return dict(state)

    def own_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return of what `joined_state` gave what this worker's optimiser keeps."""
        return dict(state)

    # What a step is made of: `take_step` calls these, in this order

    def begin_epoch(self, model: nn.Module) -> None:
        """Make ready for the steps of an epoch."""

    def gradients(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
    ) -> tuple[Tensor, int]:
        """Fill the gradients of a step; return its loss and the number of targets that it is a mean of."""
        return fill_gradients(self, model, optimizer, batch, step)

    def step_loss(self, model: nn.Module, batch: Any, step: int) -> tuple[Tensor, int]:
        """Return the own targets' share of the mean loss of all, and how many all are."""
        raise NotImplementedError

    def backward(self, loss: Tensor) -> None:
        """Fill the gradients from a loss, those of all workers together."""
        loss.backward()  # type: ignore[no-untyped-call]

    def end_step(self) -> None:
        """Note that backward is done."""

    def total(self, value: Tensor) -> float:
        """Return the sum over workers."""
        return float(value)

    # What the trainer calls

    def epoch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        """Train for one epoch, advance the clock, and return the mean loss of the training targets.

        By default an epoch is one step on the whole graph.
        """
        self.begin_epoch(model)
        model.train()
        loss, _ = take_step(self, model, optimizer, None, 0)
        self.clock[1] += 1
        return self.total(loss.detach().double())

    def evaluate(self, model: nn.Module, metrics: Metrics) -> Scores:
        """Return the metrics and the loss of each split, computed exactly and without changing any state."""
        raise NotImplementedError

    def predict(self, model: nn.Module) -> Tensor:
        """Return what the model gives for every node of the target type: outputs, or rows of pairs' ends."""
        raise NotImplementedError

    def seek(self, epoch: int) -> None:
        """Set the clock to the start of an epoch, as after a resume."""
        self.clock[1] = epoch
        self.clock[2] = 0

    def state(self) -> dict[str, Tensor]:
        """Return what this worker needs to continue, beyond the clock: nothing where steps stand alone."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave, before the first epoch."""

    state_sums: ClassVar[tuple[str, ...]] = ()
    """Names in `state` of what adds up over workers."""

    def is_by_node(self, name: str) -> bool:
        """Return whether a tensor of `state` has a row for each of `state_nodes`."""
        return False

    def state_nodes(self) -> Tensor:
        """Return the ids of the nodes that this worker holds."""
        raise NotImplementedError

    def exchange_errors(self) -> dict[int, float]:
        """Return the measured relative error of each exchanged tensor of the last epoch, where one was."""
        return {}

    def exchange_settings(self) -> dict[str, Any]:
        """Return what an exchange that chooses for itself chose for the next epoch."""
        return {}

    def epoch_fields(self) -> dict[str, Any]:
        """Return what the event of the last epoch tells beyond losses, scores and seconds."""
        return {}

    def gather(self, value: Any) -> list[Any]:
        """Return the small JSON value of every worker, in their order."""
        return [value]

    def traffic(self) -> Traffic:
        """Return what was sent so far, by all workers."""
        return Traffic()

    def take_traffic(self) -> dict[str, Any] | None:
        """Return what this worker sent since the last call, for an event; None where there is nobody else."""
        return None

    def add_traffic(self, snapshot: Mapping[str, Any]) -> None:
        """Count what a traffic event of an earlier session of the run tells; nothing where nobody sends."""

    def agree(self, *values: float) -> list[float]:
        """Return the largest of each value over all workers, so that all of them decide alike."""
        return list(values)

    def close(self) -> None:
        """Let go of the model; a strategy that ended can be made anew."""

    def _outputs(
        self, model: nn.Module, blocks: Any, x: Any, *, device: str, num_rows: int | None = None
    ) -> Tensor:
        """Return what a model gives, in at least 32 bits, or say why the task can do nothing with it.

        `num_rows` is how many rows it must have; None: whatever it has.
        """
        with torch.autocast(device, dtype=self.autocast, enabled=self.autocast is not None):
            outputs: Any = model(called(model, blocks), x)
        self.task.check_rows(outputs, num_rows)
        # Losses are summed in at least 32 bits whatever the storage.
        wide: Tensor = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
        return wide if self.loss_scale is None else self.loss_scale.up(wide)


strategies: Registry[type[Strategy]] = Registry("strategy", "weft.strategies")


def takes(kind: type[Strategy], name: str) -> bool:
    """Return whether a strategy can be given something by name: it says so, or passes it on."""
    hints = get_type_hints(kind.__init__, include_extras=True)
    passed = (get_args(hint)[0] for hint in hints.values() if get_origin(hint) is Unpack)
    return name in hints or any(name in get_type_hints(record) for record in passed)


def called(model: nn.Module, blocks: Any) -> Any:
    """Return what a model is called with beside x: the blocks, or the only one where it takes `block`."""
    if next(iter(signature(model.forward).parameters), "") != "block":
        return blocks
    if len({id(block) for block in blocks}) > 1:
        raise InputError(
            f"{type(model).__name__}.forward takes one block, a batch has one a hop: write forward(blocks, "
            "x) and use blocks[0] in the first layer, blocks[1] in the next"
        )
    return blocks[0]


def joined(scores: Scores, more: Mapping[str, dict[str, float]]) -> Scores:
    """Return the scores of each split, and what is told of it beside them."""
    return {split: {**held, **more.get(split, {})} for split, held in scores.items()}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Have a model in evaluation mode for a while; then, also after an error, every module is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
