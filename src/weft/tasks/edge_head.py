"""What is said of an edge from the rows of its ends, its relation and what is known of it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.errors import InputError
from weft.layers.base import Linear, require_positive
from weft.tasks.scores.base import End, rows_at, told


class Ends(nn.Module):
    """relu(A src + B dst + C data + b), plus a row per relation where there are several: [..., hidden]."""

    def __init__(self, width: int, hidden: int, *, edge_width: int = 0, num_relations: int = 1) -> None:
        super().__init__()
        self.width, self.edge_width = width, edge_width
        self.linear = Linear(2 * width + edge_width, hidden)
        self.relation = nn.Parameter(torch.zeros(num_relations, hidden)) if num_relations > 1 else None

    def forward(
        self, src: Tensor, dst: Tensor, relation: Tensor | None = None, data: Tensor | None = None
    ) -> Tensor:
        """Return [n, hidden], or [n, k, hidden] where an end is [n, k, d]; data is [n, e], or [n, k, e]."""
        parts = [self.of_end(src, "src"), self.of_end(dst, "dst"), *self.of_pair(relation, data)]
        if any(part.dim() == 3 for part in parts):
            parts = [part[:, None] if part.dim() == 2 else part for part in parts]
        return F.relu(sum(parts[1:], parts[0]))

    def of_end(self, rows: Tensor, end: End) -> Tensor:
        """Return A src + b, or B dst."""
        weight, width = self.linear.weight, self.width
        if end == "src":
            return F.linear(rows, weight[:, :width], self.linear.bias)
        return F.linear(rows, weight[:, width : 2 * width])

    def of_pair(self, relation: Tensor | None, data: Tensor | None) -> list[Tensor]:
        """Return what does not come from the ends, and refuse what is missing or has no place here."""
        parts = []
        if self.relation is not None:
            parts.append(rows_at(self.relation, told(relation, len(self.relation))))
        if (0 if data is None else data.shape[-1]) != self.edge_width:
            got = "none" if data is None else str(data.shape[-1])
            raise InputError(f"expected {self.edge_width} numbers that are known of a pair, got {got}")
        if data is not None:
            weight = self.linear.weight[:, 2 * self.width :]
            parts.append(F.linear(data.to(weight.dtype), weight))
        return parts


class EdgeHead(nn.Module):
    """What is said of an edge, [n, columns], from the rows of its ends and what is known of it.

    A linear map of `Ends`: W relu(A src + B dst + C data + b) + c, with as many units as rows are wide.
    `then` is what outputs go through at last, the units of numbers say.
    """

    def __init__(
        self,
        width: int,
        columns: int,
        edge_width: int = 0,
        *,
        num_relations: int = 1,
        then: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_positive(self, width=width, columns=columns, num_relations=num_relations)
        self.width = width
        self.ends = Ends(width, width, edge_width=edge_width, num_relations=num_relations)
        self.last = Linear(width, columns)
        self.then = then

    def forward(
        self, src: Tensor, dst: Tensor, relation: Tensor | None = None, data: Tensor | None = None
    ) -> Tensor:
        """Return [n, columns] of src and dst [n, d], with relation [n] and data [n, edge_width] if any."""
        out: Tensor = self.last(self.ends(src, dst, relation, data))
        return out if self.then is None else self.then(out)
