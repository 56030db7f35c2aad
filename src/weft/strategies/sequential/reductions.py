"""What becomes of rows that come part by part: sums, largest values, messages of any kind.

Each keeps what is of the size of the destinations, merges a part into it, and gives the gradients of a part's
rows when they are there again; a sum needs no rows for that.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from weft import kernels
from weft.graph.message.block import Block
from weft.graph.message.propagate import ChunkPlan, add_chunk_gradients
from weft.graph.message.reducers import REDUCERS, Reducer, merged_extremes
from weft.graph.message.reduction import Message
from weft.kernels.extreme import extreme_backward_op
from weft.kernels.registration import accumulator, eager
from weft.kernels.spmm import spmm_op
from weft.strategies.sequential.parts import Part
from weft.strategies.sequential.run import Extra, Rows, Totals


class WeightedSum:
    """Σ weight · row. Beside the rows it takes the weight [E] or [E, H], or None; scales are constants."""

    def __init__(
        self, num_dst: int, *, src_scale: Tensor | None = None, dst_scale: Tensor | None = None, learned: bool
    ) -> None:
        self.num_dst, self.src_scale, self.dst_scale = num_dst, src_scale, dst_scale
        self.needs_rows = learned  # the gradient of a weight is a product with the rows
        self.total: Tensor | None = None

    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        out = self._sum(part, edges, rows[0], part.of_edges(extra[0]))
        self.dtype, wide = out.dtype, out.to(accumulator(out.dtype))
        if self.total is None and part.rows is None:
            self.total = wide
            return
        if self.total is None:
            self.total = wide.new_zeros(self.num_dst, *out.shape[1:])
        part.add_rows(self.total, wide)

    def result(self) -> Tensor:
        assert self.total is not None, "one part holds every destination"
        return self.total.to(self.dtype)

    def state(self) -> list[Tensor]:
        self.total = None
        return []

    def restore(self, state: Sequence[Tensor]) -> None:
        pass

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


class Extreme:
    """The largest or smallest value; parts merge by (value, how many edges attain it)."""

    needs_rows = True

    def __init__(self, num_dst: int, reduce: str) -> None:
        self.num_dst, self.reduce = num_dst, reduce
        self.found: tuple[Tensor, Tensor] | None = None

    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        new = kernels.extreme(edges.indptr, edges.indices, rows[0], self.reduce)
        if self.found is None:
            assert part.rows is None, "the part with every destination comes first"
            self.found = new
            return
        value, count = self.found
        old = part.of_rows(value), part.of_rows(count)
        merged = merged_extremes(new, old, largest=self.reduce == "max")
        value[part.rows], count[part.rows] = merged

    def result(self) -> Tensor:
        assert self.found is not None
        return self.found[0]

    def state(self) -> list[Tensor]:
        state, self.found = self.found, None
        return list(state or ())

    def restore(self, state: Sequence[Tensor]) -> None:
        self.found = (state[0], state[1])

    def gradients(
        self, part: Part, edges: Block, rows: Rows, extra: Extra, grad: Tensor, totals: Totals
    ) -> list[Tensor]:
        assert self.found is not None
        reached = [part.of_rows(each) for each in (*self.found, grad)]
        out: Tensor = eager(extreme_backward_op, edges.transposed[0], edges.transposed[1], rows[0], *reached)
        return [out]


class Messages:
    """Any function of an edge, reduced as `Block.propagate` does it, chunk by chunk within a part.

    Beside the rows it takes destinations, edge values and parameters, in this order and in `counts`.
    """

    needs_rows = True

    def __init__(
        self, num_dst: int, message: Message, reduce: str, counts: tuple[int, int, int, int], chunk: int
    ) -> None:
        self.num_dst, self.message, self.reduce = num_dst, message, reduce
        self.counts, self.chunk = counts, chunk
        self.reducer: Reducer = REDUCERS[reduce]()
        self.any_edges = False
        self.empty: Tensor | None = None  # the result where there is no edge at all

    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        plan, tensors = self._plan(part), self._tensors(part, rows, extra)
        for chunk in plan.chunks():
            made = plan.message(*plan.inputs(chunk, tensors), *plan.params(tensors))
            self.reducer.add(chunk, made, self.num_dst)
            self.any_edges = True
        if not part.block.num_edges:
            made = plan.message(*(t[:0] for t in tensors[: sum(self.counts[:3])]), *plan.params(tensors))
            made = made[1] if self.reduce == "softmax" else made
            self.empty = made.new_zeros(self.num_dst, *made.shape[1:])

    def result(self) -> Tensor:
        if self.any_edges:
            return self.reducer.result()
        assert self.empty is not None
        return self.empty

    def state(self) -> list[Tensor]:
        state = self.reducer.state() if self.any_edges else []
        self.reducer, self.any_edges, self.empty = REDUCERS[self.reduce](), False, None
        return state

    def restore(self, state: Sequence[Tensor]) -> None:
        self.reducer = REDUCERS[self.reduce].restored(list(state)) if state else REDUCERS[self.reduce]()

    def gradients(
        self, part: Part, edges: Block, rows: Rows, extra: Extra, grad: Tensor, totals: Totals
    ) -> list[Tensor]:
        plan, tensors = self._plan(part), self._tensors(part, rows, extra)
        of_rows = [torch.zeros_like(t) for t in rows]
        of_edges = [part.of_edges(total) for total in self._edge_values(totals.of)]
        first, last = self.counts[1], self.counts[1] + self.counts[2]
        grads = [*of_rows, *totals.of[:first], *of_edges, *totals.of[last:]]
        needs = [g is not None and g.is_floating_point() for g in grads]
        for chunk in plan.chunks():
            add_chunk_gradients(plan, chunk, tensors, needs, self.reducer, (grad, None), grads)
        for total, found in zip(self._edge_values(totals.of), of_edges):
            if total is not None and found is not None:
                part.set_edges(total, found)
        return of_rows

    def _plan(self, part: Part) -> ChunkPlan:
        return ChunkPlan(part.over_all_rows(self.num_dst), self.message, self.reduce, self.counts, self.chunk)

    def _tensors(self, part: Part, rows: Rows, extra: Extra) -> list[Tensor]:
        first, last = self.counts[1], self.counts[1] + self.counts[2]
        values = [part.of_edges(t) for t in extra[first:last]]
        return [*rows, *extra[:first], *values, *extra[last:]]  # type: ignore[list-item]

    def _edge_values(self, extra: Extra) -> Extra:
        return extra[self.counts[1] : self.counts[1] + self.counts[2]]
