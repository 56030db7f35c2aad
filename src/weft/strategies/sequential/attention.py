"""Attention over rows that come part by part: a running softmax, and its gradients from what is known of all.

Of each destination and head the maximum, the sum of exponentials and the result are kept, nothing of an edge.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.kernels.attention import attention_backward_op, attention_op
from weft.kernels.registration import eager
from weft.strategies.sequential.parts import Part
from weft.strategies.sequential.run import Extra, Rows, Totals


class AttentionInParts:
    """Attention by the running maximum m, sum s and value o of each row and head.

    The rows are (source side of the score, value). Beside them it takes the destination side, `a` of GATv2
    or None, and the edge term or None. A part changes (m, s, o) to

        m' = max(m, mₚ)
        s' = s·exp(m − m') + sₚ·exp(mₚ − m')
        o' = o·exp(m − m') + oₚ·sₚ·exp(mₚ − m')

    and the result is o / s.
    """

    needs_rows = True

    def __init__(
        self,
        num_dst: int,
        kind: int,
        slope: float,
        *,
        alone: bool,
        dropout: float = 0.0,
        edge_ids: Tensor | None = None,
        clock: Tensor | None = None,
        layer: int = 0,
    ) -> None:
        if not 0.0 <= dropout <= 1.0:
            raise InputError(f"dropout must be in 0 … 1, got {dropout}")
        self.num_dst, self.kind, self.slope = num_dst, kind, float(slope)
        self.dropout, self.edge_ids, self.layer = float(dropout), edge_ids, layer
        self.clock = None if clock is None else clock.clone()  # it moves before backward may be over
        self.alone = alone  # one part is all there is
        self.top: Tensor | None = None
        self.mass: Tensor | None = None
        self.total: Tensor | None = None

    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        out, top, mass = eager(attention_op, *self._arguments(part, edges, rows, extra))
        top = torch.where(mass == 0, -torch.inf, top)
        if self.top is None or self.mass is None or self.total is None:
            shape = (self.num_dst, *top.shape[1:])
            self.top, self.mass = top.new_full(shape, -torch.inf), top.new_zeros(shape)
            self.total = top.new_zeros(self.num_dst, *out.shape[1:])
        old = part.of_rows(self.top)
        new = torch.maximum(old, top)
        reached = torch.where(new == -torch.inf, 0.0, new)  # −inf − −inf would be NaN
        kept, share = torch.exp(old - reached), torch.exp(top - reached) * mass
        rest = part.of_rows(self.mass) * kept
        both = part.of_rows(self.total) * kept[..., None] + out.to(top.dtype) * share[..., None]
        chosen = slice(None) if part.rows is None else part.rows
        self.top[chosen], self.mass[chosen], self.total[chosen] = new, rest + share, both
        self.dtype = out.dtype

    def result(self) -> Tensor:
        assert self.top is not None
        assert self.mass is not None
        assert self.total is not None
        self.top = torch.where(self.top == -torch.inf, 0.0, self.top)
        self.total /= torch.where(self.mass == 0, 1.0, self.mass)[..., None]
        return self.total.to(self.dtype, copy=True)  # the caller may change it, backward needs it as it is

    def state(self) -> list[Tensor]:
        held = [each for each in (self.top, self.mass, self.total) if each is not None]
        self.top = self.mass = self.total = None
        return held

    def restore(self, state: Sequence[Tensor]) -> None:
        self.top, self.mass, self.total = state

    def gradients(
        self, part: Part, edges: Block, rows: Rows, extra: Extra, grad: Tensor, totals: Totals
    ) -> list[Tensor]:
        wanted = [True, *(total is not None for total in totals.of[:2]), True, totals.of[2] is not None]
        of_src, of_dst, of_a, of_value, of_edge = self._found(part, edges, rows, extra, grad, wanted)
        dst, a, edge = totals.of
        if dst is not None:
            part.add_rows(dst, of_dst.to(dst.dtype))
        if a is not None:
            a.add_(of_a)
        if edge is not None:
            part.set_edges(edge, of_edge.to(edge.dtype))
        return [of_src.to(rows[0].dtype), of_value.to(rows[1].dtype)]

    def _found(
        self, part: Part, edges: Block, rows: Rows, extra: Extra, grad: Tensor, wanted: list[bool]
    ) -> list[Tensor]:
        """Return the gradients of (src, dst, a, value, edge) from the maximum and sum over all parts.

        The gradient of a score is product − alpha · D with D = grad · out over all edges of the row, which
        those of one part do not tell.
        """
        assert self.top is not None
        assert self.mass is not None
        assert self.total is not None
        grad = part.of_rows(grad).to(self.top.dtype)
        top, mass = part.of_rows(self.top), part.of_rows(self.mass)
        dot = None if self.alone else (grad * part.of_rows(self.total)).sum(-1)
        return _back(self._arguments(part, edges, rows, extra), edges, top, mass, dot, grad, wanted)

    def _arguments(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> list[object]:
        """Return the operator's arguments, in one type; the transposed edges come last and are left out."""
        dst, a, edge = extra
        assert dst is not None
        tensors = [rows[0], part.of_rows(dst), a, rows[1], part.of_edges(edge)]
        kind = rows[1].dtype
        for tensor in (rows[0], dst, a, edge):
            kind = kind if tensor is None else torch.promote_types(kind, tensor.dtype)
        same = [None if tensor is None else tensor.to(kind) for tensor in tensors]
        draws: tuple[object, ...] = (0.0, None, None, 0)
        if self.dropout > 0.0:
            draws = (self.dropout, part.of_edges(self.edge_ids), self.clock, self.layer)
        return [self.kind, edges.indptr, edges.indices, *same, self.slope, *draws, None, None, None]


def _back(
    given: list[object],
    edges: Block,
    top: Tensor,
    mass: Tensor,
    dot: Tensor | None,
    grad: Tensor,
    wanted: list[bool],
) -> list[Tensor]:
    """Return the gradients of (src, dst, a, value, edge); those that are not wanted are empty."""
    arguments = (*given[:-3], *edges.transposed, top, mass, dot, grad.contiguous(), wanted)
    return list(eager(attention_backward_op, *arguments))
