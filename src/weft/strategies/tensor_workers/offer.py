"""The dense work of a pass, offered to tensor workers: products with weights, and their gradients.

Layers are written as always. While the mode is on, a product of rows with a weight that is known by name and
version goes to a worker (`apply_vertex`, and `apply_edge`, which has the halves of attention scores with it);
all else, and rows that are few, stays here. The product that a pass ends with goes with the loss.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from weft.kernels.project import project_op
from weft.strategies.tensor_workers.last_product import Deferred, LastProduct, PutOff, read_all
from weft.strategies.tensor_workers.operators import gradient_of, joined_with, of_weights
from weft.strategies.tensor_workers.pool import TensorPool

LEAST_ROWS = 2
Away = Callable[[], AbstractContextManager[None]]
"""What a thread is in while it waits for an answer."""


class Offer(TorchFunctionMode):
    """Sends products of one pass to a pool; `weights` are those of the version, by their keys."""

    def __init__(
        self, pool: TensorPool, weights: Mapping[str, Tensor], away: Away, last: LastProduct
    ) -> None:
        super().__init__()
        self.pool, self.away, self.last = pool, away, last
        self._products = 0
        self._names = {id(value): key for key, value in weights.items()}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear or func is project_op:
            args = read_all(args)
        if func is F.linear and not kwargs and self._takes(args[0]):
            weights = [each for each in args[1:] if each is not None]
            if all(id(each) in self._names for each in weights):
                return self._product("apply_vertex", [args[0]], weights)
        if func is project_op and self._takes(args[0]) and id(args[1]) in self._names:
            return self._product("apply_edge", [args[0], args[2]], [args[1]])
        return func(*args, **kwargs)

    def run(self, name: str, rows: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        """Return what a worker makes of rows and weights."""
        with self.away():
            held = {self._names[id(each)]: each.detach() for each in weights}
            return list(self.pool.run(name, [each.detach() for each in rows], held))

    def _product(self, name: str, rows: list[Tensor], weights: list[Tensor]) -> Any:
        number, self._products = self._products, self._products + 1
        if number == self.last.number:
            shape = (rows[0].shape[0], weights[0].shape[0])
            put_off = PutOff(
                partial(self._made, name, rows, weights),
                partial(_WithLoss.apply, self, rows[0], *weights),  # type: ignore[no-untyped-call]
                self.last,
            )
            return Deferred.of(put_off, shape, rows[0].dtype)
        made = self._made(name, rows, weights)
        if name == "apply_vertex":
            self.last.note(number, made)
        return made

    def _made(self, name: str, rows: list[Tensor], weights: list[Tensor]) -> Any:
        made = _Applied.apply(self, name, len(rows), *rows, *weights)  # type: ignore[no-untyped-call]
        return made[0] if len(made) == 1 else made

    def _takes(self, rows: Any) -> bool:
        plain = isinstance(rows, Tensor) and rows.dim() == 2 and rows.is_cpu and rows.shape[0] >= LEAST_ROWS
        return plain and rows.dtype in (torch.float32, torch.float64)


class _Applied(torch.autograd.Function):
    """An operator elsewhere. Backward sends what it was given once more: a worker keeps nothing."""

    @staticmethod
    def forward(ctx: Any, offer: Offer, name: str, count: int, *given: Tensor) -> tuple[Tensor, ...]:
        ctx.offer, ctx.name, ctx.count, ctx.weights = offer, name, count, given[count:]
        ctx.save_for_backward(*given[:count])
        return tuple(offer.run(name, list(given[:count]), list(given[count:])))

    @staticmethod
    def backward(ctx: Any, *towards: Tensor) -> tuple[Any, ...]:
        rows, name = list(ctx.saved_tensors), gradient_of(ctx.name)
        learnt = ctx.needs_input_grad[3]
        found = ctx.offer.run(name if learnt else of_weights(name), [*rows, *towards], list(ctx.weights))
        return None, None, None, *(found if learnt else [None, *found])


class _WithLoss(torch.autograd.Function):
    """The loss of a product elsewhere, whose gradients have come with it."""

    @staticmethod
    def forward(ctx: Any, offer: Offer, rows: Tensor, *given: Tensor) -> Tensor:
        *weights, places = given
        name, last = joined_with(offer.last.loss.name), offer.last
        ctx.learnt = ctx.needs_input_grad[1]
        sent = [rows, places, last.y, last.numbers]
        loss, *found = offer.run(name if ctx.learnt else of_weights(name), sent, weights)
        ctx.save_for_backward(*found)
        return loss

    @staticmethod
    def backward(ctx: Any, *towards: Tensor) -> tuple[Any, ...]:
        found = [towards[0] * each for each in ctx.saved_tensors]
        return None, *(found if ctx.learnt else [None, *found]), None
