"""A program run with gradients: the fastest backend that can, and programs again for backward."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from weft.compiler.programs import reference, valueless
from weft.compiler.programs.cost import EdgeCounts
from weft.compiler.programs.gradient import Gradients, gradients
from weft.compiler.programs.keep import Kept, kept, storing
from weft.compiler.programs.program import Edges, Program
from weft.compiler.spent import SPENT
from weft.kernels import native
from weft.kernels.second import plain_gradients

_BACKENDS = {"cpu": "weft.compiler.native.backend", "cuda": "weft.compiler.triton.backend"}
"""By type of device, the module that runs programs there: `run` as here, and `obstacle`."""


def _backend(device: torch.device) -> Any:
    name = _BACKENDS.get(device.type)
    return None if name is None else import_module(name)


def passes_of(program: Program, wanted: tuple[bool, ...], chosen: Kept, device: torch.device) -> Gradients:
    """Return the gradient passes of a program as they run on a device."""
    backend = _backend(device)
    flags, joined = (False, False) if backend is None else (backend.KEEPS_FLAGS, backend.JOINS_PASSES)
    return _passes(program, wanted, chosen, flags, joined)


def obstacle(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> str:
    """Return why only the reference can run a program and its gradients; "" where a backend can."""
    backend = _backend(edges.indptr.device)
    if backend is None:
        return f"no backend for {edges.indptr.device.type}"
    reason = str(backend.obstacle(program, edges, tensors))
    wanted = _wanted(tensors)
    return (
        reason
        if reason or not any(wanted)
        else _obstacle_of_passes(backend, program, wanted, (), edges, tensors)
    )


def _obstacle_of_passes(
    backend: Any,
    program: Program,
    wanted: tuple[bool, ...],
    chosen: Kept,
    edges: Edges,
    tensors: Sequence[Tensor],
) -> str:
    passes = passes_of(program, wanted, chosen, edges.indptr.device)
    given = [*tensors, *[tensors[0]] * (len(passes.extra) + len(chosen))]  # of the same type and place
    flags = [tensors[0].new_empty(0, dtype=torch.uint8)] if passes.flags else []
    back = ((passes.of_rows, given), (passes.of_others, [*given, *flags]))
    found = (str(backend.obstacle(each, edges, taken)) for each, taken in back if each is not None)
    return next((each for each in found if each), "")


def run(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of a program's results, without gradients."""
    backend = _backend(edges.indptr.device)
    if any(map(native.valueless, tensors)):
        return valueless.run(program, edges, tensors)
    if backend is None or backend.obstacle(program, edges, tensors):
        return reference.run(program, edges, tensors)
    with _first_launch(program, edges.indptr.device.type, tensors[0].dtype if tensors else None):
        return backend.run(program, edges, tensors)  # type: ignore[no-any-return]


def _first_launch(program: Program, device: str, dtype: torch.dtype | None) -> AbstractContextManager[None]:
    """Return what counts the first launch of a kernel as the cost of making it; the core makes none."""
    if device != "cuda" or (program, dtype) in _launched:
        return nullcontext()
    _launched.add((program, dtype))
    return SPENT.on(kernels=1)


_launched: set[tuple[Program, torch.dtype | None]] = set()


def reduce_edges(
    program: Program, edges: Edges, transposed: Callable[[], Edges], tensors: Sequence[Tensor]
) -> tuple[Tensor, Tensor | None]:
    """Return the rows of a program's only result, differentiable in all tensors, and what stands beside it.

    That is the count of an extreme, which has no gradient, and the logarithm of a softmax, which has one.
    """
    wanted = _wanted(tensors)
    chosen = _kept(program, wanted, edges, tensors)
    made: tuple[Tensor, Tensor | None] = _Reduced.apply(program, chosen, edges, transposed, *tensors)  # type: ignore[no-untyped-call]
    return made


def _wanted(tensors: Sequence[Tensor]) -> tuple[bool, ...]:
    return tuple(torch.is_grad_enabled() and each.requires_grad for each in tensors)


