"""`propagate` over some of the edges of each row, with what merging it with that over the others takes.

Beside max and min stands how many edges attain them, int32; beside a softmax the logarithm of the sum of
exponentials, [num_dst, H], through which gradients pass, minus infinity for a row without edges.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft import kernels
from weft.graph import propagate as whole
from weft.graph.reducers import REDUCERS, Chunk, Max, Softmax, headed, reduce_at_once
from weft.graph.reduction import Propagation

if TYPE_CHECKING:
    from weft.graph.block import Block


def propagate_part(block: "Block", how: Propagation) -> tuple[Tensor, Tensor | None]:
    """Return the messages of the block's edges reduced by sum, max, min or softmax, and what stands beside.

    At once or chunk by chunk, as `propagate` would; a mean is still a sum.
    """
    plan = whole.Plan.of(block, how)
    if plan.at_once:
        return _at_once(block, whole.all_messages(block, how), plan.reduce)
    tensors = (*how.per_edge, *how.params)
    captured: list[Tensor] = []
    if torch.is_grad_enabled():
        probe = Chunk.of(block, 0, min(2, block.num_edges))
        captured = whole.captured(how.message, plan.inputs(probe, tensors), plan.params(tensors))
    made: tuple[Tensor, Tensor | None] = _InChunks.apply(  # type: ignore[no-untyped-call]
        plan, *tensors, *captured
    )
    return made


def _at_once(block: "Block", made: Any, reduce: str) -> tuple[Tensor, Tensor | None]:
    if reduce == "sum":
        return reduce_at_once(block, made, reduce), None
    if reduce == "softmax":
        return reduce_at_once(block, made, reduce), _log_mass(block, headed(*made)[0])
    flat = made.reshape(len(made), math.prod(made.shape[1:]))
    value, count = kernels.extreme(block.indptr, torch.arange(len(flat), device=flat.device), flat, reduce)
    shape = (block.num_dst, *made.shape[1:])
    return value.reshape(shape), count.reshape(shape)


def _log_mass(block: "Block", score: Tensor) -> Tensor:
    """Return log Σ exp of [E, H] over the edges of each row, [num_dst, H]."""
    at = block.indptr, torch.arange(len(score), device=score.device)
    top, count = kernels.extreme(*at, score.detach(), "max")
    top = torch.where((count > 0) & (top > -torch.inf), top, 0.0)
    mass = kernels.spmm(*at, torch.exp(score - top[block.edge_dst]))
    empty = mass == 0  # log has no derivative there
    return (top + torch.where(empty, 1.0, mass).log()).masked_fill(empty, -torch.inf)


class _Softmax(Softmax):
    """A softmax whose gradient knows of that of the logarithm of the mass."""

    beside: Tensor | None = None

    def gradients(self, chunk: Chunk, made: tuple[Tensor, Tensor], grad: Tensor) -> list[Tensor]:
        of_score, of_value = super().gradients(chunk, made, grad)
        if self.beside is not None:
            assert self.top is not None
            assert self.mass is not None
            score = headed(*made)[0]
            top = torch.where(self.top == -torch.inf, 0.0, self.top)
            alpha = torch.exp(score - top[chunk.dst]) / self.mass[chunk.dst]
            of_score = of_score + (alpha * self.beside[chunk.dst]).reshape(of_score.shape).to(of_score.dtype)
        return [of_score, of_value]


class _InChunks(torch.autograd.Function):
    """Messages made and reduced chunk by chunk, both results given."""

    @staticmethod
    def forward(ctx: Any, plan: whole.Plan, *tensors: Tensor) -> tuple[Tensor, Tensor | None]:
        ctx.plan, ctx.replay = plan, whole.Replay(tensors)
        reducer = _Softmax() if plan.reduce == "softmax" else REDUCERS[plan.reduce]()
        for chunk in plan.chunks():
            made = plan.message(*plan.inputs(chunk, tensors), *plan.params(tensors))
            reducer.add(chunk, made, plan.block.num_dst)
        out, beside = reducer.result(), None
        if isinstance(reducer, Max):
            beside = reducer.count
            ctx.mark_non_differentiable(beside)
        elif isinstance(reducer, Softmax):
            assert reducer.top is not None
            assert reducer.mass is not None
            beside = reducer.top + reducer.mass.log()  # a row without edges: −inf + log 1
        ctx.save_for_backward(*tensors, *reducer.state())
        ctx.num_tensors, ctx.reducer = len(tensors), type(reducer)
        return out, beside

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor, beside: Tensor | None) -> tuple[Tensor | None, ...]:
        plan, saved = ctx.plan, ctx.saved_tensors
        tensors, reducer = saved[: ctx.num_tensors], ctx.reducer.restored(saved[ctx.num_tensors :])
        if isinstance(reducer, _Softmax):
            reducer.beside = beside
        needs = ctx.needs_input_grad[1:]
        grads = [torch.zeros_like(t) if need else None for t, need in zip(tensors, needs)]
        with ctx.replay():
            for chunk in plan.chunks():
                whole.add_chunk_gradients(plan, chunk, tensors, needs, reducer, grad, grads)
        return None, *grads
