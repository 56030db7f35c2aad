"""Two calls with one tensor cost one exchange: what was brought for it is given again within a step."""

from collections.abc import Callable
from typing import Any
from weakref import ref

import torch
from torch import Tensor

_MOST = 2  # tensors that a second call may ask for again: what a layer reads, and rows are large


class Recall:
    """The rows that were brought for the last few tensors of a step."""

    def __init__(self) -> None:
        self._asked: list[tuple[Any, int, Tensor]] = []

    def clear(self) -> None:
        """Forget them, as when a step ends."""
        self._asked.clear()

    def find(self, h: Tensor) -> Tensor | None:
        """Return what was kept for the very same tensor, unchanged since; None where nothing was."""
        differentiable = h.requires_grad and torch.is_grad_enabled()
        for held, version, rows in self._asked:
            if held() is h and version == _version(h) and rows.requires_grad == differentiable:
                return rows
        return None

    def keep(self, h: Tensor, rows: Tensor) -> Tensor:
        """Keep what was brought for a tensor, and return it."""
        self._asked = [*self._asked[1 - _MOST :], (ref(h), _version(h), rows)]
        return rows

    def __call__(self, h: Tensor, bring: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what was kept for the tensor; else bring it."""
        rows = self.find(h)
        return self.keep(h, bring(h)) if rows is None else rows


def _version(h: Tensor) -> int:
    return -1 if h.is_inference() else int(h._version)
