"""`propagate` over some of the edges of each row, with what merging it with that over the others takes.

Beside max and min stands how many edges attain them, int32; beside a softmax the logarithm of the sum of
exponentials, [num_dst, H], through which gradients pass, minus infinity for a row without edges.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weft import kernels
from weft.graph.message.compiled import propagate_compiled
from weft.graph.message.propagate import ChunkPlan, all_messages, check_message, in_chunks
from weft.graph.message.reducers import headed, reduce_at_once
from weft.graph.message.reduction import Propagation

if TYPE_CHECKING:
    from weft.graph.message.block import Block


def propagate_part(block: "Block", how: Propagation) -> tuple[Tensor, Tensor | None]:
    """Return the messages of the block's edges reduced by sum, max, min or softmax, and what stands beside.

    At once or chunk by chunk, as `propagate` would; a mean is still a sum.
    """
    return propagate_compiled(block, how, _as_it_is, beside=True) or _as_it_is(block, how)


def _as_it_is(block: "Block", how: Propagation) -> tuple[Tensor, Tensor | None]:
    plan = ChunkPlan.of(block, how)
    if not plan.at_once:
        return in_chunks(plan, how)
    check_message(plan, how)
    return _at_once(block, all_messages(block, how), plan.reduce)


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
