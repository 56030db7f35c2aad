"""What the operators of a rehearsed rank do: counted work by phase, bytes held, and the most of them.

Every operator passes here. Those that meet a tensor without values give shapes alone; what reads a number of
one is told 1, a mask picks from one by the places it names (all, where it has no values either), and none of
its values is NaN.
"""

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from weft.plan.rehearse.work import CountedWork, work_of

_aten = torch.ops.aten


class OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators of one thread."""

    def __init__(self, held: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = held
        """Bytes of tensors that live now."""
        self.peak = held
        """The most of them at one time since `begin`."""
        self.phases: dict[str, CountedWork] = defaultdict(CountedWork)
        self._open = CountedWork()
        self._storages: dict[int, tuple[Any, int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to ask costs more than most operators

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
        for made in tree_leaves(out):
            if isinstance(made, Tensor):
                self.hold(made)
        return out

    def hold(self, tensor: Tensor) -> None:
        """Count the bytes of a tensor as long as it lives; of views, once."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        key = storage._cdata
        if key in self._storages:
            return
        size = storage.nbytes()
        self._storages[key] = weakref.ref(storage, self._forgetting(key)), size
        self.held += size
        self.peak = max(self.peak, self.held)

    def _forgetting(self, key: int) -> Callable[[Any], None]:
        me = weakref.ref(self)

        def forget(_: Any) -> None:
            watch = me()
            if watch is not None:
                watch.held -= watch._storages.pop(key, (None, 0))[1]

        return forget

    def end_phase(self, name: str) -> None:
        """Count what was done since the last phase ended as part of one that ends now."""
        self.phases[name].add(self._open)
        self._open = CountedWork()

    def take_phases(self) -> dict[str, CountedWork]:
        """Return the work of the phases since the last call; what belongs to none is "other"."""
        self.end_phase("other")
        taken, self.phases = dict(self.phases), defaultdict(CountedWork)
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


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Give the tensors that an object holds, in its attributes and in lists and tables of them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from tensors_in(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from tensors_in(held)
    elif type(value).__module__.startswith("weft.") and hasattr(value, "__dict__"):
        for held in vars(value).values():
            yield from tensors_in(held)
