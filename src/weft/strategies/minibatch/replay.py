"""Steps on batches as CUDA graphs: the host launches one, not some two hundred kernels.

A batch is padded to one of a few sizes. The first step of a size is run as any other, the second is captured,
all further ones are replayed: the same kernels on the same shapes each time, so the numbers do not depend on
which of the three a step was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from weft.kernels import gpu
from weft.layers.learned import LearnedRows
from weft.layers.stack import Stack
from weft.reading.damage import one_line
from weft.samplers.base import Batch
from weft.samplers.gpu.padded import PaddedBatch, PaddingError, Sizes

MOST = 12
"""Sizes that are captured; steps of others are run as they come."""
Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass
class _Size:
    """The steps of one size."""

    inputs: PaddedBatch
    graph: torch.cuda.CUDAGraph | None = None
    loss: Tensor | None = None
    grads: Sequence[Tensor | None] = field(default_factory=tuple)


class Replay:
    """The gradients of steps; `replay(model, batch, clock)` fills them and returns the loss.

    `loss(model, batch)` is what is captured, a function of the batch and the clock alone. None is returned
    for a model whose layers ask for what padding would change; it is then for good not `able`, and `reason`
    says why.
    """

    def __init__(self, loss: Loss, fanout: Sequence[int]) -> None:
        self.loss, self.fanout = loss, list(fanout)
        self.able, self.reason = True, ""
        self._sizes: dict[Sizes, _Size] = {}
        self._addresses: tuple[int, ...] = ()
        self._pool: Any = None

    @staticmethod
    def suits(model: nn.Module, fanout: Sequence[int]) -> bool:
        """Return whether the steps of a model can be replayed: padding must not change its numbers."""
        if not isinstance(model, Stack) or any(isinstance(each, _BatchNorm) for each in model.modules()):
            return False
        if any(isinstance(each, LearnedRows) and each.reader is not None for each in model.modules()):
            return False  # the rows that are read, and take gradients, are others in every step
        narrow = all(each.dtype != torch.float64 for each in model.parameters())
        return narrow and all(0 <= count <= gpu.most_edges() for count in fanout)

    def fetch(self, batch: Batch) -> Batch:
        """Do now, as a loader's thread does, what a step would wait for; return the batch."""
        if not self.able:
            return batch.fetch()
        _ = batch.y if reads_x(batch) else (batch.y, batch.x)
        return batch

    def __call__(self, model: nn.Module, batch: Batch, clock: Tensor) -> Tensor | None:
        """Fill the gradients of a step and return its loss."""
        params = [each for each in model.parameters() if each.requires_grad]
        self._check_addresses([*model.parameters(), *model.buffers()])
        sizes = Sizes.of(batch)
        recording = self._sizes.get(sizes)
        size = recording or _Size(PaddedBatch(batch, sizes, self.fanout, reads_x=reads_x(batch)))
        size.inputs.fill(batch, clock)
        if recording is None:
            try:
                loss, grads = self._run(model, size.inputs, params)
            except PaddingError as refusal:
                self._refuse(str(refusal))
                return None
            if len(self._sizes) < MOST:
                self._sizes[sizes] = size
        else:
            try:
                self._capture(model, size, params)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # of CUDA: something in the step waits, or lies on another stream
                self._refuse(f"CUDA cannot capture the step ({one_line(error)})")
                return None
            loss, grads = self._replayed(size)
        for param, grad in zip(params, grads):
            param.grad = grad
        return loss

    def _run(self, model: nn.Module, inputs: PaddedBatch, params: list[nn.Parameter]) -> tuple[Tensor, Any]:
        loss = self.loss(model, inputs.anew(reads_x=reads_x(inputs)))
        return loss.detach(), torch.autograd.grad(loss, params, allow_unused=True)

    def _refuse(self, reason: str) -> None:
        """Replay nothing from now on: steps are run as they come."""
        self.able, self.reason = False, reason
        self._sizes.clear()
        self._pool = None

    def _capture(self, model: nn.Module, size: _Size, params: list[nn.Parameter]) -> None:
        if size.graph is not None:
            return
        for param in params:
            param.grad = None
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with gpu.capturing(graph, pool=self._pool):
            size.loss, size.grads = self._run(model, size.inputs, params)
        size.graph = graph

    def _replayed(self, size: _Size) -> tuple[Tensor, Any]:
        assert size.graph is not None
        assert size.loss is not None
        size.graph.replay()
        return size.loss, size.grads

    def _check_addresses(self, tensors: Sequence[Tensor]) -> None:
        """Forget what was captured on weights that lie elsewhere now."""
        addresses = tuple(each.data_ptr() for each in tensors)
        if addresses != self._addresses:
            self._sizes.clear()
            # A pool ends with its last graph: torch refuses to capture into it once more.
            self._pool = None
            self._addresses = addresses


def reads_x(batch: Batch) -> bool:
    """Return whether a step reads the features itself: a matrix on the GPU, from which it takes rows."""
    return isinstance(batch.graph.x, Tensor) and batch.graph.x.is_cuda and not batch.brings("x")
