"""Learned rows: one for each node of a type, read by id."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Reader = Callable[[Tensor, bool], Tensor]
"""(global ids [m], whether they are all of nodes held here) to their rows [m, width], with gradients."""


class LearnedRows(nn.Module):
    """A learned row for each of a range of nodes; `rows(ids)` gives those of global ids [m], [m, width].

    By itself it is one parameter that any optimiser trains. In a run that trains only the rows that were
    read, or of which each worker holds some, it is lent: `weight` then holds those that lie here, no
    parameter and not in `state_dict`, and a reader gives the rows.
    """

    def __init__(self, nodes: range, width: int) -> None:
        super().__init__()
        self.nodes, self.width = nodes, width
        # Unit variance over the width, as a normalised feature row would have.
        self.weight = nn.Parameter(torch.randn(len(nodes), width) / width**0.5)
        self.reader: Reader | None = None

    def forward(self, ids: Tensor, *, own: bool = False) -> Tensor:
        if self.reader is not None:
            return self.reader(ids, own)
        return self.weight[ids - self.nodes.start]

    def lend(self, values: Tensor, reader: Reader) -> None:
        """Have a reader give the rows, of which `values` are held here."""
        del self.weight
        self.register_buffer("weight", values, persistent=False)
        self.reader = reader

    def take_back(self, values: Tensor) -> None:
        """Be a parameter again, of all rows."""
        del self.weight
        self.weight = nn.Parameter(values)
        self.reader = None

    def extra_repr(self) -> str:
        return f"{len(self.nodes)}, {self.width}"
