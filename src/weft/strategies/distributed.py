"""What all strategies of several ranks share: one loss, one gradient, one evaluation, whoever holds what.

The loss is the sum over own nodes divided by the count of the whole graph, and gradients are summed: so the
step is that of one process. Every rank enters every collective, also one without a training node.
"""

from collections.abc import Mapping
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar, TypeGuard

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.rows import GatheredRows
from weft.errors import RecipeError
from weft.events import Events
from weft.exchanges.base import check_exchange
from weft.graph.message.block import Block
from weft.graph.parts.assignment import Assignment
from weft.strategies.base import (
    Given,
    Metrics,
    Scores,
    Strategy,
    Traffic,
    evaluating,
    joined,
)
from weft.strategies.cells import on_grid
from weft.strategies.local import LocalGraph
from weft.strategies.norm import make_global, make_local
from weft.strategies.reducer import GradientReducer
from weft.strategies.single import SameBlock, hops_of
from weft.strategies.tally import Tally
from weft.tasks.base import Pieces, Task
from weft.tasks.choose import usual_task

_EVALUATE = Label("evaluate")
_CONTROL = Label("control")


class GivenToRanks(Given, total=False):
    """What the trainer gives a strategy of several ranks."""

    group: Group | None


class Distributed(Strategy):
    """A rank's share of an epoch over a graph that several ranks hold together."""

    graph: LocalGraph  # type: ignore[assignment]
    on_workers: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = False
    exchanges: ClassVar[tuple[str, ...]] = ("exact",)
    cuts: ClassVar[str] = "nodes"
    """What a partition assigns to parts: "nodes", "edges", or nodes to the cells of a "grid"."""
    partitioner: ClassVar[str] = "metis"
    """What cuts the graph where nothing is said."""

    def __init__(
        self,
        graph: LocalGraph,
        *,
        task: Task | None = None,
        seed: int = 0,
        events: Events | None = None,
        autocast: torch.dtype | None = None,
        group: Group | None = None,
    ) -> None:
        self.group = Group.alone() if group is None else group
        self.workers = self.group.size
        self.graph = graph
        self.task = usual_task(graph) if task is None else task
        self.events = events if events is not None else Events()
        self.autocast = autocast
        self.clock = torch.tensor([seed, 0, 0], dtype=torch.int64)
        self.targets = self.task.targets(graph, self._sum)
        self._sent = Traffic()
        self._beside: Mapping[str, dict[str, float]] = {}
        self._model: nn.Module | None = None
        self._reducer: GradientReducer | None = None

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse an exchange that is not allowed here, before any data is read."""
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
    def layouts(cls, workers: int) -> list[dict[str, Any]]:
        """Return the options of every arrangement of so many workers."""
        return [{}]

    @classmethod
    def shape(cls, options: Mapping[str, Any], workers: int) -> tuple[int, int] | None:
        """Return rows and columns of the grid that workers stand on, None without; refuse what is none."""
        return None

    @classmethod
    def layout(cls, options: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return how so many workers are arranged, what a partition depends on; refuse what cannot be."""
        return dict(zip(("rows", "columns"), cls.shape(options, workers) or ()))

    @classmethod
    def num_parts(cls, options: Mapping[str, Any], workers: int) -> int:
        """Return how many parts the graph is cut into for so many workers."""
        return options.get("parts") or workers

    @classmethod
    def partitioning(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name and the options of the partitioner."""
        asked = options.get("partitioner", cls.partitioner)
        return {"name": cls.partitioner} | ({"name": asked} if isinstance(asked, str) else dict(asked))

    @classmethod
    def arranged(cls, assignment: Assignment, options: Mapping[str, Any], workers: int) -> Assignment:
        """Return the assignment as the workers hold it: on a grid, a cell each."""
        shape = cls.shape(options, workers)
        return assignment if shape is None else on_grid(assignment, shape)

    # What a layout provides

    def training_block(self) -> Block:
        """Return the block of this step; called once a step, on every rank."""
        raise NotImplementedError

    def exact_block(self) -> Block:
        """Return the block of an exact forward pass, which leaves no trace."""
        raise NotImplementedError

    def end_forward(self) -> None:
        """Note that the forward pass is done: what only it needed may go before gradients take memory."""

    def rows_of(self, h: Tensor, ids: Tensor) -> Tensor:
        """Return the rows of any nodes by global id, from all ranks' own rows; called by all of them."""
        owned = self.graph.owned
        return self._holders(h if owned is None else h[owned], ids)

    @cached_property
    def _holders(self) -> GatheredRows:
        ids, owned = self.graph.shard.node_ids, self.graph.owned
        return GatheredRows(self.group, ids if owned is None else ids[owned])

    # What a step is made of

    def begin_epoch(self, model: nn.Module) -> None:
        """Make the model ready for several ranks."""
        self._prepare(model)

    def step_loss(self, model: nn.Module, batch: Any, step: int) -> tuple[Tensor, int]:
        """Return the own share of the mean loss of all training targets."""
        targets = self.targets["train"]
        h = self._forward(model, self.training_block())
        outputs = targets.outputs(model, h, self.rows_of, int(self.clock[1]))
        loss = self.task.loss.summed(outputs, targets.y) / targets.count
        self.end_forward()
        return loss, targets.count

    def backward(self, loss: Tensor) -> None:
        """Sum the gradients over ranks."""
        reducer = self._reducer
        if reducer is not None:
            reducer.begin()
        if loss.requires_grad:  # of no target there may be none: the reducer sends zeros
            loss.backward()  # type: ignore[no-untyped-call]
        if reducer is not None:
            reducer.finish()

    def total(self, value: Tensor) -> float:
        """Return the sum over ranks."""
        return float(self.group.all_reduce(value.clone(), label=_CONTROL).wait())

    # What the trainer calls

    @torch.no_grad()
    def evaluate(self, model: nn.Module, metrics: Metrics) -> Scores:
        """Return the metrics and the loss of each split over all ranks, from one exact forward pass."""
        self._prepare(model)
        with self.events.phase("evaluate"):
            return self._scores(model, metrics)

    def split_outputs(self, model: nn.Module) -> dict[str, Pieces]:
        """Return the outputs of the own targets of each split, exactly, and what they are compared with."""
        h = self._exact_rows(model)
        with evaluating(model):
            self._beside = self.task.scores_of_rows(model, h, self._sum)
            return {split: held.pieces(model, h, self.rows_of) for split, held in self.scored.items()}

    @torch.no_grad()
    def predict(self, model: nn.Module) -> Tensor:
        """Return the outputs for every node of the target type, gathered on every rank."""
        self._prepare(model)
        outputs = self._node_outputs(model)
        place = self.graph.node_types.index(self.graph.target_type)
        first, last = self.graph.node_offsets[place : place + 2]
        ids = self.graph.shard.node_ids[self.graph.target_rows] - first
        if self.graph.owned is not None:
            own = self.graph.owned[self.graph.target_rows]
            ids, outputs = ids[own], outputs[own]
        gathered = outputs.new_empty(last - first, outputs.shape[1])
        gathered[self._gathered(ids)] = self._gathered(outputs)
        return gathered

    def take_traffic(self) -> dict[str, Any] | None:
        """Return the ledger since the last call, and start it anew."""
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

    def traffic(self) -> Traffic:
        """Return what all ranks sent so far."""
        self.take_traffic()
        sent = self._sent
        counts = torch.tensor([sent.bytes_sent, sent.messages], dtype=torch.int64)
        seconds = torch.tensor(sent.exposed_seconds, dtype=torch.float64)
        total = self.group.all_reduce(counts, label=_CONTROL).wait().tolist()
        exposed = float(self.group.all_reduce(seconds, label=_CONTROL).wait())
        return Traffic(total[0], total[1], exposed)

    def agree(self, *values: float) -> list[float]:
        """Return the largest of each value over all ranks."""
        held = torch.tensor(values, dtype=torch.float64)
        agreed: list[float] = self.group.all_reduce(held, "max", label=_CONTROL).wait().tolist()
        return agreed

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON value of every rank."""
        return self.group.all_gather_json(value)

    def close(self) -> None:
        """Take the hooks off the model, and give it back its own layers."""
        self._let_go()

    # Underneath

    def _prepare(self, model: nn.Module) -> GradientReducer:
        if self._reducer is None or self._model is not model:
            self._let_go()
            make_global(model, self.group, self.graph.owned)
            # A group of its own: a rank may send a bucket late, between exchanges of others.
            lane = self.group.subgroup(self.group.ranks, purpose="gradients")
            self._model, self._reducer = model, GradientReducer(self._reduced(model), lane)
        return self._reducer

    def _reduced(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the parameters whose gradients are summed over ranks."""
        return list(model.parameters())

    def _let_go(self) -> None:
        if self._reducer is not None:
            self._reducer.close()
        if self._model is not None:
            make_local(self._model)
        self._model, self._reducer = None, None

    def _forward(self, model: nn.Module, block: Block) -> Tensor:
        blocks, device = SameBlock(block, hops_of(model)), self.graph.indptr.device.type
        return self._outputs(model, blocks, self.graph.x, device=device, num_rows=block.num_dst)

    def _node_outputs(self, model: nn.Module) -> Tensor:
        """Return the exact outputs of the own nodes of the target type."""
        h = self._exact_rows(model)[self.graph.target_rows]
        with evaluating(model):
            return self.task.rows_out(model, h)

    def _exact_rows(self, model: nn.Module) -> Tensor:
        with evaluating(model):
            return self._forward(model, self.exact_block())

    def _scores(self, model: nn.Module, metrics: Metrics) -> Scores:
        pieces, found = self.split_outputs(model), {}
        for split, held in self.scored.items():
            counted = Tally(metrics, self.task.loss)
            with evaluating(model):
                for outputs, y in pieces[split]:
                    counted.add(outputs, y)
            found[split] = counted.scores(self._evaluated, self._gathered, held.count)
        return joined(found, self._beside)

    def _evaluated(self, value: Tensor) -> Tensor:
        return self.group.all_reduce(value, label=_EVALUATE).wait()

    def _gathered(self, rows: Tensor) -> Tensor:
        """Return the rows of all ranks, in rank order."""
        counts = self.group.all_gather(torch.tensor([len(rows)]), label=_EVALUATE).wait().tolist()
        return self.group.all_gather(rows, counts, label=_EVALUATE).wait()

    def _sum(self, value: Tensor) -> Tensor:
        """Return the sum of a small tensor over ranks."""
        return self.group.all_reduce(value.clone(), label=_CONTROL).wait()


def on_workers(kind: type[Strategy]) -> TypeGuard[type[Distributed]]:
    """Return whether several workers can train by a strategy."""
    return kind.on_workers
