"""Any function of an edge, reduced over the incoming edges of each row.

Where the edges are few the messages are made at once and autograd does the rest. Where they are many, they
are made a chunk of edges at a time, in row order, and made again in backward: nothing of the size of edges ×
width is kept. A chunk ends where a row ends, unless a row alone is longer; then the row is cut and its pieces
are merged in order, as `weft.graph.reductions` says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from weft import kernels
from weft.compiler.tracing.captures import NotCompiled
from weft.errors import GraphError
from weft.graph.message.compiled import SWITCHED_OFF, compiled_of, propagate_compiled
from weft.graph.message.opaque import propagated_opaquely
from weft.graph.message.reduction import OWN, Message, Propagation, checked, times_rows
from weft.graph.message.rehearsal import TRIED, of_each_edge
from weft.graph.message.replay import ForwardState, captured
from weft.graph.reductions import ByRow, Contribution, Running, reduction
from weft.graph.reductions.row_sums import add_repeated
from weft.kernels.registration import accumulator
from weft.kernels.second import first_derivatives_only

if TYPE_CHECKING:
    from weft.graph.message.block import Block

CHUNK_ELEMENTS = 1 << 22
"""Of the edge-sized inputs of one chunk: 16 MB of float32 stays near the caches and far from the limit."""


def propagate(block: "Block", how: Propagation) -> Tensor:
    """Return the reduced messages, [num_dst, ...]; `how.src` has one row per source of the block."""
    out, _ = contribute(block, how, beside=False)
    return times_rows(out, block.mean_scale(out.dtype)) if how.reduce == "mean" else out


def contribute(block: "Block", how: Propagation, *, beside: bool = True) -> Contribution:
    """Return what the block's edges contribute to each row, [num_dst, ...]; a mean is still a sum.

    Without `beside` the compiler may leave out what merging takes.
    """
    if torch.compiler.is_compiling():
        out = None if beside else propagated_opaquely(block, how)
        return _opaque(block, how, beside) if out is None else Contribution(out)
    made = propagate_compiled(block, how, _as_it_is, beside=beside, always=how.reduce == OWN)
    return Contribution(*(made or _as_it_is(block, how)))


@_disable_dynamo  # as `torch.compiler.disable`, which would load all of torch's compiler at once
def _opaque(block: "Block", how: Propagation, beside: bool) -> Contribution:
    """Return the same to torch.compile where it is no operator: one graph before it and one behind it."""
    return contribute(block, how, beside=beside)


def _as_it_is(block: "Block", how: Propagation) -> Contribution:
    """Return the contributions of the message as it was given, at once or chunk by chunk."""
    if how.reduce == OWN:  # in terms of the compiler
        raise NotCompiled(found if isinstance(found := compiled_of(how), str) else SWITCHED_OFF)
    plan = ChunkPlan.of(block, how)
    if not plan.at_once and (how.complete or _of_each_edge(block, how)):
        return in_chunks(plan, how)
    check_message(plan, how)
    made, kind = all_messages(block, how), reduction(plan.reduce)
    by_row = block.cached("edges by row", lambda: ByRow.in_order(block.indptr, block.edge_dst))
    value, beside = kind.reduced(by_row, kind.contributions(made))
    return Contribution(_like(kind.result(made), value), beside)


def _of_each_edge(block: "Block", how: Propagation) -> bool:
    """Return whether an edge's message is known to be made of its own rows alone, so that parts will do."""
    found = compiled_of(how)
    if not isinstance(found, str):
        return True
    if not found.recorded:
        return False
    some = torch.linspace(0, block.num_edges - 1, TRIED, device=block.indptr.device).long()
    places = (block.indices[some].long(), block.edge_dst[some].long(), some)
    rows = [t[place] for place, kind in zip(places, (how.src, how.dst, how.edge)) for t in kind]
    return of_each_edge(how.message, rows, how.params)


def all_messages(block: "Block", how: Propagation) -> Any:
    """Return the messages of all edges, made in one call."""
    rows = block.edge_dst
    sources = [kernels.gather(t, block.indices) for t in how.src]
    targets = [kernels.gather(t, rows) for t in how.dst]
    made = how.message(*sources, *targets, *how.edge, *how.params)
    return checked(made, how.reduce, block.num_edges)


def _like(result: Tensor, rows: Tensor) -> Tensor:
    """Return rows in the type of the messages that they were reduced from, and in the shape of one."""
    return rows.reshape(rows.shape[0], *result.shape[1:]).to(result.dtype)


