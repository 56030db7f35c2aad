"""What the operators of a rehearsed rank do: counted work, bytes held, and the most of them.

Every operator passes here. Those that meet a tensor without values give shapes alone; what reads a number of
one is told 1, a mask picks from one by the places it names (all, where it has no values either), and none of
its values is NaN.
"""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from weft.plan.rehearse.work import CountedWork, work_of
from weft.strategies.memory.held import HeldBytes

_aten = torch.ops.aten


class OperatorWatch(HeldBytes):  # type: ignore[no-untyped-call]
    """Counts the operators of one thread."""

    def __init__(self, held: int = 0) -> None:
        super().__init__(held)
        self._open = CountedWork()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and count it."""
        kwargs = kwargs or {}
        if func is _aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return _number(args[0])
        if func in _MASKED and isinstance(args[1], list | tuple):
            args = (args[0], [_places(each) for each in args[1]], *args[2:])
        if func is _aten.masked_select.default and not isinstance(args[1], FakeTensor):
            return args[0][args[1].nonzero(as_tuple=True)]
        if func is _aten.nonzero.default and isinstance(args[0], FakeTensor):
            return torch.ones(args[0].shape, dtype=torch.bool).nonzero()
        out = func(*args, **kwargs)
        if func is _aten.isnan.default and isinstance(out, FakeTensor):
            out = torch.zeros(out.shape, dtype=torch.bool)
        self._open.add(work_of(func, args, kwargs, out))
        self.hold_all(out)
        return out

    def take(self) -> CountedWork:
        """Return what was done since the last call."""
        taken, self._open = self._open, CountedWork()
        return taken


_MASKED = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default}


def _number(tensor: Tensor) -> float | int | bool:
    if tensor.dtype is torch.bool:
        return True
    return 1.0 if tensor.is_floating_point() else 1


def _places(index: Any) -> Any:
    """Return a mask as the places that it names, which have a number of their own: all, without values."""
    if not isinstance(index, Tensor) or index.dtype is not torch.bool or index.dim() != 1:
        return index
    return torch.arange(len(index)) if isinstance(index, FakeTensor) else index.nonzero().flatten()
