"""What the trainer asks of a strategy: an epoch of training, an exact evaluation, predictions.

A strategy is composed. Its *layout* says who holds what of the graph and gives blocks of it, its *batching*
what one step covers, its *reducer* how gradients of several workers become one; the *task* says what is
learned. They share a clock (seed, epoch, step) that keys every random draw. The loss is the sum over own
targets divided by the count of all, and gradients are summed: so a step is that of one process, which is a
group of one. Every worker enters every collective, also one without a target.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.errors import RecipeError
from weft.events import Events
from weft.exchanges.accuracy import AccuracyCost
from weft.exchanges.base import check_exchange
from weft.graph.parts.assignment import Assignment
from weft.graph.views import GraphView
from weft.registry import Registry
from weft.strategies.batching import Batching, Beside, Everything
from weft.strategies.call import ModelCall, evaluating
from weft.strategies.cells import on_grid
from weft.strategies.layout import Layout
from weft.strategies.learned import LearnedTables, RowOptimizerName
from weft.strategies.loss_scale import LossScale
from weft.strategies.reducer import PlainReducer
from weft.strategies.shared import CONTROL, EVALUATE, Infer, Shared
from weft.strategies.step import Between, EpochLoss, take_epoch, where_not_finite
from weft.strategies.tally import Tally
from weft.tasks.base import Pieces, Targets, Task, are_ranks
from weft.tasks.choose import usual_task

Scores = dict[str, dict[str, float]]
Metrics = Mapping[str, Callable[[Tensor, Tensor], float]]


@dataclass(frozen=True)
class Traffic:
    """What a run sent to other workers."""

    bytes_sent: int = 0
    messages: int = 0
    exposed_seconds: float = 0.0


class RunContext(TypedDict, total=False):
    """What the trainer gives every strategy beside the options of the recipe; each passes it on."""

    task: Task | None
    seed: int
    events: Events | None
    autocast: torch.dtype | None
    group: Group | None
    device: torch.device | None
    infer: Infer | None
    folder: Path | None


class Strategy:
    """A way of training on a graph. A subclass takes options, and composes the parts that they ask for."""

    name: ClassVar[str] = ""
    over: ClassVar[tuple[str, ...]] = ("nodes",)
    """What targets may be: nodes, pairs."""
    hides_batches: ClassVar[bool] = False
    """Whether a step can leave edges out of its messages."""
    on_workers: ClassVar[bool] = False
    """Whether several workers can train together."""
    elastic: ClassVar[bool] = False
    """Whether workers may come and go: each part then computes as a worker of its own, wherever it is."""
    lends_products: ClassVar[bool] = False
    """Whether `tensor_workers` can do products of rows and weights for it."""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    """Where one process can train."""
    worker_devices: ClassVar[tuple[str, ...]] = ("cpu",)
    """Where several workers can, by exchanges that can too."""
    exchanges: ClassVar[tuple[str, ...]] = ()
    """The exchanges that it allows."""
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = ()
    """What training on batches was measured to cost; empty: not measured."""
    in_batches: ClassVar[bool] = False
    """Whether a step is on a batch rather than the graph, which then need not lie where the model is."""
    takes_whole: ClassVar[bool] = True
    """Whether one process may hold the graph itself instead of its parts."""
    draws_from_whole: ClassVar[bool] = False
    """Whether every worker draws from the whole graph, beside the parts of it that it evaluates."""
    has_layers: ClassVar[bool] = True
    """Whether a model of layers makes rows of nodes; else they are learned, and there is no [model]."""
    cuts: ClassVar[str] = "nodes"
    """What a partition assigns to parts: "nodes", "edges", or nodes to the cells of a "grid"."""
    optimizers: ClassVar[tuple[str, ...]] = ()
    """The optimisers that can train it, without weight decay; where none is named all can, as they are."""
    rows_by_owner: ClassVar[bool] = False
    """Whether learned rows lie with the owners of their nodes; else every worker holds them all."""
    partitioner: ClassVar[str] = "metis"
    """What cuts the graph where nothing is said."""

    layout: Layout
    batching: Batching
    reducer: PlainReducer

    def __init__(
        self,
        graph: GraphView,
        *,
        task: Task | None = None,
        seed: int = 0,
        events: Events | None = None,
        autocast: torch.dtype | None = None,
        group: Group | None = None,
        device: torch.device | None = None,
        infer: Infer | None = None,
        folder: Path | None = None,
    ) -> None:
        """`device` is where the model is, by default where the graph lies; `folder` is the run's, if any."""
        self.group = Group.alone() if group is None else group
        self.task = usual_task(graph) if task is None else task
        graph_device = graph.indptr.device  # which has the number of a GPU too
        device = graph_device if device is None or device.type == graph_device.type else device
        self.loss_scale = LossScale(device, self.agree) if autocast is torch.float16 else None
        """What keeps small gradients in float16; None in other precisions."""
        self.shared = Shared(
            self.name,
            self.task,
            {},
            self.group,
            clock=torch.tensor([seed, 0, 0], dtype=torch.int64),
            device=device,
            call=ModelCall(self.task, autocast, self.loss_scale),
            events=Events() if events is None else events,
            infer=infer,
        )
        self.shared.targets = self.task.targets(graph, self.shared.total)
        self.learned = LearnedTables()
        self.tally = EpochLoss()
        self._ranked: tuple[dict[str, Pieces], Beside] | None = None
        """What the last evaluation found, where that is ranks and nothing was trained since."""
        self._sent = Traffic()

    def compose(
        self, layout: Layout, batching: Batching | None = None, reducer: PlainReducer | None = None
    ) -> None:
        """Take the parts; by default a step is on everything, and gradients are those of this process."""
        self.layout = layout
        self.batching = Everything(self.shared, layout) if batching is None else batching
        self.reducer = PlainReducer() if reducer is None else reducer

    # What is known before any data is read

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse options that cannot be; here, an exchange that is not allowed."""
        if options.get("exchange") is None:
            return
        name, chosen = check_exchange(options["exchange"])
        if name not in cls.exchanges:
            allowed = ", ".join(cls.exchanges)
            raise RecipeError(f"strategy.exchange: {cls.name!r} does not allow {name!r}; allowed: {allowed}")
        if "auto" in chosen.values() and "speed" not in signature(cls).parameters:
            raise RecipeError(
                f"strategy.exchange: {cls.name!r} knows no 'auto'; give a number, or use 'halo'"
            )

    @classmethod
    def check_pairs(cls, options: Mapping[str, Any], hides: bool) -> None:
        """Refuse options that do not go with pairs.

        `hides`: a step is to leave its own pairs out of its messages.
        """

    @classmethod
    def graph_on_device(cls, options: Mapping[str, Any]) -> bool:
        """Return whether the graph is to lie where the model is; else the strategy brings what is needed."""
        return not cls.in_batches

    @classmethod
    def device_needs(cls, graph: Any, model: Any) -> dict[str, int]:
        """Return about what its ways but a step over the whole graph take of a GPU, by their words."""
        return {}

    @classmethod
    def records_alone(cls, options: Mapping[str, Any]) -> str | None:
        """Return the folder of records that all is read from; None where a graph is."""
        return None

    # How a graph is cut for workers

    @classmethod
    def layouts(cls, workers: int) -> list[dict[str, Any]]:
        """Return the options of every arrangement of so many workers in which a step is on the graph."""
        return [] if cls.in_batches else [{}]

    @classmethod
    def shape(cls, options: Mapping[str, Any], workers: int) -> tuple[int, int] | None:
        """Return rows and columns of the grid that workers stand on, None without; refuse what is none."""
        return None

    @classmethod
    def arrangement(cls, options: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return how so many workers are arranged, what a partition depends on; refuse what cannot be."""
        return dict(zip(("rows", "columns"), cls.shape(options, workers) or ()))

    @classmethod
    def num_parts(cls, options: Mapping[str, Any], workers: int) -> int:
        """Return how many parts the graph is cut into for so many workers."""
        return options.get("parts") or workers

    @classmethod
    def partitioning(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name and the options of the partitioner."""
        named = options.get("partitioner", cls.partitioner)
        return {"name": cls.partitioner} | ({"name": named} if isinstance(named, str) else dict(named))

    @classmethod
    def arranged(cls, assignment: Assignment, options: Mapping[str, Any], workers: int) -> Assignment:
        """Return the assignment as the workers hold it: on a grid, a cell each."""
        shape = cls.shape(options, workers)
        return assignment if shape is None else on_grid(assignment, shape)

    # What it has

    @property
    def graph(self) -> GraphView:
        """What this process has of the graph."""
        return self.layout.graph

    @property
    def targets(self) -> dict[str, Targets]:
        """The own targets, by split."""
        return self.shared.targets

    @property
    def scored(self) -> dict[str, Targets]:
        """The targets that an evaluation scores, by split."""
        return self.shared.scored

    @property
    def clock(self) -> Tensor:
        """(seed, epoch, step)."""
        return self.shared.clock

    @property
    def events(self) -> Events:
        """Where phases of the work are told."""
        return self.shared.events

    @events.setter
    def events(self, events: Events) -> None:
        self.shared.events = events

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.shared.device

    @property
    def workers(self) -> int:
        """How many train together."""
        return self.group.size

    # Training

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that cannot be trained like this, before the run's folder is made."""
        self.layout.check_model(model)
        self.batching.check_model(model)
        self.reducer.check_model(model)

    def learn_rows(self, model: nn.Module, name: RowOptimizerName, *, lr: float, scale: float = 1.0) -> None:
        """Have learned rows lie with their owners and be trained row by row; called by all workers.

        `scale` is their learning rate as a multiple of `lr`. Where that is not to be they stay parameters.
        """
        if self.rows_by_owner and self.layout.lends_rows and self.loss_scale is None:
            own = self.layout.own_ids()
            self.learned = LearnedTables.lent(model, own, self.group, name=name, lr=lr, scale=scale)
            self.shared.pulls_rows = self.group.size > 1 and bool(self.learned)

    def parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Return what this worker trains, for its optimiser."""
        return self.reducer.parameters(model)

    def epoch(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, between: Between | None = None
    ) -> float:
        """Train for one epoch, advance the clock, and return the mean loss of the training targets.

        Where `between` says so it ends after a step, and the next call goes on there.
        """
        self._ranked = None
        take_epoch(self, model, optimizer, between)
        loss = self.total(self.tally.sum) / max(self.tally.count, 1)
        if not int(self.clock[2]):
            self.batching.epoch_ended(loss)
        return loss

    def where_not_finite(self) -> str:
        """Return where the loss of the last epoch was first not finite, in words; called by all workers."""
        first = self.tally.first_not_finite(len(self.batching))
        return where_not_finite(self.gather(first), len(self.batching))

    def end_step(self) -> None:
        """Note that backward is done."""
        self.layout.end_step()
        self.batching.end_step()

    # Outputs

    @torch.no_grad()
    def evaluate(self, model: nn.Module, metrics: Metrics, *, again: bool = False) -> Scores:
        """Return the metrics and the loss of each split over all workers, and change no state.

        `again` says that the weights are those of the last evaluation: ranks among all nodes, which take
        longer than some epochs, are those of before, where nothing was trained since.
        """
        self.reducer.prepare(model)
        self.reducer.gather(model)
        with self.events.phase("evaluate"), evaluating(model):
            known = self._ranked if again else None
            outputs, beside = self.batching.outputs(model) if known is None else known
            self._ranked = (outputs, beside) if all(map(are_ranks, outputs.values())) else None
            return {
                split: {**self._score(outputs[split], targets.count, metrics), **beside.get(split, {})}
                for split, targets in self.scored.items()
            }

    def details(self) -> dict[str, dict[str, Any]]:
        """Return what the last evaluation found of each split beyond metrics; called by all workers."""
        details = {split: targets.details(self.shared.total) for split, targets in self.scored.items()}
        return {split: each for split, each in details.items() if each}

    @torch.no_grad()
    def predict(self, model: nn.Module) -> Tensor:
        """Return what the model gives for every node of the target type: outputs, or rows of pairs' ends."""
        self.reducer.prepare(model)
        self.reducer.gather(model)
        with evaluating(model):
            outputs = self.batching.node_outputs(model)
        return self.layout.gathered(outputs)

    def gather_weights(self, model: nn.Module) -> None:
        """Bring weights that other workers train into the model, before anybody reads it; called by all."""
        self.reducer.gather(model)

    # What a checkpoint holds

    def seek(self, epoch: int) -> None:
        """Set the clock to the start of an epoch, as after a resume."""
        self.clock[1] = epoch
        self.clock[2] = 0

    state_sums: ClassVar[tuple[str, ...]] = ("loss",)
    """Names in `state` of what adds up over workers."""

    def state(self) -> dict[str, Tensor]:
        """Return what this worker needs to continue beyond the clock; within an epoch, how far it is."""
        within = {"step": self.clock[2:].clone(), **self.tally.state()} if int(self.clock[2]) else {}
        return {**within, **self.batching.state(), **self.layout.state(), **self.learned.state()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave, before the first epoch."""
        self.learned.load_state(state)
        rest = {name: value for name, value in state.items() if not self.learned.holds(name)}
        if "step" in rest:
            self.clock[2] = int(rest.pop("step"))
            self.tally.load_state({name: rest.pop(name) for name in ("loss", "count")})
        own = {name for name in rest if self.batching.holds(name)}
        self.batching.load_state({name: value for name, value in rest.items() if name in own})
        self.layout.load_state({name: value for name, value in rest.items() if name not in own})

    def state_range(self, name: str) -> range | None:
        """Return the nodes for the own ones of which a tensor of `state` has a row; None: it has none."""
        if self.batching.is_by_node(name):
            return range(self.graph.num_nodes)
        return self.learned.nodes_of(name)

    def state_nodes(self) -> Tensor:
        """Return the ids of the nodes that this worker holds."""
        return self.layout.global_ids(torch.arange(len(self.graph.indptr) - 1)).cpu()

    def close(self) -> None:
        """Let go of the model, and of what was opened; a strategy that ended can be made anew."""
        if self.group.size == 1:  # of several a failed one cannot ask the others
            self.learned.give_back()
        self.reducer.close()
        self.batching.close()

    # What is told

    def traffic(self) -> Traffic:
        """Return what was sent so far, by all workers."""
        self.take_traffic()
        sent = self._sent
        counts = torch.tensor([sent.bytes_sent, sent.messages], dtype=torch.int64)
        seconds = torch.tensor(sent.exposed_seconds, dtype=torch.float64)
        total = self.group.all_reduce(counts, label=CONTROL).wait().tolist()
        exposed = float(self.group.all_reduce(seconds, label=CONTROL).wait())
        return Traffic(total[0], total[1], exposed)

    def take_traffic(self) -> dict[str, Any] | None:
        """Return what this worker sent since the last call, for an event; None where there is nobody else."""
        snapshot = self.group.ledger.snapshot(clear=True)
        self.add_traffic(snapshot)
        return snapshot if self.group.size > 1 else None

    def add_traffic(self, snapshot: Mapping[str, Any]) -> None:
        """Add what a ledger told, that of an earlier session of the run for instance."""
        self._sent = Traffic(
            self._sent.bytes_sent + snapshot["bytes_sent"],
            self._sent.messages + snapshot["messages"],
            self._sent.exposed_seconds + snapshot["exposed_seconds"],
        )

    # What workers tell each other

    def total(self, value: Tensor) -> float:
        """Return the sum of a number over workers."""
        return float(self.shared.total(value))

    def agree(self, *values: float) -> list[float]:
        """Return the largest of each value over all workers, so that all of them decide alike."""
        numbers = torch.tensor(values, dtype=torch.float64)
        agreed: list[float] = self.group.all_reduce(numbers, "max", label=CONTROL).wait().tolist()
        return agreed

    def gather(self, value: Any) -> list[Any]:
        """Return the small JSON value of every worker, in their order."""
        return self.group.all_gather_json(value)

    def _score(self, pieces: Pieces, count: int, metrics: Metrics) -> dict[str, float]:
        counted = Tally(metrics, self.task.loss)
        for outputs, y in pieces:
            counted.add(outputs, y)
        return counted.scores(
            lambda value: self.group.all_reduce(value, label=EVALUATE).wait(), self.shared.everyones, count
        )


strategies: Registry[type[Strategy]] = Registry("strategy", "weft.strategies")
