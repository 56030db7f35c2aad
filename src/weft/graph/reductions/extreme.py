"""The largest and the smallest value, with how many edges attain it: these share its gradient equally."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from weft import kernels
from weft.graph.reductions.base import ByRow, Contribution, RowReduction, reductions
from weft.graph.reductions.row_sums import as_matrix
from weft.kernels.registration import accumulator


@reductions.add("max")
class Largest(RowReduction):
    """The largest value; NaN beats every number, and a row without edges has 0."""

    kernel: ClassVar[str] = "max"
    worst: ClassVar[float] = -torch.inf

    def contributions(self, made: Any) -> Contribution:
        """Return the messages; each stands for one edge."""
        return Contribution(as_matrix(made))

    def reduced(self, by_row: ByRow, given: Contribution) -> Contribution:
        """Return the extremes, with how many edges attain them."""
        at, flat = (by_row.indptr, by_row.indices), as_matrix(given.value)
        if given.beside is None:
            value, count = kernels.extreme(*at, flat, self.kernel, transposed=by_row.transposed_for(flat))
        else:
            value, count = _Counted.apply(  # type: ignore[no-untyped-call]
                flat, as_matrix(given.beside), self, by_row
            )
        shape = (by_row.num_rows, *given.value.shape[1:])
        return Contribution(value.reshape(shape), count.reshape(shape))

    def start(self, like: Contribution, num_rows: int) -> Contribution:
        """Return zeros that no edge attains."""
        value = like.value.new_zeros(num_rows, *like.value.shape[1:])
        return Contribution(value, torch.zeros_like(value, dtype=torch.int32))

    def merge(self, whole: Contribution, rows: slice | Tensor, part: Contribution) -> None:
        """Take the better value, and the edges of both where they are level."""
        (old, old_count), (new, count) = whole.at(rows), part
        assert old_count is not None
        assert count is not None
        ahead = new > old if self.kernel == "max" else new < old
        ahead = ahead | (new.isnan() & ~old.isnan())  # NaN beats every number, as in the kernel
        ahead = (count > 0) & (ahead | (old_count == 0))
        level = (count > 0) & (old_count > 0) & _same(new, old)
        assert whole.beside is not None
        whole.value[rows] = torch.where(ahead, new, old)
        whole.beside[rows] = torch.where(ahead, count, old_count + count * level)

    def gradients(
        self, whole: Contribution, given: Contribution, rows: Tensor, grad: Contribution
    ) -> Contribution:
        """Return what each edge that attains the value gets, times how many of them are behind it."""
        assert whole.beside is not None
        share = (grad.value / whole.beside.clamp(min=1))[rows]
        share = share if given.beside is None else share * given.beside
        return Contribution(torch.where(_same(given.value, whole.value[rows]), share, 0))


@reductions.add("min")
class Smallest(Largest):
    """The smallest value."""

    kernel: ClassVar[str] = "min"
    worst: ClassVar[float] = torch.inf


def _same(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


class _Counted(torch.autograd.Function):
    """The extremes of contributions that stand for several edges each, or for none."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, counts: Tensor, how: Largest, by_row: ByRow
    ) -> tuple[Tensor, Tensor]:
        at = by_row.indptr, by_row.indices
        reached = values.where(counts > 0, how.worst)  # a contribution of no edge is 0, which is a value
        top, _ = kernels.extreme(*at, reached, how.kernel)
        tied = (counts > 0) & _same(values, top[by_row.rows])
        # In 16 bits a count of more than 256 would be rounded.
        count = kernels.spmm(*at, (counts * tied).to(accumulator(values.dtype))).to(counts.dtype)
        value = top.where(count > 0, 0.0)
        ctx.how, ctx.rows = how, by_row.rows
        ctx.save_for_backward(values, counts, value, count)
        ctx.mark_non_differentiable(count)
        return value, count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, counts, *whole = ctx.saved_tensors
        given, grad = Contribution(values, counts), Contribution(gradients[0])
        return ctx.how.gradients(Contribution(*whole), given, ctx.rows, grad).value, None, None, None
