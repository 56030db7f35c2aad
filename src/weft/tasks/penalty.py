"""What is added to the loss of a pair so that its rows stay small."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from weft.config import Range, bind
from weft.tasks.scores import End, Scorer
from weft.tasks.scores.base import other_end, rows_at, told
from weft.tasks.scores.compared import moduli


@dataclass(frozen=True)
class Penalty:
    """`weight` times the sum of powers of the numbers of a pair: those of both ends and of its relation.

    "n3" is the third power of moduli (Lacroix et al., 2018), "l2" the second. Only rows of pairs that are
    drawn have one, so rows of nodes that come often are kept smaller.
    """

    name: Literal["n3", "l2"] = "n3"
    weight: Annotated[float, Range(above=0)] = 0.01

    def each(
        self, scorer: Scorer, src: Tensor, dst: Tensor, relation: Tensor | None = None, *, side: End = "dst"
    ) -> Tensor:
        """Return that of each pair, [n], from the rows of its ends [n, d]; `side` is the end asked for."""
        weights = self.of_relation(scorer, relation, side=side)
        ends = self.of_ends(scorer, src, dst)
        return ends if weights is None else ends + weights

    def of_ends(self, scorer: Scorer, src: Tensor, dst: Tensor) -> Tensor:
        """Return what the rows of both ends have of it, [n]."""
        return self.weight * (self._sums(src, scorer.parts) + self._sums(dst, scorer.parts))

    def of_relation(self, scorer: Scorer, relation: Tensor | None, *, side: End = "dst") -> Tensor | None:
        """Return what the weights of relations have of it, [n], of one relation [1]; None: nothing."""
        numbers = scorer.relation_numbers(other_end(side))
        if numbers is None:
            return None
        sums = self.weight * self._sums(numbers, scorer.parts)  # there are fewer relations than pairs
        if scorer.num_relations == 1:
            return sums
        return rows_at(sums[:, None], told(relation, scorer.num_relations)).squeeze(1)

    def _sums(self, rows: Tensor, parts: int) -> Tensor:
        if self.name == "l2":
            squares: Tensor = torch.linalg.vecdot(rows, rows)
            return squares
        norms: Tensor = _Cubes.apply(rows, parts)  # type: ignore[no-untyped-call]
        return norms


class _Cubes(torch.autograd.Function):
    """Σ |x|³ of each row [n, d], of numbers of so many parts, in few passes over them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, parts: int) -> Tensor:
        sizes = _sizes(rows, parts)
        ctx.save_for_backward(rows, sizes)
        ctx.parts = parts
        norms: Tensor = torch.linalg.vecdot(sizes * sizes, sizes)
        return norms

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rows, sizes = ctx.saved_tensors
        if torch.is_grad_enabled():  # gradients of gradients go through them, too
            sizes = _sizes(rows, ctx.parts)
        slopes = sizes * (3 * gradient)[:, None]
        return (rows.unflatten(1, (ctx.parts, sizes.shape[1])) * slopes[:, None]).flatten(1), None


def _sizes(rows: Tensor, parts: int) -> Tensor:
    return rows.abs() if parts == 1 else moduli(rows)


def check_penalty(choice: str | Mapping[str, Any] | None) -> Penalty | None:
    """Return what `task.regularise` asks for: a name, or a table with a weight; None without."""
    if choice is None:
        return None
    options = {"name": choice} if isinstance(choice, str) else dict(choice)
    made: Penalty = Penalty(**bind(Penalty, options, "task.regularise"))
    return made
