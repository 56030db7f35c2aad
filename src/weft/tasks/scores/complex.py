"""A complex weight per relation and column."""

from typing import Any

import torch
from torch import Tensor, nn

from weft.layers.base import glorot_
from weft.tasks.scores.base import End, Scorer, halves, scorers
from weft.tasks.scores.compared import on_kernels


@scorers.add("complex")
class ComplEx(Scorer):
    """Re Σ src * r * conj(dst) over complex numbers, a row r per relation (Trouillon et al., 2016).

    A row of an even width has real parts in its first half and imaginary ones in its second. With
    `reciprocal` a relation has another row where its sources are asked for (Lacroix et al., 2018).
    """

    parts = 2

    def __init__(self, width: int, *, num_relations: int = 1, reciprocal: bool = False) -> None:
        super().__init__(width, num_relations=num_relations)
        halves(width, "complex")
        self.reciprocal = reciprocal
        self.weight = nn.Parameter(torch.empty(self.num_weights, width))
        glorot_(self.weight)

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return src * r, or dst * conj(r)."""
        weight = self.of_relation(self.weight, relation, end)
        return complex_product(rows, weight, conjugate=end == "dst" and not self.reciprocal)

    def relation_numbers(self, end: End) -> Tensor | None:
        """Return the rows of relations."""
        return self.of_end(self.weight, end)


def complex_product(rows: Tensor, weight: Tensor, *, conjugate: bool) -> Tensor:
    """Return rows * weight, or rows * conj(weight), of complex numbers whose real parts come first."""
    product: Tensor = _Times.apply(rows, weight, conjugate)  # type: ignore[no-untyped-call]
    return product


class _Times(torch.autograd.Function):
    """A product of complex numbers, whose gradients are such products: four passes, and eight in backward."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, conjugate: bool) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.conjugate = conjugate
        if rows.shape == weight.shape and rows.dim() == 2 and on_kernels(rows) and on_kernels(weight):
            from weft.kernels.triton.contrast import complex_product as product  # where there is a GPU

            return product(rows.contiguous(), weight.contiguous(), conjugate)
        (real, other), (turn, side) = rows.chunk(2, -1), weight.chunk(2, -1)
        shape = rows.shape
        if weight.shape != shape:  # torch takes longer to find a shape than for a product of small ones
            shape = torch.broadcast_shapes(shape, weight.shape)  # type: ignore[no-untyped-call]
        made = rows.new_empty(shape)
        first, last = made.chunk(2, -1)
        torch.mul(real, turn, out=first).addcmul_(other, side, value=1 if conjugate else -1)
        torch.mul(other, turn, out=last).addcmul_(real, side, value=-1 if conjugate else 1)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        by_rows = by_weight = None
        if ctx.needs_input_grad[0]:
            by_rows = complex_product(gradient, weight, conjugate=not ctx.conjugate).sum_to_size(rows.shape)
        if ctx.needs_input_grad[1]:
            pair = (rows, gradient) if ctx.conjugate else (gradient, rows)
            by_weight = complex_product(*pair, conjugate=True).sum_to_size(weight.shape)
        return by_rows, by_weight, None
