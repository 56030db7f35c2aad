"""Sums: contributions add up, and each has the gradient of its row."""

from typing import Any, ClassVar

from torch import Tensor

from weft import kernels
from weft.graph.reductions.base import ByRow, Contribution, RowReduction, reductions
from weft.graph.reductions.row_sums import add_at, as_matrix
from weft.kernels.registration import accumulator


@reductions.add("sum")
class Sum(RowReduction):
    """Σ value."""

    adds: ClassVar[bool] = True
    looks_back: ClassVar[bool] = False

    def contributions(self, made: Any) -> Contribution:
        """Return the messages."""
        return Contribution(as_matrix(made))

    def reduced(self, by_row: ByRow, given: Contribution) -> Contribution:
        """Return the sums."""
        flat = as_matrix(given.value)
        total = kernels.spmm(by_row.indptr, by_row.indices, flat, transposed=by_row.transposed_for(flat))
        return Contribution(total.reshape(by_row.num_rows, *given.value.shape[1:]))

    def start(self, like: Contribution, num_rows: int) -> Contribution:
        """Return zeros; thousands of chunks may add to a row, so what has 16 bits is summed in 32."""
        value = like.value
        return Contribution(value.new_zeros(num_rows, *value.shape[1:], dtype=accumulator(value.dtype)))

    def merge(self, whole: Contribution, rows: slice | Tensor, part: Contribution) -> None:
        """Add in place."""
        add_at(whole.value, rows, part.value.to(whole.value.dtype))

    def gradients(
        self, whole: Contribution, given: Contribution, rows: Tensor, grad: Contribution
    ) -> Contribution:
        """Return those of the rows."""
        return Contribution(grad.value[rows])
