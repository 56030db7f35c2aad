"""What a message may not do while it is traced: read the values of tensors, whose traces have none.

A refusal ends the trace even where the message catches it, since what it does then is not what it would do
with values.
"""

from contextvars import ContextVar
from types import TracebackType
from typing import Any, Never

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from weft.compiler.tracing.captures import NotCompiled

_VALUES = (
    *("numpy", "tolist", "item", "data_ptr", "storage", "untyped_storage", "__array__", "__dlpack__"),
    *(
        "__bool__",
        "__int__",
        "__float__",
        "__complex__",
        "__index__",
        "__contains__",
        "__repr__",
        "__format__",
    ),
    *("__reduce_ex__", "__deepcopy__", "is_nonzero", "equal", "allclose"),
)
_READERS = {getattr(Tensor, name): name for name in _VALUES if hasattr(Tensor, name)} | {
    torch.equal: "equal",
    torch.allclose: "allclose",
    torch.is_nonzero: "is_nonzero",
}
_HISTORIES = {getattr(Tensor, name).__get__: name for name in ("grad_fn", "is_leaf")}
"""What tells how a tensor was made: a row that was gathered is no leaf, one that is recorded is."""
_APART = (Tensor.__iter__, Tensor.unbind, torch.unbind)
"""What gives a tensor for each part along an axis; of a trace's edges that takes forever."""
_RANKS = (Tensor.dim, Tensor.ndimension, Tensor.ndim.__get__)  # type: ignore[attr-defined]
_noted: ContextVar[list[NotCompiled] | None] = ContextVar("refusals", default=None)


class Refusals:
    """Raises the first refusal under it at its end, wherever it was caught."""

    def __enter__(self) -> None:
        """Begin without any."""
        self.token = _noted.set([])

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        """Raise the first refusal, if there was one."""
        found = _noted.get()
        _noted.reset(self.token)
        if found and (error is None or isinstance(error, Exception)):
            raise found[0]

    @staticmethod
    def note(reason: NotCompiled) -> None:
        """Remember a refusal that is about to be raised."""
        found = _noted.get()
        if found is not None:
            found.append(reason)


def refused(reason: str) -> Never:
    """Refuse to compile, even where the message catches what is raised."""
    error = NotCompiled(reason, reads_others=True)
    Refusals.note(error)
    raise error


class Reads(TorchFunctionMode):
    """Refuses reads of values and notes those of sizes; `rows` is the number of edges."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.sizes = False
        """Whether anything was asked for that may tell the number of edges."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what torch would, unless that is values."""
        name = _READERS.get(func)
        if name is not None:
            refused(f"it reads the values of a tensor in Python ({name})")
        if func in _HISTORIES:
            refused(f"it asks how a tensor was made ({_HISTORIES[func]})")
        if func in _APART and self._goes_over_rows(*args, **(kwargs or {})):
            refused("it goes over its edges one by one in Python")
        made = func(*args, **(kwargs or {}))
        if type(made) is int or isinstance(made, (tuple, list)):
            self.sizes = self.sizes or func not in _RANKS
        return made

    def _goes_over_rows(self, input: Tensor, dim: int = 0) -> bool:
        return input.dim() > dim >= -input.dim() and input.shape[dim] == self.rows
