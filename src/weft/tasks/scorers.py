"""Scorers: how well two nodes go together, from their rows and the relation asked for.

A scorer is called with the rows of both ends, [n, d]; either may be [n, k, d], k nodes beside one. `against`
takes some rows and all candidates at once. Scores are logits: any number, higher is likelier. First weights
are drawn from torch's generator. With one relation its number need not be told.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.config import Range, bind
from weft.errors import InputError, RecipeError
from weft.kernels import gather, segment_matmul
from weft.layers.base import Linear, glorot_, require_positive, unit_rows
from weft.registry import Registry

End = Literal["src", "dst"]
_GIVEN = ("width", "num_relations", "edge_width")
_AT_ONCE = 1 << 22
"""Numbers that an MLP holds of pairs of rows and candidates at a time."""


def rows_at(rows: Tensor, places: Tensor) -> Tensor:
    """Return rows[places], for places of any shape; the gradients of a row always add up in the same order.

    Those of torch's own indexing do not on several threads, and a run would have other bits each time.
    """
    return gather(rows, places.flatten().to(rows.device)).reshape(*places.shape, *rows.shape[1:])


class Scorer(nn.Module):
    """The inner product of `query` of one end and `key` of the other; other formulas override both calls."""

    takes_edge_data: bool = False
    """Whether what is known of a pair is read."""

    def __init__(self, width: int, *, num_relations: int = 1) -> None:
        super().__init__()
        require_positive(self, width=width, num_relations=num_relations)
        self.width, self.num_relations = width, num_relations

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return [n, d] of rows [n, d] that are this end of pairs of these relations."""
        return rows

    def key(self, rows: Tensor) -> Tensor:
        """Return [..., d] of rows of the other end."""
        return rows

    def forward(self, src: Tensor, dst: Tensor, relation: Tensor | None = None) -> Tensor:
        """Return the score of each pair: [n], or [n, k] where an end is [n, k, d]; relation is [n]."""
        if src.dim() == 3:
            one, many = self.query(dst, relation, "dst"), self.key(src)
        else:
            one, many = self.query(src, relation, "src"), self.key(dst)
        # No product of matrices: it sums rows at the end of a tile in another order, and breaks ties.
        return ((one[:, None] if many.dim() == 3 else one) * many).sum(-1)

    def against(
        self, src: Tensor, all: Tensor, relation: Tensor | None = None, *, side: End = "dst"
    ) -> Tensor:
        """Return the scores [n, m] of sources [n, d] with all candidates [m, d] for the other end.

        With `side = "src"` the candidates are sources, and the n rows the other end.
        """
        return self.query(src, relation, _other(side)) @ self.key(all).t()

    def extra_repr(self) -> str:
        return f"{self.width}, num_relations={self.num_relations}"


scorers: Registry[type[Scorer]] = Registry("scorer", "weft.tasks")


def check_scorer(
    options: str | Mapping[str, Any], *, where: str = "task.score"
) -> tuple[str, dict[str, Any]]:
    """Return the name and the options, converted, of a scorer as a recipe gives it; refuse mistakes."""
    given = {"name": options} if isinstance(options, str) else dict(options)
    name = given.pop("name", None)
    if not isinstance(name, str):
        raise RecipeError(f'{where}: expected a name or a table with one, such as {{name = "dot"}}')
    return name, bind(scorers[name], given, where, given=_GIVEN)


def make_scorer(
    options: str | Mapping[str, Any], width: int, *, num_relations: int = 1, edge_width: int = 0
) -> Scorer:
    """Return the scorer that a recipe describes, for rows of `width` and pairs of so many relations."""
    name, bound = check_scorer(options)
    data = {"edge_width": edge_width} if scorers[name].takes_edge_data else {}
    return scorers[name](width, num_relations=num_relations, **data, **bound)


@scorers.add("dot")
class Dot(Scorer):
    """srcᵀ dst, whatever the relation."""


