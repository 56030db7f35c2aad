"""What `edge_updater` gives, made when somebody reads it: a message that reads it makes it with itself.

PyG computes attention by `edge_updater`, one row per edge, and hands it to `propagate`. An `EdgeValues`
stands for these rows: a tensor of their shape and gradients, without values until an operator reads them.
`propagate` of the same convolution takes apart how it is made and compiles both together.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from weft.compiler.tracing.held import Held, held_by
from weft.errors import InputError
from weft.kernels.second import plain_gradients

Own = Callable[..., Any]
"""PyG's `edge_updater` of a class."""
Form = tuple[tuple[int, ...], torch.dtype]
"""Shape and type of what it gives."""


@dataclass(frozen=True)
class EdgeUpdate:
    """A call of `edge_updater`."""

    conv: Any
    own: Own
    edge_index: Tensor
    size: Any
    kwargs: dict[str, Any]
    versions: tuple[int, ...]
    held: Held | None = None
    """What `edge_update` reads beside its arguments, where it runs later."""

    @staticmethod
    def of(conv: Any, own: Own, edge_index: Tensor, size: Any, kwargs: dict[str, Any]) -> "EdgeUpdate":
        """Return a call, with the versions of the tensors that it reads."""
        return EdgeUpdate(conv, own, edge_index, size, kwargs, _versions(conv, edge_index, kwargs))

    def check(self) -> None:
        """Refuse to go on where what the call reads was written to since."""
        if self.versions != _versions(self.conv, self.edge_index, self.kwargs):
            name = type(self.conv).__name__
            raise InputError(
                f"{name}: a tensor that edge_updater read was written to in place before propagate; write to "
                "a copy, or do not accelerate this convolution"
            )

    @property
    def leaves(self) -> tuple[list[Any], Any]:
        """The arguments as a list, and how to put them together again."""
        return tree_flatten(self.kwargs)

    def result(self, leaves: Sequence[Any]) -> Any:
        """Return PyG's own result for other tensors in the place of its arguments."""
        kwargs = tree_unflatten(list(leaves), self.leaves[1])
        return self.own(self.conv, self.edge_index, size=self.size, **kwargs)

    def again(self) -> AbstractContextManager[None]:
        """Have what `edge_update` reads as it was when it was called."""
        return nullcontext() if self.held is None else self.held.again()

    def now(self) -> Any:
        """Return what PyG's own gives."""
        return self.result(self.leaves[0])

    def values(self) -> Tensor:
        """Return the rows, without gradients."""
        self.check()
        with torch.no_grad(), self.again():
            return self.now()  # type: ignore[no-any-return]


def _versions(conv: nn.Module, edge_index: Tensor, kwargs: dict[str, Any]) -> tuple[int, ...]:
    tensors = [edge_index, *(each for each in tree_flatten(kwargs)[0] if isinstance(each, Tensor))]
    return tuple(0 if each.is_inference() else each._version for each in (*tensors, *conv.parameters()))


class EdgeValues(Tensor):
    """The rows of a call of `edge_updater`, made when an operator reads them."""

    update: EdgeUpdate
    read: Callable[[], None]
    made: Tensor | None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, update: EdgeUpdate, form: Form, read: Callable[[], None]) -> "EdgeValues":
        """Return the rows of a call; `read` is told once."""
        shape, dtype = form
        rows: EdgeValues = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, shape, dtype=dtype, device=update.edge_index.device
        )
        rows.update, rows.read, rows.made = update, read, None
        return rows

    def rows(self) -> Tensor:
        """Return the rows as a plain tensor."""
        if self.made is None:
            self.read()
            self.made = self.update.values()
        return self.made

    @property
    def unread(self) -> bool:
        """Whether nothing has read the rows, or written to them."""
        return self.made is None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Run an operator on the rows."""
        given = tree_map_only(EdgeValues, EdgeValues.rows, (args, kwargs or {}))
        made = func(*given[0], **given[1])
        return args[0] if func._schema.is_mutable and isinstance(args[0], EdgeValues) else made


def edge_values(update: EdgeUpdate, form: Form, read: Callable[[], None]) -> EdgeValues:
    """Return the rows of a call, differentiable in its arguments and in the convolution's parameters."""
    update = replace(update, held=held_by(update.conv.edge_update))
    names, parameters = zip(*update.conv.named_parameters()) if list(update.conv.parameters()) else ((), ())
    tensors = [each for each in update.leaves[0] if isinstance(each, Tensor)]
    made: EdgeValues = _Updated.apply(update, form, read, names, *tensors, *parameters)  # type: ignore[no-untyped-call]
    return made


class _Updated(torch.autograd.Function):
    """Nothing is computed in forward; backward makes the rows in plain torch."""

    @staticmethod
    def forward(
        ctx: Any,
        update: EdgeUpdate,
        form: Form,
        read: Callable[[], None],
        names: tuple[str, ...],
        *tensors: Tensor,
    ) -> EdgeValues:
        ctx.update, ctx.names = update, names
        ctx.save_for_backward(*tensors)
        return EdgeValues(update, form, read)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        update, names = ctx.update, ctx.names

        def form(*tensors: Tensor) -> Tensor:
            given = iter(tensors)
            leaves = [next(given) if isinstance(each, Tensor) else each for each in update.leaves[0]]
            parameters = {f"conv.{name}": each for name, each in zip(names, given)}
            return functional_call(_UpdateModule(update), parameters, (leaves,))  # type: ignore[no-any-return]

        needs = ctx.needs_input_grad[4:]
        with update.again():  # around all, as it would undo that parameters are replaced
            return None, None, None, None, *plain_gradients(form, ctx.saved_tensors, needs, (grad,))


class _UpdateModule(nn.Module):
    """`edge_updater` as a module, whose parameters can be replaced."""

    def __init__(self, update: EdgeUpdate) -> None:
        super().__init__()
        self.conv, self._update = update.conv, update

    def forward(self, leaves: list[Any]) -> Any:
        return self._update.result(leaves)
