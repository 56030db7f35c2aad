"""Epochs of intervals: they run ahead in threads, and each step takes what one epoch has learned."""

from collections.abc import Generator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from weft.errors import RecipeError
from weft.strategies.asynchronous.board import Board, Ended, summed, told_ages
from weft.strategies.asynchronous.choices import Choice, Exactly, Newest, Replayed
from weft.strategies.asynchronous.interval_block import BoardExchange, IntervalBlock
from weft.strategies.asynchronous.interval_run import IntervalLoss, IntervalRun
from weft.strategies.asynchronous.intervals import Interval, make_intervals
from weft.strategies.asynchronous.kept import kept, put_back
from weft.strategies.asynchronous.order import Order, OrderLog, file_of
from weft.strategies.asynchronous.post import Post
from weft.strategies.batching import Batching
from weft.strategies.halo.halo_parts import HaloParts
from weft.strategies.local import LocalGraph
from weft.strategies.pipeline.stage_model import frozen
from weft.strategies.reducer import PlainReducer
from weft.strategies.shared import Shared
from weft.strategies.tensor_workers.tensor_workers import TensorOptions, TensorWorkers
from weft.tasks.base import Targets

Form = Literal["sync", "deterministic", "free"]
_PATIENCE = 10.0


class IntervalSteps(Batching):
    """One step an epoch: the weights take what all intervals have learned in it."""

    layout: HaloParts

    def __init__(
        self,
        shared: Shared,
        layout: HaloParts,
        reducer: PlainReducer,
        *,
        count: int,
        form: Form,
        staleness: int,
        replay: Path | None,
        folder: Path | None,
        tensors: TensorOptions,
    ) -> None:
        super().__init__(shared, layout)
        self.tensors = tensors
        self._tensors: TensorWorkers | None = None
        self.reducer, self.form, self.staleness = reducer, form, staleness
        self.replay, self.folder = replay, folder
        self.whole = layout.exact_block()
        graph, plan = layout.graph, layout.exchange.whole_plan
        self._need_rows(len(graph.home.node_ids))
        self.lane = shared.group.subgroup(shared.group.ranks, purpose="intervals")
        self.intervals = make_intervals(graph.home, plan.send_rows, count)
        self._targets = self._split_targets(graph)
        self._constant = len(graph.node_types) == 1 and graph.x is not None
        if self._constant:  # brought now, by all workers: later everyone asks when it likes
            self.whole.join_constant(graph.x)
            if not isinstance(graph.x, Tensor):
                self.whole.aggregates_sparse(graph.x)
        self._epochs: int | None = None
        self._loaded: dict[str, Tensor] = {}
        self._names: list[str] = []
        self._runs: list[IntervalRun] = []
        self._board: Board | None = None
        self._post: Post | None = None

    # Before the first epoch

    def _need_rows(self, rows: int) -> None:
        """Refuse workers without a node, whose backward has nothing to answer that of others with."""
        empty = torch.tensor([int(not rows)])
        if int(self.shared.group.all_reduce(empty, "max").wait()):
            raise RecipeError(
                "strategy.name: 'asynchronous' needs a node on every worker, one has none; use fewer, "
                "or strategy.form = 'sync'"
            )

    def expect(self, epochs: int) -> None:
        """Let epochs begin before they are asked for, up to the last one of the run."""
        self._epochs = epochs

    def check_model(self, model: nn.Module) -> None:
        """Refuse what looks at the rows of all intervals at once, or draws in the order of the clock."""
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                raise RecipeError(
                    "model.norm: 'batch' is over the rows of all intervals, which are epochs apart; use "
                    "'layer', or strategy.form = 'sync'"
                )
            if isinstance(module, _DropoutNd):
                raise RecipeError(
                    f"model: {type(module).__name__} draws from torch's generator, in whatever order "
                    "intervals come to it; use weft.nn.Dropout, whose draws go by node and epoch"
                )

    def begin_epoch(self, model: nn.Module) -> None:
        """Look at the model once more, where nobody has before."""
        if self._board is None:
            self.check_model(model)

    def _split_targets(self, graph: LocalGraph) -> list[dict[str, Targets]]:
        """Return the targets of each interval; sums over all workers are those that the worker's had."""
        task, totals = self.shared.task, []

        def sums(value: Tensor) -> Tensor:
            totals.append(self.shared.total(value))
            return totals[-1].clone()

        task.targets(graph, sums)
        found = []
        for each in self.intervals:
            told = iter([value.clone() for value in totals])
            found.append(task.targets(LocalGraph(each.shard), partial(_next, told)))
        return found

    def _begun(self, model: nn.Module, epoch: int) -> Board:
        """Return the board, with all intervals under way."""
        if self._board is not None:
            return self._board
        group = self.shared.group
        head = {"workers": group.size, "rank": group.rank, "intervals": len(self.intervals)}
        head |= {"staleness": self.staleness, "seed": int(self.shared.clock[0])}
        first = int(self._loaded["next"]) if self._loaded else epoch
        logged = self.folder if self.form == "free" else None
        log = OrderLog(None if logged is None else logged / "order", head, since=first)
        board = self._board = Board(len(self.intervals), self._choice(head), log, alone=group.size == 1)
        self._post = Post(board, self.layout.exchange.whole_plan, self.intervals, self.lane)
        self._names = [*_trained(model)]
        board.publish(epoch, frozen(_trained(model)))
        put_back(board, self._loaded, self._names)
        if self.tensors.number:
            self._tensors = TensorWorkers(self.tensors, len(self.intervals), sharing=group.size)
        for each, targets in zip(self.intervals, self._targets):
            self._runs.append(self._made(each, targets["train"], model))
            self._runs[-1].start(board, first)
        return board

    def _choice(self, head: dict[str, int]) -> Choice:
        if self.replay is not None:
            return Replayed(Order(file_of(self.replay, head["rank"]), head), self.staleness)
        return Newest(self.staleness) if self.form == "free" else Exactly(self.staleness)

    def _made(self, interval: Interval, targets: Targets, model: nn.Module) -> IntervalRun:
        assert self._post is not None, "the post is there first"
        exchange = BoardExchange(interval, self._post, self.shared.clock.clone())
        block = IntervalBlock(interval, self.whole, self.layout.graph.x, exchange)
        x = LocalGraph(interval.shard).x
        if self._constant:
            block.mark_constant(x)
        loss = IntervalLoss(model, block, x, targets, self.shared.task)
        return IntervalRun(interval.number, loss, block, self.shared.call, self._tensors)

    # The steps of an epoch

    def __len__(self) -> int:
        return 1

    def batches(self, epoch: int, first: int) -> Generator[None, None, None]:
        """Give the only step."""
        yield None

    def taken(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
    ) -> tuple[Tensor, int]:
        """Wait for all that an epoch has learned, and go downhill; others may be epochs ahead meanwhile."""
        epoch, phase = int(self.shared.clock[1]), self.shared.events.phase
        board = self._begun(model, epoch)
        board.allow(epoch if self._epochs is None else self._epochs - 1)
        with phase("wait"):
            loss, gradients = summed(board.taken(epoch))
        parameters = _trained(model)
        for parameter, gradient in zip(parameters.values(), gradients):
            parameter.grad = gradient
        with phase("reduce"):
            self.reducer.add_up()
        with phase("optimizer"):
            optimizer.step()
        board.log.write("update", epoch)
        if self._tensors is not None:
            self._tensors.epoch_ended()
        board.publish(epoch + 1, frozen(parameters))
        return loss, self.shared.targets["train"].count

    # What is told, and kept

    def epoch_fields(self) -> dict[str, Any]:
        """Return how old what was read was, and how far intervals are ahead; called by all workers."""
        board = self._board
        if board is None:
            return {}
        own = {
            "ages": told_ages(board.take_ages()),
            "ahead": max(0, board.entered + 1 - board.newest),
            "versions": len(board.versions),
            "waited": board.take_waited(),
            "spans": board.take_spans(),
            **({} if self._tensors is None else {"tasks": self._tensors.told()}),
        }
        told = {"form": self.form, "staleness": self.staleness, "intervals": len(self.intervals)}
        return {"asynchronous": {**told, "workers": self.shared.group.all_gather_json(own)}}

    def holds(self, name: str) -> bool:
        """Return whether a tensor of a checkpoint is of this."""
        return name == "next" or name.split(".")[0] in ("rows", "version", "learned")

    def state(self) -> dict[str, Tensor]:
        """Return all that stands on the board, with every interval between two epochs; called by all."""
        if self._board is None:
            return dict(self._loaded)
        following = self._drain()
        # Where nothing old is read another number of workers can go on: what was begun ahead is done again.
        fresh = self.form == "deterministic" and not self.staleness
        return {} if fresh else kept(self._board, following, self._names)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        self._loaded = dict(state)

    def _drain(self) -> int:
        """Bring all intervals of all workers to the end of the same epoch; return the next one."""
        board, group = self._board, self.shared.group
        assert board is not None, "only a run that has begun is drained"
        furthest = torch.tensor([board.hold()])
        last = int(group.all_reduce(furthest, "max").wait())
        board.allow(last)
        for epoch in range(board.newest, last + 1):
            board.completed(epoch)
        assert self._post is not None
        self._post.settle()
        board.log.flush()
        return last + 1

    def close(self) -> None:
        """End all threads."""
        if self._board is None:
            return
        self._board.end(Ended())
        if self._tensors is not None:
            self._tensors.close()
            self._tensors = None
        for run in self._runs:
            run.join(_PATIENCE)
        if self._post is not None:
            self._post.close()
        self._board.log.close()
        self._board, self._post, self._runs = None, None, []


def _next(told: Iterator[Tensor], value: Tensor) -> Tensor:
    """Return the next sum that all workers know."""
    return next(told)


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that are trained, by name."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}