def _kept(program: Program, wanted: tuple[bool, ...], edges: Edges, tensors: Sequence[Tensor]) -> Kept:
    """Return what forward stores, where a backend runs what that takes."""
    counts = EdgeCounts(edges.num_rows, edges.num_other, edges.num_edges)
    device = edges.indptr.device
    dtype = tensors[0].dtype if tensors else torch.float32
    chosen = kept(program, wanted, counts, dtype, device, always_alike=edges.padded) if tensors else ()
    backend = _backend(device)
    if not chosen or backend is None or backend.obstacle(storing(program, chosen), edges, tensors):
        return ()
    return chosen if not _obstacle_of_passes(backend, program, wanted, chosen, edges, tensors) else ()


class _Reduced(torch.autograd.Function):
    """Forward is the program; backward runs its gradient programs on the tensors that were loaded."""

    @staticmethod
    def forward(
        ctx: Any,
        program: Program,
        chosen: Kept,
        edges: Edges,
        transposed: Callable[[], Edges],
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.program, ctx.chosen, ctx.edges, ctx.transposed = program, chosen, edges, transposed
        ctx.set_materialize_grads(False)
        out, *rest = run(storing(program, chosen) if chosen else program, edges, tensors)
        beside = rest[0] if len(rest) > len(chosen) else None
        if beside is not None and not beside.is_floating_point():
            ctx.mark_non_differentiable(beside)
        ctx.save_for_backward(*tensors, out, *rest)
        ctx.num_tensors = len(tensors)
        return out, beside

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, beside: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        tensors, (out, *rest) = saved[: ctx.num_tensors], saved[ctx.num_tensors :]
        if torch.is_grad_enabled():  # a gradient of this one is wanted, which gradient programs do not have
            needs, towards = ctx.needs_input_grad[4:], (grad, beside)
            again = plain_gradients(lambda *given: _plain(ctx, given), tensors, needs, towards)
            return None, None, None, None, *again
        grad = torch.zeros_like(out) if grad is None else grad
        kind = ctx.program.results[0].kind
        stored = rest[len(rest) - len(ctx.chosen) :]
        given = [*tensors, *extra_tensors(kind, out, rest, grad, beside), *stored]
        passes = passes_of(ctx.program, ctx.needs_input_grad[4:], ctx.chosen, out.device)
        return None, None, None, None, *_gradients(passes, ctx.edges, ctx.transposed, given, len(tensors))


def _plain(ctx: Any, given: Sequence[Tensor]) -> list[Tensor]:
    """Return what forward gave, all edges at once in plain torch."""
    return reference.run(ctx.program, ctx.edges, given)


@lru_cache(maxsize=1024)
def _passes(program: Program, wanted: tuple[bool, ...], chosen: Kept, flags: bool, joined: bool) -> Gradients:
    return gradients(program, wanted, kept=chosen, flags=flags, joined=joined)


def extra_tensors(
    kind: str, out: Tensor, rest: Sequence[Tensor], grad: Tensor, beside: Tensor | None
) -> list[Tensor]:
    """Return what gradient programs read beside the tensors of forward; see `Gradients.extra`.

    `rest` is what forward gave after `out`, `beside` the gradient of that.
    """
    if kind == "sum":
        return [grad]
    if kind in ("max", "min"):
        return [grad / rest[0], out]  # no edge reads the row of none
    mean = (out * grad).sum(2, keepdim=True)
    mean = mean if rest[0].shape[1] == mean.shape[1] else mean.sum(1, keepdim=True)  # one score for all heads
    level = torch.where(rest[0] == -torch.inf, 0.0, rest[0])
    return [grad, level, mean if beside is None else mean - beside]


def _gradients(
    passes: Gradients, edges: Edges, transposed: Callable[[], Edges], given: Sequence[Tensor], count: int
) -> list[Tensor | None]:
    grads: list[Tensor | None] = [None] * count
    found: list[tuple[int, Tensor]] = []
    if passes.of_rows is not None:
        made = run(passes.of_rows, edges, given)
        given = [*given, made.pop()] if passes.flags else given
        found += zip(passes.row_places, made)
    if passes.of_others is not None:
        found += zip(passes.other_places, run(passes.of_others, transposed(), given))
    for place, each in found:
        known = grads[place]
        grads[place] = each if known is None else known + each
    return grads
