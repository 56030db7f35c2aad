"""A program run with gradients: the fastest backend that can, and programs again for backward."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.compiler import reference
from weft.compiler.gradient import Gradients, gradients
from weft.compiler.program import Edges, Program
from weft.compiler.spent import SPENT

_BACKENDS = {"cpu": "weft.compiler.cpu", "cuda": "weft.compiler.gpu"}
"""By type of device, the module that runs programs there: `run` as here, and `obstacle`."""


def _backend(device: torch.device) -> Any:
    name = _BACKENDS.get(device.type)
    return None if name is None else import_module(name)


def obstacle(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> str:
    """Return why only the reference can run a program and its gradients; "" where a backend can."""
    backend = _backend(edges.indptr.device)
    if backend is None:
        return f"no backend for {edges.indptr.device.type}"
    reason = str(backend.obstacle(program, edges, tensors))
    wanted = tuple(torch.is_grad_enabled() and each.requires_grad for each in tensors)
    if reason or not any(wanted):
        return reason
    passes = _passes(program, wanted)
    given = [*tensors, *[tensors[0]] * len(passes.extra)]  # of the same type and place
    back = [each for each in (passes.of_rows, passes.of_others) if each is not None]
    return next((str(found) for each in back if (found := backend.obstacle(each, edges, given))), "")


def run(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of a program's results, without gradients."""
    backend = _backend(edges.indptr.device)
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
    made: tuple[Tensor, Tensor | None] = _Reduced.apply(program, edges, transposed, *tensors)  # type: ignore[no-untyped-call]
    return made


class _Reduced(torch.autograd.Function):
    """Forward is the program; backward runs its gradient programs on the tensors that were loaded."""

    @staticmethod
    def forward(
        ctx: Any, program: Program, edges: Edges, transposed: Callable[[], Edges], *tensors: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        ctx.program, ctx.edges, ctx.transposed = program, edges, transposed
        ctx.set_materialize_grads(False)
        out, *rest = run(program, edges, tensors)
        beside = rest[0] if rest else None
        if beside is not None and not beside.is_floating_point():
            ctx.mark_non_differentiable(beside)
        ctx.save_for_backward(*tensors, out, *rest)
        ctx.num_tensors = len(tensors)
        return out, beside

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor | None, beside: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        tensors, (out, *rest) = saved[: ctx.num_tensors], saved[ctx.num_tensors :]
        grad = torch.zeros_like(out) if grad is None else grad
        kind = ctx.program.results[0].kind
        given = [*tensors, *extra_tensors(kind, out, rest, grad, beside)]
        passes = _passes(ctx.program, ctx.needs_input_grad[3:])
        return None, None, None, *_gradients(passes, ctx.edges, ctx.transposed, given, len(tensors))


@lru_cache(maxsize=1024)
def _passes(program: Program, wanted: tuple[bool, ...]) -> Gradients:
    return gradients(program, wanted)


def extra_tensors(
    kind: str, out: Tensor, rest: Sequence[Tensor], grad: Tensor, beside: Tensor | None
) -> list[Tensor]:
    """Return what gradient programs read beside the tensors of forward; see `Gradients.extra`.

    `rest` is what forward gave after `out`, `beside` the gradient of that.
    """
    if kind == "sum":
        return [grad]
    if kind in ("max", "min"):
        return [grad / rest[0].clamp(min=1), out]
    mean = (out * grad).sum(2, keepdim=True)
    level = torch.where(rest[0] == -torch.inf, 0.0, rest[0])
    return [grad, level, mean if beside is None else mean - beside]


def _gradients(
    passes: Gradients, edges: Edges, transposed: Callable[[], Edges], given: Sequence[Tensor], count: int
) -> list[Tensor | None]:
    grads: list[Tensor | None] = [None] * count
    found: list[tuple[int, Tensor]] = []
    if passes.of_rows is not None:
        found += zip(passes.row_places, run(passes.of_rows, edges, given))
    if passes.of_others is not None:
        found += zip(passes.other_places, run(passes.of_others, transposed(), given))
    for place, each in found:
        known = grads[place]
        grads[place] = each if known is None else known + each
    return grads
