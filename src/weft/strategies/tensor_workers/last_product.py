"""The product that a pass ends with: nobody reads it but the loss, so both and their gradients are one task.

The first pass shows which product this is. In the others it is put off: the loss asks for it with its own
gradients. Should anything else read it after all, it is made then, and not put off again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from weft.errors import TrainingError
from weft.strategies.tensor_workers.frames import is_carried
from weft.tasks.loss import Loss

Make = Callable[[], Tensor]
Join = Callable[[Tensor], Tensor]
"""The loss of the rows at some places of a product."""


class LastProduct:
    """What the passes of one interval have shown of their last product, and the loss behind it."""

    def __init__(self, loss: Loss, y: Tensor, count: int) -> None:
        self.loss, self.y = loss, y
        self.numbers = torch.tensor([count, *(loss.numbers or ())], dtype=torch.float64)
        """By what the sum of losses is divided, and what else the loss is made of again."""
        self.number: int | None = None
        """Of the product among those of a pass; None: it is not known, or something else follows it."""
        self._made: tuple[int, Tensor] | None = None
        self._settled = loss.numbers is None or not is_carried(y)

    def note(self, number: int, made: Tensor) -> None:
        """Take in the result of a product."""
        if not self._settled:
            self._made = (number, made)

    def settle(self, h: Tensor, outputs: Tensor) -> None:
        """See whether the last product gave a model's rows, or the outputs themselves."""
        if self._made is not None:
            number, made = self._made
            self._settled, self._made = True, None
            self.number = number if made is h or made is outputs else None


@dataclass(eq=False)
class PutOff:
    """A product that is not made yet: `make` makes it, `join` its loss."""

    make: Make
    join: Join
    last: LastProduct
    made: Tensor | None = None

    def read(self) -> Tensor:
        """Return the product for something else than the loss, which it is made for from now on."""
        if self.made is None:
            if not torch.is_grad_enabled():
                raise TrainingError(
                    "strategy.tensor_workers: what the model ends with in one epoch it reads without a "
                    "gradient in another; use tensor_workers = 0"
                )
            self.last.number = None
            self.made = self.make()
        return self.made


class Deferred(Tensor):
    """Stands for a product that is put off, or some of its rows; whoever reads a value has it made."""

    put_off: PutOff
    places: Tensor | None

    @staticmethod
    def of(
        put_off: PutOff, shape: tuple[int, int], dtype: torch.dtype, places: Tensor | None = None
    ) -> "Deferred":
        """Return what stands for it; `places` are the rows of it that are meant, None: all."""
        found: Deferred = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            Deferred, shape, dtype=dtype, requires_grad=True
        )
        found.put_off, found.places = put_off, places
        return found

    def joined(self) -> Tensor:
        """Return the loss of these rows."""
        places = torch.arange(self.shape[0]) if self.places is None else self.places
        return self.put_off.join(places)

    def read(self) -> Tensor:
        """Return these rows, made now."""
        rows = self.put_off.read()
        return rows if self.places is None else rows[self.places]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _TOLD:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        if func is Tensor.__getitem__ and args[0].places is None and _are_places(args[1]):
            whole, places = args
            return Deferred.of(whole.put_off, (len(places), whole.shape[1]), whole.dtype, places)
        args, kwargs = read_all((args, kwargs or {}))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = read_all((args, kwargs or {}))
        return func(*args, **kwargs)


_TOLD: frozenset[Any] = frozenset(
    [Tensor.dim, Tensor.size, Tensor.numel, Tensor.__len__]
    + [
        getattr(Tensor, name).__get__
        for name in ("shape", "dtype", "device", "is_cpu", "requires_grad", "ndim")
    ]
)
"""What can be asked without reading a value."""


def read_all(held: Any) -> Any:
    """Return arguments of a call with products that are made."""
    return tree_map_only(Deferred, Deferred.read, held)


def _are_places(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.int64 and index.dim() == 1
