"""Pairs of nodes that something is to be said of: whether they are joined, of which kind, how strongly."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Pairs:
    """One row per pair; ends are global ids.

    >>> pairs = Pairs(torch.tensor([0, 2, 1]), torch.tensor([1, 3, 3]))
    >>> pairs.take(torch.tensor([2, 0])).keys.tolist()
    [2, 0]
    """

    src: Tensor
    """[n] int64"""
    dst: Tensor
    """[n] int64"""
    keys: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """[n] int64: the number of each pair among all of its split, whoever holds it. Draws are keyed by it, so
    that any number of workers draws the same. By default the places."""
    relation: Tensor | None = None
    """[n] int64: the relation of each pair, a place in the graph's `edge_types`; None: the only one."""
    y: Tensor | None = None
    """[n] or [n, k]: what is to be predicted; None where it is whether the pair is joined."""
    time: Tensor | None = None
    """[n]: when each pair came, as given."""
    data: Mapping[str, Tensor] = field(default_factory=dict)
    """[n, ...] by name: what is known of a pair and may be read by a model."""

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.src):
            object.__setattr__(self, "keys", torch.arange(len(self.src)))

    def __len__(self) -> int:
        return len(self.src)

    def take(self, rows: Tensor) -> "Pairs":
        """Return some pairs, by place or mask, with their keys."""

        def some(value: Any) -> Any:
            return value[rows] if isinstance(value, Tensor) else value

        data = {name: value[rows] for name, value in self.data.items()}
        return replace(self, data=data, **{name: some(getattr(self, name)) for name in _COLUMNS})

    def to(self, device: torch.device | str) -> "Pairs":
        """Return the pairs on a device."""

        def moved(value: Any) -> Any:
            return value.to(device) if isinstance(value, Tensor) else value

        data = {name: value.to(device) for name, value in self.data.items()}
        return replace(self, data=data, **{name: moved(getattr(self, name)) for name in _COLUMNS})


_COLUMNS = tuple(item.name for item in fields(Pairs) if item.name != "data")
