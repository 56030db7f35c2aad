"""Attention over some of the edges of each row, with what merging it with that over the others takes.

Results over two sets of edges of one row merge by their masses, the sums of exponentials of the scores:
out = Σ exp(m) · out / Σ exp(m), m the logarithm of a mass. That is attention once more, with scores m.
"""

from typing import Any

import torch
from torch import Tensor

from weft.kernels.attention import attention_backward_op, attention_op, in_one_type
from weft.kernels.csr import Transposed, transposed_or_built
from weft.kernels.registration import as_clock, as_indices, as_indptr, eager


def attention_part(
    kind: int,
    indptr: Tensor,
    indices: Tensor,
    src: Tensor,
    dst: Tensor,
    value: Tensor,
    slope: float,
    *,
    a: Tensor | None = None,
    edge: Tensor | None = None,
    dropout: float = 0.0,
    edge_ids: Tensor | None = None,
    clock: Tensor | None = None,
    layer: int = 0,
    transposed: Transposed | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the attention over these edges, [num_dst, H, D], and the logarithm of its mass, [num_dst, H].

    `kind` and the arguments are those of the operator in `weft.kernels.attention`. Gradients pass through
    both results; a row without edges has a mass of 0, minus infinity as a logarithm, which is in float64.
    """
    src, dst, a, value, edge = in_one_type((src, dst, a, value, edge))
    draws = (dropout, edge_ids, None if clock is None else as_clock(clock), layer)
    draws = draws if dropout > 0.0 else (0.0, None, None, 0)
    pointers = transposed if transposed is not None else (None, None, None)
    at = as_indptr(indptr), as_indices(indices)
    out, top, total = eager(
        attention_op, kind, *at, src, dst, a, value, edge, float(slope), *draws, *pointers
    )
    mass: Tensor = _LogMass.apply(  # type: ignore[no-untyped-call]
        kind, *at, src, dst, a, edge, float(slope), pointers, top, total
    )
    return out, mass


class _LogMass(torch.autograd.Function):
    """top + log(total). Its derivative by a score is that edge's share alpha of the row.

    The operator's backward gives weight · ⟨gradient of out, value⟩ − alpha · dot. With no gradient of out and
    a dot of −g that is alpha · g.
    """

    @staticmethod
    def forward(ctx: Any, kind: int, *inputs: Any) -> Tensor:
        indptr, indices, src, dst, a, edge, slope, pointers, top, total = inputs
        ctx.plain = kind, slope
        ctx.save_for_backward(indptr, indices, src, dst, a, edge, *pointers, top, total)
        return torch.add(top.double(), total.double().log())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        indptr, indices, src, dst, a, edge, *pointers, top, total = ctx.saved_tensors
        kind, slope = ctx.plain
        need = ctx.needs_input_grad
        wanted = [need[3], need[4], need[5], False, need[6]]
        # The operator is asked with a value of width 1 that is 0: only the term alpha · dot is left of its
        # gradient, and no rows of the real width are read.
        value = src.new_zeros(src.shape[0], src.shape[1], 1)
        held = transposed_or_built(tuple(pointers), indptr, indices, src.shape[0])
        given = (kind, indptr, indices, src, dst, a, value, edge, slope, 0.0, None, None, 0)  # without draws
        dot, nothing = -gradients[0].to(top.dtype), src.new_zeros(*top.shape, 1)
        found = eager(attention_backward_op, *given, *held, top, total, dot, nothing, wanted)
        d_src, d_dst, d_a, _, d_edge = (grad if want else None for grad, want in zip(found, wanted))
        return None, None, None, d_src, d_dst, d_a, d_edge, None, None, None, None
