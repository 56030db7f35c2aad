"""Any function of an edge, reduced over the incoming edges of each row.

Where the edges are few the messages are made at once and autograd does the rest. Where they are many, they
are made a chunk of edges at a time, in row order, and made again in backward: nothing of the size of edges ×
width is kept. A chunk ends where a row ends, unless a row alone is longer; then the row is cut and its parts
merge in order.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft import kernels
from weft.errors import GraphError
from weft.graph.message.compiled import propagate_compiled
from weft.graph.message.reducers import REDUCERS, Chunk, Reducer, add_rows, reduce_at_once
from weft.graph.message.reduction import Message, Propagation, times_rows
from weft.kernels.registration import accumulator

if TYPE_CHECKING:
    from weft.graph.message.block import Block

# Elements of the edge-sized inputs of one chunk: 16 MB of float32 stays near the caches and far from the
# memory limit.
CHUNK_ELEMENTS = 1 << 22


def propagate(block: "Block", how: Propagation) -> Tensor:
    """Return the reduced messages, [num_dst, ...]; `how.src` has a row a source of the block."""
    if torch.compiler.is_compiling():
        out = reduce_at_once(block, all_messages(block, how), how.kernel_reduce)
    else:
        out, _ = propagate_compiled(block, how, _as_it_is) or _as_it_is(block, how)
    return times_rows(out, block.mean_scale(out.dtype)) if how.reduce == "mean" else out


def _as_it_is(block: "Block", how: Propagation) -> tuple[Tensor, Tensor | None]:
    """Return the reduced messages of the function as it was given, at once or chunk by chunk."""
    plan = ChunkPlan.of(block, how)
    if not plan.at_once:
        return in_chunks(plan, how)
    check_message(plan, how)
    return reduce_at_once(block, all_messages(block, how), plan.reduce), None


def all_messages(block: "Block", how: Propagation) -> Any:
    """Return the messages of all edges, made in one call."""
    rows = block.edge_dst
    sources = [kernels.gather(t, block.indices) for t in how.src]
    targets = [kernels.gather(t, rows) for t in how.dst]
    return how.message(*sources, *targets, *how.edge, *how.params)


@dataclass(frozen=True)
class ChunkPlan:
    """What to compute, and where the chunks are cut."""

    block: "Block"
    message: Message
    reduce: str
    counts: tuple[
        int, int, int, int
    ]  # how many of the tensors are src, dst, edge and params; captured ones follow
    chunk_edges: int

    @staticmethod
    def of(block: "Block", how: Propagation) -> "ChunkPlan":
        """Return the plan of what a block is asked."""
        width = max(1, sum(t[:1].numel() if len(t) else 0 for t in how.per_edge))
        return ChunkPlan(block, how.message, how.kernel_reduce, how.counts, max(1, CHUNK_ELEMENTS // width))

    @property
    def at_once(self) -> bool:
        """Whether all edges are one chunk."""
        return self.block.num_edges <= self.chunk_edges

    def chunks(self) -> Iterator[Chunk]:
        """Give the chunks in the order of the edges."""
        size = self.chunk_edges
        bounds = self.block.cached(("chunks", size), lambda: _bounds(self.block.indptr, size))
        for start, stop in pairwise(bounds):
            yield Chunk.of(self.block, start, stop)

    def inputs(self, chunk: Chunk, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the rows of the src, dst and edge tensors that belong to the edges of a chunk."""
        kinds: tuple[Any, ...] = (chunk.src, chunk.dst, chunk.edges)
        places = zip(kinds, self.counts)
        return [
            t[place] for t, place in zip(tensors, (place for place, count in places for _ in range(count)))
        ]

    def params(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the tensors the message is given whole."""
        first = sum(self.counts[:3])
        return tensors[first : first + self.counts[3]]


def _bounds(indptr: Tensor, size: int) -> list[int]:
    indptr = indptr.cpu()
    bounds, last = [0], int(indptr[-1])
    while bounds[-1] < last:
        row = int(torch.searchsorted(indptr, bounds[-1] + size, right=True)) - 1
        stop = int(indptr[row])
        bounds.append(stop if stop > bounds[-1] else min(bounds[-1] + size, last))
    return bounds


def check_message(plan: ChunkPlan, how: Propagation) -> None:
    """Refuse on a small graph what would be refused on a large one: tensors the message was not given."""
    if plan.block.num_edges and not how.complete:
        _captured(plan, (*how.per_edge, *how.params))


def in_chunks(plan: ChunkPlan, how: Propagation) -> tuple[Tensor, Tensor | None]:
    """Return the reduced messages, made chunk by chunk, and what merging them with others takes."""
    tensors = (*how.per_edge, *how.params)
    made: tuple[Tensor, Tensor | None] = _InChunks.apply(  # type: ignore[no-untyped-call]
        plan, *tensors, *(() if how.complete else _captured(plan, tensors))
    )
    return made


class _InChunks(torch.autograd.Function):
    """Messages made and reduced chunk by chunk, and made again in backward for their gradients."""

    @staticmethod
    def forward(ctx: Any, plan: ChunkPlan, *tensors: Tensor) -> tuple[Tensor, Tensor | None]:
        ctx.plan, ctx.replay = plan, ForwardState(tensors)
        ctx.set_materialize_grads(False)
        reducer = REDUCERS[plan.reduce]()
        for chunk in plan.chunks():
            made = plan.message(*plan.inputs(chunk, tensors), *plan.params(tensors))
            reducer.add(chunk, made, plan.block.num_dst)
        out, beside = reducer.result(), reducer.beside()
        if beside is not None and not beside.is_floating_point():
            ctx.mark_non_differentiable(beside)
        ctx.save_for_backward(*tensors, *reducer.state())
        ctx.num_tensors, ctx.reducer, ctx.like = len(tensors), type(reducer), (out.shape, out.dtype)
        return out, beside

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor | None, beside: Tensor | None) -> tuple[Tensor | None, ...]:
        plan, saved = ctx.plan, ctx.saved_tensors
        tensors, reducer = saved[: ctx.num_tensors], ctx.reducer.restored(saved[ctx.num_tensors :])
        if grad is None:
            grad = torch.zeros(ctx.like[0], dtype=ctx.like[1], device=plan.block.device)
        needs = ctx.needs_input_grad[1:]
        # Thousands of chunks may add to a row: what is stored in 16 bits is summed in 32.
        grads = [
            torch.zeros_like(t, dtype=accumulator(t.dtype)) if need else None
            for t, need in zip(tensors, needs)
        ]
        with ctx.replay():
            for chunk in plan.chunks():
                add_chunk_gradients(plan, chunk, tensors, needs, reducer, (grad, beside), grads)
        return None, *(None if g is None else g.to(t.dtype) for g, t in zip(grads, tensors))


def add_chunk_gradients(
    plan: ChunkPlan,
    chunk: Chunk,
    tensors: Sequence[Tensor],
    needs: Sequence[bool],
    reducer: Reducer,
    given: tuple[Tensor, Tensor | None],
    grads: Sequence[Tensor | None],
) -> None:
    """Make the messages of a chunk again and add the gradients of all tensors.

    `given` are the gradients of the result and of what stands beside it.
    """
    num_src, num_dst, num_edge, _ = plan.counts
    with torch.enable_grad():
        rows = [t.detach().requires_grad_(need) for t, need in zip(plan.inputs(chunk, tensors), needs)]
        made = plan.message(*rows, *plan.params(tensors))
    outputs = list(made) if plan.reduce == "softmax" else [made]
    with torch.no_grad():
        wanted_grads = reducer.gradients(chunk, made, *given)
    live = [(out, g) for out, g in zip(outputs, wanted_grads) if out.requires_grad]
    leaves = [*rows, *tensors[len(rows) :]]
    wanted = [place for place, need in enumerate(needs) if need]
    if not live or not wanted:
        return
    found = torch.autograd.grad(
        [out for out, _ in live], [leaves[place] for place in wanted], [g for _, g in live], allow_unused=True
    )
    for place, part in zip(wanted, found):
        total = grads[place]
        if part is None or total is None:
            continue
        if place < num_src:
            add_rows(total, chunk.src, part)
        elif place < num_src + num_dst:
            total[chunk.rows] += chunk.sum(part)
        elif place < num_src + num_dst + num_edge:
            total[chunk.edges] = part
        else:
            total += part


class ForwardState:
    """The random state and the autocast setting of forward, so that backward makes the very same messages."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.kind = tensors[0].device.type if tensors else "cpu"
        self.devices = sorted({t.device.index or 0 for t in tensors if t.device.type == "cuda"})
        self.cpu_state = torch.get_rng_state()
        self.cuda_states = [torch.cuda.get_rng_state(device) for device in self.devices]
        self.autocast = torch.is_autocast_enabled(self.kind), torch.get_autocast_dtype(self.kind)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        enabled, dtype = self.autocast
        with torch.random.fork_rng(self.devices), torch.autocast(self.kind, dtype=dtype, enabled=enabled):
            torch.set_rng_state(self.cpu_state)
            for device, state in zip(self.devices, self.cuda_states):
                torch.cuda.set_rng_state(state, device)
            yield


def _captured(plan: ChunkPlan, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return what `captured` finds on the first two edges."""
    if not torch.is_grad_enabled():
        return []
    probe = Chunk.of(plan.block, 0, min(2, plan.block.num_edges))
    return captured(plan.message, plan.inputs(probe, tensors), plan.params(tensors))


def captured(message: Message, rows: Sequence[Tensor], params: Sequence[Tensor]) -> list[Tensor]:
    """Return the parameters that the message uses without being given them, such as those of a module.

    Made again in backward, the messages would lose their gradients in silence; as inputs of the function they
    get them. What is found is found by running the message on some rows and walking back from its result.
    """
    with ForwardState([*rows, *params])(), torch.enable_grad():
        start = torch.zeros(1, requires_grad=True).clone().grad_fn._sequence_nr()  # type: ignore[union-attr]
        made = message(*(t.detach() for t in rows), *params)
    outputs = made if isinstance(made, (tuple, list)) else [made]
    given = {t.grad_fn for t in params if t.grad_fn is not None}
    leaves = _leaves([out.grad_fn for out in outputs if out.grad_fn is not None], given, start)
    return [leaf for leaf in leaves if not any(leaf is param for param in params)]


def _leaves(roots: list[Any], given: set[Any], start: int) -> list[Tensor]:
    found: list[Tensor] = []
    seen, stack = set(given), list(roots)
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        elif node._sequence_nr() < start:
            raise GraphError(
                "propagate: the message uses a tensor with a gradient that it was not given;"
                " pass it in src, dst, edge or params"
            )
        else:
            stack += [function for function, _ in node.next_functions]
    return found
