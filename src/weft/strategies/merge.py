"""Brings together, at the owner of each row, what several ranks computed for it from their edges.

Sums add up. A maximum carries how many edges attain it, so that ties share the gradient of the whole graph. A
softmax carries its mass, and its merge is attention once more, over the results. All of it is done on
*contributions*: own results, then those that others sent, as the sources of a small CSR by own row.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor

from weft import kernels
from weft.comm.plan import HaloPlan
from weft.exchanges.base import Exchange
from weft.exchanges.features import fetch_halo, stack_rows
from weft.graph.sparse import SparseFeatures, product


class Merge:
    """Merges results of the rows that are computed here: the own ones, then those of others in halo order.

    `plan` brings rows from their owners to the ranks that compute for them; `spread` is an exchange by it,
    `collect` one by its way back. The caller holds own rows.
    """

    def __init__(self, plan: HaloPlan, spread: Exchange, collect: Exchange) -> None:
        self.num_own = plan.num_rows
        self.spread, self.collect = spread, collect
        # Where results for own rows stand among those computed here, and those of others in halo order.
        self._own: slice | Tensor = slice(0, plan.num_rows)
        self._others: slice | Tensor = slice(plan.num_rows, None)
        self.alone = spread.group.size == 1
        """Whether no other rank has anything to add."""
        self.rows = torch.cat([torch.arange(plan.num_rows), plan.send_rows])
        self.indices = torch.argsort(self.rows, stable=True)
        counts = torch.bincount(self.rows, minlength=plan.num_rows)
        self.indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])

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
        if self.alone:
            return part
        given = self._collected(part)
        flat = given.reshape(len(given), math.prod(given.shape[1:]))
        total = kernels.spmm(self.indptr, self.indices, flat)
        return self._finished(total.reshape(self.num_own, *given.shape[1:]))

    def sum_sparse(self, part: SparseFeatures) -> SparseFeatures:
        """Return the sums of sparse results, exactly: for inputs, whose aggregate is made once."""
        if self.alone:
            return part
        own, others = part[self._own], part[self._others]
        brought = fetch_halo(others, self.collect.whole_plan, self.collect.group)
        arrived = cast(SparseFeatures, brought)[others.shape[0] :]
        return self._finished_sparse(product(self.indptr, self.indices, stack_rows(own, arrived)))

    def extreme(self, value: Tensor, count: Tensor, *, largest: bool) -> Tensor:
        """Return the largest or smallest of all values, from those here and how many edges attain each."""
        if self.alone:
            return value
        values, counts = self._collected(value), self._collected(count)
        flat = len(values), math.prod(values.shape[1:])
        merged: Tensor = _Extreme.apply(  # type: ignore[no-untyped-call]
            values.reshape(flat), counts.reshape(flat), self, largest
        )
        return self._finished(merged.reshape(self.num_own, *value.shape[1:]))

    def softmax(self, out: Tensor, mass: Tensor) -> Tensor:
        """Return the mean of all results [rows, H, D] weighted by exp(mass), mass [rows, H]."""
        if self.alone:
            return out
        given = self._collected(torch.cat([out.to(mass.dtype), mass[..., None]], dim=-1))
        nothing = given.new_zeros(self.num_own, given.shape[1])
        merged = kernels.attention(
            self.indptr, self.indices, given[..., -1].contiguous(), nothing, given[..., :-1].contiguous(), 1.0
        )
        return self._finished(merged.to(out.dtype))

    # What layouts differ in

    def _finished(self, own: Tensor) -> Tensor:
        """Return the rows that the caller holds, from the own ones."""
        return own

    def _finished_sparse(self, own: SparseFeatures) -> SparseFeatures:
        return own

    def _collected(self, part: Tensor) -> Tensor:
        return torch.cat([part[self._own], self.collect.gather(part[self._others])])


class _Extreme(torch.autograd.Function):
    """The extreme of the contributions of each row; each edge that attains it gets an equal share."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, counts: Tensor, merge: Merge, largest: bool) -> Tensor:
        lowest = -torch.inf if largest else torch.inf
        some = counts > 0
        reduce = "max" if largest else "min"
        top, _ = kernels.extreme(merge.indptr, merge.indices, values.where(some, lowest), reduce)
        reached = top[merge.rows]
        tied = some & ((values == reached) | (values.isnan() & reached.isnan()))
        attaining = (counts * tied).to(values.dtype)
        total = kernels.spmm(merge.indptr, merge.indices, attaining)
        ctx.rows = merge.rows
        ctx.save_for_backward(attaining / total.clamp(min=1)[merge.rows])
        return top.where(total > 0, 0.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (share,) = ctx.saved_tensors
        return gradients[0][ctx.rows] * share, None, None, None
