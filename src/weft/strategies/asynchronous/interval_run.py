"""An interval at work: a thread that takes it through epoch after epoch, each on weights of one version."""

import copy
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from weft.strategies.asynchronous.board import Board, Ended, Learned
from weft.strategies.asynchronous.interval_block import IntervalBlock
from weft.strategies.call import ModelCall, SameBlock, hops_of
from weft.strategies.pipeline.stage_model import Weights
from weft.strategies.tensor_workers.last_product import Deferred, LastProduct
from weft.strategies.tensor_workers.offer import Away, Offer
from weft.strategies.tensor_workers.tensor_workers import TensorWorkers
from weft.tasks.base import Targets, Task


class IntervalLoss(nn.Module):
    """A model with what it is called on, to be run with the weights of a version."""

    def __init__(self, model: nn.Module, block: IntervalBlock, x: Any, targets: Targets, task: Task) -> None:
        super().__init__()
        # Of its own: a call with other weights puts them into the module for as long as it runs.
        self.model = copy.deepcopy(model).train()
        self._on: tuple[Any, ...] = (SameBlock(block, hops_of(model)), x, targets, task)
        self.last = LastProduct(task.loss, targets.y, targets.count)

    def forward(self, call: ModelCall, epoch: int) -> Tensor:
        """Return the own share of the mean loss of all training targets."""
        blocks, x, targets, task = self._on
        h = call(self.model, blocks, x, device="cpu", num_rows=blocks.block.num_dst)
        outputs = targets.outputs(self.model, h, _nowhere, epoch)
        if isinstance(outputs, Deferred):
            return outputs.joined()
        self.last.settle(h, outputs)
        loss: Tensor = task.loss.summed(outputs, targets.y) / targets.count
        return loss


class IntervalRun:
    """One interval, its model and its thread."""

    def __init__(
        self,
        number: int,
        loss: IntervalLoss,
        block: IntervalBlock,
        call: ModelCall,
        tensors: TensorWorkers | None,
    ) -> None:
        self.number, self.loss, self.block, self.call, self.tensors = number, loss, block, call, tensors
        self._thread: Thread | None = None

    def start(self, board: Board, first: int) -> None:
        """Begin with an epoch, and go on as far as the board lets it."""
        self._thread = Thread(target=self._run, args=(board, first), daemon=True)
        self._thread.name = f"weft interval {self.number}"
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, board: Board, epoch: int) -> None:
        try:
            while True:
                version, weights = board.enter(self.number, epoch)
                with self._offered(version, weights, partial(board.away, self.number)):
                    learned = self._epoch(weights, epoch)
                board.leave(self.number, epoch, learned)
                epoch += 1
        except Ended:
            pass
        except BaseException as error:
            board.end(error)

    def _offered(self, version: int, weights: Weights, away: Away) -> AbstractContextManager[Any]:
        """Return what a pass is in: its products are offered to tensor workers, if there are any."""
        if self.tensors is None or not self.tensors.wanted:
            return nullcontext()
        named = {f"{version}.{name}": value for name, value in weights.items()}
        return Offer(self.tensors.pool, named, away, self.loss.last)

    def _epoch(self, weights: Weights, epoch: int) -> Learned:
        """Go forward and backward; what others make is waited for within."""
        clock = self.block.clock
        assert clock is not None, "the block of an interval has a clock of its own"
        clock[1] = epoch
        self.block.exchange.begin_step()
        held = {f"model.{name}": value for name, value in weights.items()}
        loss: Tensor = functional_call(self.loss, held, (self.call, epoch))
        self.block.forget()
        values: list[Tensor | None] = [None] * len(weights)
        if loss.requires_grad:
            values = list(torch.autograd.grad(loss, [*weights.values()], allow_unused=True))
        return Learned(loss.detach(), values)


def _nowhere(h: Tensor, ids: Tensor) -> Tensor:
    raise AssertionError("targets that are nodes need no rows of others")