@scorers.add("cosine")
class Cosine(Scorer):
    """srcᵀ dst / (|src| |dst|), whatever the relation; 0 where a row is 0. At most 1: use a temperature."""

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return rows of length 1."""
        return unit_rows(rows)

    def key(self, rows: Tensor) -> Tensor:
        """Return rows of length 1."""
        return unit_rows(rows)


@scorers.add("bilinear")
class Bilinear(Scorer):
    """srcᵀ W dst, a matrix per relation (RESCAL; Nickel et al., 2011)."""

    def __init__(self, width: int, *, num_relations: int = 1) -> None:
        super().__init__(width, num_relations=num_relations)
        self.weight = nn.Parameter(torch.empty(num_relations, width, width))
        glorot_(self.weight)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return Wᵀ src, or W dst, by one product per relation."""
        weight = self.weight if end == "src" else self.weight.transpose(1, 2)
        if self.num_relations == 1:
            return rows @ weight[0]
        kind = _told(relation, self.num_relations)
        order = kind.argsort(stable=True)
        counts = torch.bincount(kind, minlength=self.num_relations).cpu()
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return segment_matmul(rows[order], offsets, weight)[order.argsort()]


@scorers.add("distmult")
class DistMult(Scorer):
    """Σ src * r * dst, a row r per relation (Yang et al., 2015)."""

    def __init__(self, width: int, *, num_relations: int = 1) -> None:
        super().__init__(width, num_relations=num_relations)
        self.weight = nn.Parameter(torch.empty(num_relations, width))
        glorot_(self.weight)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return rows times their relation's."""
        return rows * (
            self.weight
            if self.num_relations == 1
            else rows_at(self.weight, _told(relation, self.num_relations))
        )


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
            parts.append(rows_at(self.relation, _told(relation, len(self.relation))))
        if (0 if data is None else data.shape[-1]) != self.edge_width:
            got = "none" if data is None else str(data.shape[-1])
            raise InputError(f"expected {self.edge_width} numbers that are known of a pair, got {got}")
        if data is not None:
            weight = self.linear.weight[:, 2 * self.width :]
            parts.append(F.linear(data.to(weight.dtype), weight))
        return parts


@scorers.add("mlp")
class MLP(Scorer):
    """wᵀ relu(A src + B dst + C data + b) + c, of `hidden` units, by default the width of rows.

    (u, v) and (v, u) differ. With several relations b has a row for each.
    """

    takes_edge_data = True

    def __init__(
        self,
        width: int,
        *,
        num_relations: int = 1,
        edge_width: int = 0,
        hidden: Annotated[int, Range(least=1)] | None = None,
    ) -> None:
        super().__init__(width, num_relations=num_relations)
        self.ends = Ends(width, hidden or width, edge_width=edge_width, num_relations=num_relations)
        self.last = Linear(hidden or width, 1)

    def forward(
        self, src: Tensor, dst: Tensor, relation: Tensor | None = None, data: Tensor | None = None
    ) -> Tensor:
        """Return the score of each pair; data [n, e] is what is known of it, or [n, k, e]."""
        scores: Tensor = self.last(self.ends(src, dst, relation, data))
        return scores.squeeze(-1)

    def against(
        self, src: Tensor, all: Tensor, relation: Tensor | None = None, *, side: End = "dst"
    ) -> Tensor:
        """Return the scores [n, m] with all candidates; the units of a few rows are held at a time."""
        one = sum(self.ends.of_pair(relation, None), self.ends.of_end(src, _other(side)))
        many = self.ends.of_end(all, side)
        count = max(1, _AT_ONCE // max(1, many.numel()))
        parts = [self.last(F.relu(some[:, None] + many)).squeeze(-1) for some in torch.split(one, count)]
        return torch.cat(parts)


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


def _told(relation: Tensor | None, num_relations: int) -> Tensor:
    if relation is None:
        raise InputError(f"expected the relation of each pair, one of {num_relations}; got none")
    return relation


def _other(end: End) -> End:
    return "src" if end == "dst" else "dst"
