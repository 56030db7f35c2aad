"""What becomes of rows that come part by part: sums, largest values, messages of any kind.

Each reduces the edges of a part, has `weft.graph.reductions` merge that into what is known of the rows, and
gives the gradients of a part's rows when they are there again; a sum needs no rows for that.
"""

import torch
from torch import Tensor

from weft import kernels
from weft.graph.message.block import Block
from weft.graph.message.propagate import ChunkedMessages, ChunkPlan
from weft.graph.message.reduction import Propagation
from weft.graph.reductions import Contribution, Running, reduction
from weft.kernels.extreme import extreme_backward_op
from weft.kernels.registration import accumulator, eager
from weft.kernels.spmm import spmm_op
from weft.strategies.sequential.parts import Part
from weft.strategies.sequential.run import Ending, Extra, Rows, Totals


class WeightedSum(Ending):
    """Σ weight · row. Beside the rows it takes the weight [E] or [E, H], or None; scales are constants."""

    def __init__(
        self, num_dst: int, *, src_scale: Tensor | None = None, dst_scale: Tensor | None = None, learned: bool
    ) -> None:
        super().__init__(Running(reduction("sum"), num_dst))
        self.src_scale, self.dst_scale = src_scale, dst_scale
        self.needs_rows = learned  # the gradient of a weight is a product with the rows

    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        """Take the sums of a part."""
        out = self._sum(part, edges, rows[0], part.of_edges(extra[0]))
        self.dtype = out.dtype
        self.running.add(Contribution(out), part.places)

    def gradients(
        self, part: Part, edges: Block, rows: Rows, extra: Extra, grad: Tensor, totals: Totals
    ) -> list[Tensor]:
        weight = part.of_edges(extra[0])
        if totals.of[0] is None:
            return [self._returned(part, edges, part.of_rows(grad), weight)]
        assert weight is not None
        leaves = [rows[0].detach().requires_grad_(), weight.detach().requires_grad_()]
        with torch.enable_grad():
            out = self._sum(part, edges, *leaves)
        of_rows, of_weight = torch.autograd.grad(out, leaves, part.of_rows(grad))
        part.set_edges(totals.of[0], of_weight)
        return [of_rows]

    def _sum(self, part: Part, edges: Block, rows: Tensor, weight: Tensor | None) -> Tensor:
        return kernels.spmm(
            edges.indptr,
            edges.indices,
            rows,
            weight,
            src_scale=part.of_columns(self.src_scale),
            dst_scale=None if self.dst_scale is None else part.of_rows(self.dst_scale),
        )

    def _returned(self, part: Part, edges: Block, grad: Tensor, weight: Tensor | None) -> Tensor:
        """Return the gradients of the rows: the same sum over the transposed edges."""
        kind = accumulator(grad.dtype)
        indptr, indices, places = edges.transposed
        scales = (
            None if self.dst_scale is None else part.of_rows(self.dst_scale).to(kind),
            None if self.src_scale is None else self.src_scale[part.columns].to(kind),
        )
        weighted = (None, grad, None) if weight is None else (places, grad, weight.to(kind))
        out: Tensor = eager(
            spmm_op, indptr, indices, *weighted, *scales, False, False, edges.indptr, edges.indices, None
        )
        return out


class Extreme(Ending):
    """The largest or smallest value, "max" or "min"."""

    def __init__(self, num_dst: int, reduce: str) -> None:
        super().__init__(Running(reduction(reduce), num_dst))
        self.reduce = reduce

    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        """Take the extremes of a part."""
        found = kernels.extreme(edges.indptr, edges.indices, rows[0], self.reduce)
        self.dtype = found[0].dtype
        self.running.add(Contribution(*found), part.places)

    def gradients(
        self, part: Part, edges: Block, rows: Rows, extra: Extra, grad: Tensor, totals: Totals
    ) -> list[Tensor]:
        reached = (*self.running.whole.at(part.places), part.of_rows(grad))
        out: Tensor = eager(extreme_backward_op, edges.transposed[0], edges.transposed[1], rows[0], *reached)
        return [out]


class Messages(Ending):
    """Any function of an edge, reduced as `Block.propagate` does it, chunk by chunk within a part.

    Beside the rows it takes destinations, edge values and parameters, in this order and in `counts`.
    """

    def __init__(self, num_dst: int, how: Propagation, chunk: int) -> None:
        self.messages = ChunkedMessages(how.reduce, num_dst)
        super().__init__(self.messages.running)
        self.num_dst, self.message, self.reduce = num_dst, how.message, how.reduce
        self.counts, self.chunk = how.counts, chunk
        self.replayed = None if how.complete else how.message

    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        """Take the messages of a part."""
        self.messages.add(self._plan(part), self._tensors(part, rows, extra))

    def result(self) -> Tensor:
        """Return the reduced rows, in the shape of a message."""
        return self.messages.result().value

    def gradients(
        self, part: Part, edges: Block, rows: Rows, extra: Extra, grad: Tensor, totals: Totals
    ) -> list[Tensor]:
        plan, tensors = self._plan(part), self._tensors(part, rows, extra)
        of_rows = [torch.zeros_like(t) for t in rows]
        of_edges = [part.of_edges(total) for total in self._edge_values(totals.of)]
        first, last = self.counts[1], self.counts[1] + self.counts[2]
        grads = [*of_rows, *totals.of[:first], *of_edges, *totals.of[last:]]
        needs = [g is not None and g.is_floating_point() for g in grads]
        self.messages.add_gradients(plan, tensors, needs, Contribution(grad), grads)
        for total, found in zip(self._edge_values(totals.of), of_edges):
            if total is not None and found is not None:
                part.set_edges(total, found)
        return of_rows

    def _plan(self, part: Part) -> ChunkPlan:
        edges, reads_more = part.over_all_rows(self.num_dst), self.replayed is not None
        return ChunkPlan(edges, self.message, self.reduce, self.counts, self.chunk, reads_more)

    def _tensors(self, part: Part, rows: Rows, extra: Extra) -> list[Tensor]:
        first, last = self.counts[1], self.counts[1] + self.counts[2]
        values = [part.of_edges(t) for t in extra[first:last]]
        return [*rows, *extra[:first], *values, *extra[last:]]  # type: ignore[list-item]

    def _edge_values(self, extra: Extra) -> Extra:
        return extra[self.counts[1] : self.counts[1] + self.counts[2]]
