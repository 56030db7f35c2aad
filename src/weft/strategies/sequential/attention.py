"""Attention over rows that come part by part, and its gradients from what is known of all.

Of each destination and head the result and the mass of its softmax are kept, nothing of an edge.
"""

import torch
from torch import Tensor

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.reductions import Contribution, Running, reduction
from weft.kernels.attention import attention_backward_op, attention_op
from weft.kernels.registration import eager
from weft.strategies.sequential.parts import Part
from weft.strategies.sequential.run import Ending, Extra, Rows, Totals


class AttentionInParts(Ending):
    """Attention, its parts merged by the masses of their softmaxes.

    The rows are (source side of the score, value). Beside them it takes the destination side, `a` of GATv2
    or None, and the edge term or None.
    """

    def __init__(
        self,
        num_dst: int,
        kind: int,
        slope: float,
        *,
        dropout: float = 0.0,
        edge_ids: Tensor | None = None,
        clock: Tensor | None = None,
        layer: int = 0,
    ) -> None:
        if not 0.0 <= dropout <= 1.0:
            raise InputError(f"dropout must be in 0 … 1, got {dropout}")
        super().__init__(Running(reduction("softmax"), num_dst))
        self.kind, self.slope = kind, float(slope)
        self.dropout, self.edge_ids, self.layer = float(dropout), edge_ids, layer
        self.clock = None if clock is None else clock.clone()  # it moves before backward may be over

    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        """Take the attention over the edges of a part."""
        out, top, total = eager(attention_op, *self._arguments(part, edges, rows, extra))
        self.dtype = out.dtype
        self.running.add(Contribution(out, top.double() + total.double().log()), part.places)

    def result(self) -> Tensor:
        """Return the reduced rows: a copy, as the caller may change it and backward needs it as it is."""
        return self.running.whole.value.to(self.dtype, copy=True)

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
        """Return the gradients of (src, dst, a, value, edge) from the mean and mass over all parts.

        The gradient of a score is product − alpha · D with D = grad · out over all edges of the row, which
        those of one part do not tell. Those that are not wanted are empty.
        """
        value, mass = self.running.whole.at(part.places)
        assert mass is not None
        grad = part.of_rows(grad).to(value.dtype).contiguous()
        mass = mass.where(mass > -torch.inf, 0.0)
        top = mass.to(value.dtype)
        rest = torch.exp(mass - top).to(value.dtype)  # what rounding the logarithm leaves
        given = self._arguments(part, edges, rows, extra)
        arguments = (*given[:-3], *edges.transposed, top, rest, (grad * value).sum(-1), grad, wanted)
        return list(eager(attention_backward_op, *arguments))

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