@dataclass(frozen=True)
class EdgeRange:
    """A range of edges and the rows they go to."""

    edges: slice
    rows: slice  # destination rows, the first and the last maybe in part
    src: Tensor  # [edges] source row of each edge, int64
    dst: Tensor  # [edges] destination row of each edge
    by_row: ByRow  # the edges by the rows of the range

    @classmethod
    def of(cls, block: "Block", start: int, stop: int) -> "EdgeRange":
        """Return the edges start … stop − 1."""
        dst = block.edge_dst[start:stop]
        rows = slice(int(dst[0]), int(dst[-1]) + 1) if stop > start else slice(0, 0)
        indptr = (block.indptr[rows.start : rows.stop + 1] - start).clamp(0, stop - start)
        by_row = ByRow.in_order(indptr, dst - rows.start)
        return cls(slice(start, stop), rows, block.indices[start:stop].long(), dst, by_row)


@dataclass(frozen=True)
class ChunkPlan:
    """What to compute, and where the chunks are cut."""

    block: "Block"
    message: Message
    reduce: str
    counts: tuple[int, int, int, int]
    """How many of the tensors are src, dst, edge and params; captured ones follow."""
    chunk_edges: int
    reads_more: bool
    """Whether the message may use other tensors and values than these."""

    @staticmethod
    def of(block: "Block", how: Propagation) -> "ChunkPlan":
        """Return the plan of what a block is asked."""
        width = max(1, sum(t[:1].numel() if len(t) else 0 for t in how.per_edge))
        most = _chunk_elements(block.indptr.device)
        return ChunkPlan(block, how.message, how.reduce, how.counts, max(1, most // width), not how.complete)

    @property
    def at_once(self) -> bool:
        """Whether all edges are one chunk."""
        return self.block.num_edges <= self.chunk_edges

    def chunks(self) -> Iterator[EdgeRange]:
        """Give the chunks in the order of the edges; of no edges an empty one, which tells the shapes."""
        size = self.chunk_edges
        bounds = self.block.cached(("chunks", size), lambda: _bounds(self.block.indptr, size))
        for start, stop in pairwise(bounds) if self.block.num_edges else [(0, 0)]:
            yield EdgeRange.of(self.block, start, stop)

    def inputs(self, chunk: EdgeRange, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the rows of the src, dst and edge tensors that belong to the edges of a chunk."""
        kinds: tuple[Any, ...] = (chunk.src, chunk.dst, chunk.edges)
        places = zip(kinds, self.counts)
        return [
            t[place] for t, place in zip(tensors, (place for place, count in places for _ in range(count)))
        ]

    def params(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the tensors that the message gets whole."""
        first = sum(self.counts[:3])
        return tensors[first : first + self.counts[3]]


def _chunk_elements(device: torch.device) -> int:
    """Return how many elements edges of one chunk read: on a GPU all that it has room for.

    Messages take up to ten times what they read (MoNet as PyG has it), four bytes an element: a third of
    the GPU's memory, or two thirds of what is free.
    """
    if device.type != "cuda":
        return CHUNK_ELEMENTS
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(CHUNK_ELEMENTS, min(total // 128, free // 64))


def _bounds(indptr: Tensor, size: int) -> list[int]:
    indptr = indptr.cpu()
    bounds, last = [0], int(indptr[-1])
    while bounds[-1] < last:
        # Cut at the end of a row where that can be: a row in two chunks is merged, which costs a pass over
        # it.
        row = int(torch.searchsorted(indptr, bounds[-1] + size, right=True)) - 1
        stop = int(indptr[row])
        bounds.append(stop if stop > bounds[-1] else min(bounds[-1] + size, last))
    return bounds


def check_message(plan: ChunkPlan, how: Propagation) -> None:
    """Refuse on a small graph what would be refused on a large one: tensors the message was not given."""
    if not how.complete and torch.is_grad_enabled():
        # Rows of zeros, not those of an edge: a rank without edges must do the same.
        try:
            captured(how.message, [t.new_zeros(2, *t.shape[1:]) for t in how.per_edge], how.params)
        except GraphError:
            raise
        except Exception:
            return  # all edges say what is wrong, if anything


def _captured(plan: ChunkPlan, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return what `captured` finds on the first two edges."""
    if not torch.is_grad_enabled():
        return []
    probe = EdgeRange.of(plan.block, 0, min(2, plan.block.num_edges))
    return captured(plan.message, plan.inputs(probe, tensors), plan.params(tensors))


def in_chunks(plan: ChunkPlan, how: Propagation) -> Contribution:
    """Return what `contribute` does, of messages made chunk by chunk."""
    tensors = (*how.per_edge, *how.params)
    others = () if how.complete else _captured(plan, tensors)
    return Contribution(*_InChunks.apply(plan, *tensors, *others))  # type: ignore[no-untyped-call]


class ChunkedMessages:
    """Messages reduced chunk by chunk, of one plan after the other, and made again for their gradients."""

    def __init__(self, reduce: str, num_rows: int) -> None:
        self.kind = reduction(reduce)
        self.running = Running(self.kind, num_rows)
        self._result: Tensor | None = None  # of no edge: the shape and type of a message

    def add(self, plan: ChunkPlan, tensors: Sequence[Tensor]) -> None:
        """Make the messages of a plan and merge them into what there is."""
        for chunk in plan.chunks():
            made = plan.message(*plan.inputs(chunk, tensors), *plan.params(tensors))
            checked(made, plan.reduce, len(chunk.src))
            result = self.kind.result(made)
            self._result = result.new_empty(0, *result.shape[1:])
            self.running.add(self.kind.reduced(chunk.by_row, self.kind.contributions(made)), chunk.rows)

    def result(self) -> Contribution:
        """Return what all edges contribute."""
        assert self._result is not None, "a plan has a chunk, if only an empty one"
        value, beside = self.running.whole
        return Contribution(_like(self._result, value), beside)

    def add_gradients(
        self,
        plan: ChunkPlan,
        tensors: Sequence[Tensor],
        needs: Sequence[bool],
        grad: Contribution,
        grads: Sequence[Tensor | None],
    ) -> None:
        """Make the messages of a plan again and add the gradients of all tensors to `grads`."""
        wanted = [place for place, need in enumerate(needs) if need]
        for chunk in plan.chunks():
            with torch.enable_grad():
                rows = [
                    t.detach().requires_grad_(need) for t, need in zip(plan.inputs(chunk, tensors), needs)
                ]
                made = self.kind.contributions(plan.message(*rows, *plan.params(tensors)))
            live = [
                (out, g.to(out.dtype))
                for out, g in zip(made, self._of_messages(chunk, made, grad))
                if out is not None and g is not None and out.requires_grad
            ]
            if not live or not wanted:
                continue
            leaves = [*rows, *tensors[len(rows) :]]
            outputs, towards = zip(*live)
            found = torch.autograd.grad(outputs, [leaves[i] for i in wanted], towards, allow_unused=True)
            for place, part in zip(wanted, found):
                total = grads[place]
                if part is not None and total is not None:
                    _add_gradient(plan, chunk, place, total, part)

    @torch.no_grad()
    def _of_messages(self, chunk: EdgeRange, made: Contribution, grad: Contribution) -> Contribution:
        """Return the gradients of a chunk's messages."""
        above = grad.at(chunk.rows)
        towards = above.value.reshape(len(above.value), *made.value.shape[1:])
        whole = self.running.at(chunk.rows)
        return self.kind.gradients(whole, made, chunk.by_row.rows, Contribution(towards, above.beside))


def _add_gradient(plan: ChunkPlan, chunk: EdgeRange, place: int, total: Tensor, part: Tensor) -> None:
    """Add the gradient of the rows that a chunk read of a tensor to that of the tensor."""
    num_src, num_dst, num_edge, _ = plan.counts
    if place < num_src:
        add_repeated(total, chunk.src, part)
    elif place < num_src + num_dst:
        total[chunk.rows] += reduction("sum").reduced(chunk.by_row, Contribution(part)).value
    elif place < num_src + num_dst + num_edge:
        # Assigned: an edge is in one chunk.
        total[chunk.edges] = part
    else:
        total += part


class _InChunks(torch.autograd.Function):
    """Messages made and reduced chunk by chunk, and made again in backward for their gradients."""

    @staticmethod
    def forward(ctx: Any, plan: ChunkPlan, *tensors: Tensor) -> Contribution:
        replayed = [plan.message] if plan.reads_more and any(ctx.needs_input_grad) else []
        ctx.plan, ctx.replay = plan, ForwardState(tensors, replayed)
        ctx.set_materialize_grads(False)
        ctx.messages = ChunkedMessages(plan.reduce, plan.block.num_dst)
        with ctx.replay.noted():
            ctx.messages.add(plan, tensors)
        out, beside = ctx.messages.result()
        if beside is not None and not beside.is_floating_point():
            ctx.mark_non_differentiable(beside)
        ctx.save_for_backward(*tensors, *ctx.messages.running.let_go())
        ctx.num_tensors, ctx.like = len(tensors), (out.shape, out.dtype)
        return Contribution(out, beside)

    @staticmethod
    @first_derivatives_only("a message made a part of the edges at a time", "need fewer edges")
    def backward(ctx: Any, grad: Tensor | None, beside: Tensor | None) -> tuple[Tensor | None, ...]:
        plan, saved, messages = ctx.plan, ctx.saved_tensors, ctx.messages
        tensors, needs = saved[: ctx.num_tensors], ctx.needs_input_grad[1:]
        messages.running.take_back(saved[ctx.num_tensors :])
        if grad is None:
            grad = torch.zeros(ctx.like[0], dtype=ctx.like[1], device=plan.block.device)
        # Thousands of chunks may add to a row: what is stored in 16 bits is summed in 32.
        grads = [
            torch.zeros_like(t, dtype=accumulator(t.dtype)) if need else None
            for t, need in zip(tensors, needs)
        ]
        with ctx.replay():
            messages.add_gradients(plan, tensors, needs, Contribution(grad, beside), grads)
        messages.running.let_go()
        return None, *(None if g is None else g.to(t.dtype) for g, t in zip(grads, tensors))
