"""Brings together, at the owner of each row, what several ranks computed for it from their edges.

Sums add up. A maximum carries how many edges attain it, so that ties share the gradient of the whole graph. A
softmax carries its mass, and its merge is attention once more, over the results. All of it is done on
*contributions*: own results, then those that others sent, as the sources of a small CSR by own row (`Fold`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from weft import kernels
from weft.comm.plan import HaloPlan
from weft.exchanges.base import Exchange
from weft.exchanges.features import fetch_halo, stack_rows
from weft.graph.sparse import SparseFeatures, product
from weft.kernels.partial import attention_part
from weft.kernels.reference_attention import ADDITIVE

Results = Sequence[Tensor]
"""What merging takes of each row: a sum; an extreme and how many edges attain it; a softmax with its mass."""
Reduce = Callable[["Fold", Results], tuple[Tensor, Results]]
"""Gives what layers read, and what merging it once more would take."""


class Fold:
    """Several contributions to each row, reduced to one: contribution i is to row `rows[i]`."""

    def __init__(self, rows: Tensor, num_rows: int) -> None:
        self.rows, self.num_rows = rows, num_rows
        self.indices = torch.argsort(rows, stable=True)
        counts = torch.bincount(rows, minlength=num_rows)
        self.indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    def sum(self, given: Results) -> tuple[Tensor, Results]:
        """Return the sum of [n, ...]."""
        (part,) = given
        total = kernels.spmm(self.indptr, self.indices, _flat(part)).reshape(self.num_rows, *part.shape[1:])
        return total, (total,)

    def largest(self, given: Results) -> tuple[Tensor, Results]:
        """Return the largest values, with how many edges attain them."""
        return self._extreme(*given, largest=True)

    def smallest(self, given: Results) -> tuple[Tensor, Results]:
        """Return the smallest values, with how many edges attain them."""
        return self._extreme(*given, largest=False)

    def softmax(self, given: Results) -> tuple[Tensor, Results]:
        """Return the mean of values [n, H, D] weighted by exp(mass); both come as one, [n, H, D + 1]."""
        (packed,) = given
        value, mass = packed[..., :-1].contiguous(), packed[..., -1].contiguous()
        nothing = mass.new_zeros(self.num_rows, mass.shape[1])
        out, total = attention_part(ADDITIVE, self.indptr, self.indices, mass, nothing, value, 1.0)
        return out, (torch.cat([out, total[..., None]], dim=-1),)

    def _extreme(self, values: Tensor, counts: Tensor, *, largest: bool) -> tuple[Tensor, Results]:
        top, count = _Extreme.apply(  # type: ignore[no-untyped-call]
            _flat(values), _flat(counts), self, largest
        )
        results = tuple(each.reshape(self.num_rows, *values.shape[1:]) for each in (top, count))
        return results[0], results


class Merge:
    """Merges results of the rows that are computed here: the own ones, then those of others in halo order.

    `plan` brings rows from their owners to the ranks that compute for them; `spread` is an exchange by it,
    `collect` one by its way back. The caller holds own rows.
    """

    def __init__(self, plan: HaloPlan, spread: Exchange, collect: Exchange) -> None:
        self.spread, self.collect = spread, collect
        # Where results for own rows stand among those computed here, and those of others in halo order.
        self._own: slice | Tensor = slice(0, plan.num_rows)
        self._others: slice | Tensor = slice(plan.num_rows, None)
        self.alone = spread.group.size == 1
        """Whether no other rank has anything to add."""
        self.fold = Fold(torch.cat([torch.arange(plan.num_rows), plan.send_rows]), plan.num_rows)

    def begin_step(self) -> None:
        """Begin a step of both exchanges."""
        self.spread.begin_step()
        self.collect.begin_step()

    def end_step(self) -> None:
        """End a step of both exchanges."""
        self.spread.end_step()
        self.collect.end_step()

    def expand(self, own: Tensor) -> Tensor:
        """Return a row for each that is computed here, from those that the caller holds."""
        return own if self.alone else torch.cat([own, self.spread.gather(own)])

    def sum(self, part: Tensor) -> Tensor:
        """Return the sum of all results of each row that the caller holds."""
        return part if self.alone else self._merged(Fold.sum, (part,))

    def sum_sparse(self, part: SparseFeatures) -> SparseFeatures:
        """Return the sums of sparse results, exactly: for inputs, whose aggregate is made once."""
        if self.alone:
            return part
        own, others = part[self._own], part[self._others]
        brought = fetch_halo(others, self.collect.whole_plan, self.collect.group)
        arrived = cast(SparseFeatures, brought)[others.shape[0] :]
        fold = self.fold
        return self._finished_sparse(product(fold.indptr, fold.indices, stack_rows(own, arrived)))

    def extreme(self, value: Tensor, count: Tensor, *, largest: bool) -> Tensor:
        """Return the largest or smallest of all values, from those here and how many edges attain each."""
        return (
            value if self.alone else self._merged(Fold.largest if largest else Fold.smallest, (value, count))
        )

    def softmax(self, out: Tensor, mass: Tensor) -> Tensor:
        """Return the mean of all results [rows, H, D] weighted by exp(mass), mass [rows, H]."""
        if self.alone:
            return out
        packed = torch.cat([out.to(mass.dtype), mass[..., None]], dim=-1)
        return self._merged(Fold.softmax, (packed,)).to(out.dtype)

    # What layouts differ in

    def _merged(self, reduce: Reduce, results: Results) -> Tensor:
        """Return the rows that the caller holds, from the results computed here."""
        return reduce(self.fold, [self._collected(result) for result in results])[0]

    def _finished_sparse(self, own: SparseFeatures) -> SparseFeatures:
        return own

    def _collected(self, part: Tensor) -> Tensor:
        return torch.cat([part[self._own], self.collect.gather(part[self._others])])


def _flat(rows: Tensor) -> Tensor:
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


class _Extreme(torch.autograd.Function):
    """The extreme of the contributions of each row; the edges that attain it share its gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, counts: Tensor, fold: Fold, largest: bool) -> tuple[Tensor, Tensor]:
        lowest = -torch.inf if largest else torch.inf
        some = counts > 0
        reduce = "max" if largest else "min"
        top, _ = kernels.extreme(fold.indptr, fold.indices, values.where(some, lowest), reduce)
        reached = top[fold.rows]
        tied = some & ((values == reached) | (values.isnan() & reached.isnan()))
        attaining = (counts * tied).to(values.dtype)
        total = kernels.spmm(fold.indptr, fold.indices, attaining)
        ctx.rows = fold.rows
        ctx.save_for_backward(attaining / total.clamp(min=1)[fold.rows])
        attained = total.to(counts.dtype)
        ctx.mark_non_differentiable(attained)
        return top.where(total > 0, 0.0), attained

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (share,) = ctx.saved_tensors
        return gradients[0][ctx.rows] * share, None, None, None
