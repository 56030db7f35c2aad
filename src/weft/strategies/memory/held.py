"""The bytes of tensors that live, counted while operators run."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class HeldBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of what the operators of one thread make, as long as it lives."""

    def __init__(self, held: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = held
        """Bytes of tensors that live now."""
        self.peak = held
        """The most of them at one time; a caller may set it back."""
        self.made = 0
        """How many storages were ever held."""
        self._storages: dict[int, tuple[Any, int, int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to ask costs more than most operators

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and count what it made."""
        out = func(*args, **(kwargs or {}))
        self.hold_all(out)
        return out

    def hold_all(self, values: Any) -> None:
        """Count the tensors among some values."""
        for value in tree_leaves(values):
            if isinstance(value, Tensor):
                self.hold(value)

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
        self._storages[key] = weakref.ref(storage, self._forgetting(key)), size, self.made
        self.made += 1
        self.held += size
        self.peak = max(self.peak, self.held)

    def made_since(self, tensor: Tensor, mark: int) -> bool:
        """Return whether a tensor lies in memory that was first seen when so many had been, or later."""
        held = self._storages.get(tensor.untyped_storage()._cdata)
        return held is not None and held[2] >= mark

    def _forgetting(self, key: int) -> Callable[[Any], None]:
        me = weakref.ref(self)

        def forget(_: Any) -> None:
            watch = me()
            if watch is not None:
                watch.held -= watch._storages.pop(key, (None, 0, 0))[1]

        return forget


def tensors_in(value: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Give the tensors that an object holds, in its attributes and in lists and tables of them."""
    seen = set() if seen is None else seen
    if isinstance(value, Tensor):
        yield value
        return
    if isinstance(value, Mapping):
        inside: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    elif type(value).__module__.startswith("weft.") and hasattr(value, "__dict__") and id(value) not in seen:
        seen.add(id(value))  # a block knows its graph, which knows the block
        inside = vars(value).values()
    else:
        return
    for held in inside:
        yield from tensors_in(held, seen)
