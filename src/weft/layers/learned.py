"""Learned rows: one for each node of a type, read by id.

The first value of a row is a function of the seed and the id of its node, so a worker makes those of its own
nodes alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from weft.draw import Stream, fold, normal

Reader = Callable[[Tensor, bool], Tensor]
"""(global ids [m], whether they are all of nodes held here) to their rows [m, width], with gradients."""

_AT_ONCE = 1 << 16  # rows made at a time
_own: ContextVar[Tensor | None] = ContextVar("own", default=None)


@contextmanager
def rows_of(own: Tensor | None) -> Iterator[None]:
    """Have tables that are made meanwhile hold the rows of these nodes alone, by global ids; None: of all."""
    before = _own.set(own)
    try:
        yield
    finally:
        _own.reset(before)


class LearnedRows(nn.Module):
    """A learned row for each of a range of nodes; `rows(ids)` gives those of global ids [m], [m, width].

    By itself it is one parameter that any optimiser trains. In a run that trains only the rows that were
    read, or of which each worker holds some, it is lent: `weight` then holds those that lie here, no
    parameter and not in `state_dict`, and a reader gives the rows.
    """

    def __init__(self, nodes: range, width: int) -> None:
        super().__init__()
        self.nodes, self.width = nodes, width
        own = _own.get()
        self.held = None if own is None else own[(own >= nodes.start) & (own < nodes.stop)]
        """The nodes whose rows are here, by global ids; None: all of them."""
        ids = torch.arange(nodes.start, nodes.stop) if self.held is None else self.held
        seed = int(torch.randint(2**62, (), dtype=torch.int64))
        self.weight = nn.Parameter(first_rows(seed, ids, width))
        self.reader: Reader | None = None
        self.on_host = False
        """Whether the rows stay in the host's memory wherever the model goes: a GPU has no room for them."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if self.on_host:
            self.weight.data = self.weight.data.to(fn(self.weight.data[:0]).dtype)  # the type alone
            return self
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, ids: Tensor, *, own: bool = False) -> Tensor:
        if self.reader is not None:
            return self.reader(ids, own)
        assert self.held is None, "a table of some rows is a run's, whose reader asks the others"
        rows: Tensor = self.weight[(ids - self.nodes.start).to(self.weight.device)]
        return rows.to(ids.device)

    def lend(self, values: Tensor, reader: Reader) -> None:
        """Have a reader give the rows, of which `values` are held here."""
        del self.weight
        self.register_buffer("weight", values, persistent=False)
        self.reader = reader

    def take_back(self, values: Tensor) -> None:
        """Be a parameter again, of all rows."""
        del self.weight
        self.weight = nn.Parameter(values)
        self.reader = self.held = None

    def extra_repr(self) -> str:
        return f"{len(self.nodes)}, {self.width}"


def first_rows(seed: int, ids: Tensor, width: int) -> Tensor:
    """Return the first values of the rows of ids [n], [n, width]: of unit variance over the width."""
    key, lanes = fold(seed, Stream.ROWS), np.arange(width)
    rows = torch.empty(len(ids), width)
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE].numpy()[:, None]
        rows[start : start + _AT_ONCE] = torch.from_numpy(normal(key, some, lanes) / width**0.5)
    return rows
