"""A program run with gradients: the fastest backend that can, and programs again for backward."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from weft.compiler.programs import reference, valueless
from weft.compiler.programs.cost import EdgeCounts
from weft.compiler.programs.gradient import Gradients, gradients
from weft.compiler.programs.keep import Kept, kept, storing
from weft.compiler.programs.program import TIED, Edges, Program
from weft.compiler.programs.winners import (
    LEAST_DEGREE,
    Winners,
    edges_of_rows,
    gradients_of_winners,
    tied_rows,
    transposed_of,
    winners,
    with_winner,
)
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


def winners_of(
    program: Program, wanted: tuple[bool, ...], counts: EdgeCounts, device: torch.device
) -> Winners | None:
    """Return the passes by winners of a program on a graph of this size; None where all edges are taken."""
    if not getattr(_backend(device), "WINNERS", False) or not any(wanted):
        return None
    return winners(program, wanted) if counts.edges >= LEAST_DEGREE * counts.rows else None


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
    winning = _winners(program, wanted, edges, tensors)
    chosen = _kept(program, wanted, edges, tensors) if winning is None else ()
    how = _How(program, chosen, winning)
    _prepare(how, edges, transposed, tensors)
    made: tuple[Tensor, Tensor | None] = _Reduced.apply(how, edges, transposed, *tensors)  # type: ignore[no-untyped-call]
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


def _winners(
    program: Program, wanted: tuple[bool, ...], edges: Edges, tensors: Sequence[Tensor]
) -> Winners | None:
    """Return the passes by winners, where a backend runs them and they pay."""
    backend = _backend(edges.indptr.device)
    counts = EdgeCounts(edges.num_rows, edges.num_other, edges.num_edges)
    found = winners_of(program, wanted, counts, edges.indptr.device)
    asks = not edges.padded and not _captures(edges.indptr) and not any(map(native.valueless, tensors))
    if found is None or not asks:
        return None
    more = tensors[0].new_empty((0,))
    who = more.to(torch.int32)
    each = replace(edges, places=program.shapes[program.results[0].args[0]][1])
    asked = [(with_winner(program), edges, tensors), (found.of_rows, each, [*tensors, more, more])]
    asked += [] if found.of_others is None else [(found.of_others, edges, [*tensors, more, who])]
    return None if any(backend.obstacle(*one) for one in asked) else found


def _captures(indptr: Tensor) -> bool:
    """Return whether a CUDA graph is in the making, when the device cannot be asked."""
    return indptr.is_cuda and torch.cuda.is_current_stream_capturing()


@dataclass(frozen=True)
class _How:
    """A program, what of it stays, and the passes by winners where they are taken."""

    program: Program
    chosen: Kept
    winning: Winners | None

    @property
    def forward(self) -> Program:
        """What runs forward."""
        return storing(self.program, self.chosen) if self.winning is None else with_winner(self.program)


class _Reduced(torch.autograd.Function):
    """Forward is the program; backward runs its gradient programs on the tensors that were loaded."""

    @staticmethod
    def forward(
        ctx: Any, how: _How, edges: Edges, transposed: Callable[[], Edges], *tensors: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        ctx.how, ctx.edges, ctx.transposed = how, edges, transposed
        ctx.set_materialize_grads(False)
        out, *rest = run(how.forward, edges, tensors)
        beside = rest[0] if len(rest) > len(how.chosen) else None
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
            needs, towards = ctx.needs_input_grad[3:], (grad, beside)
            again = plain_gradients(lambda *given: _plain(ctx, given), tensors, needs, towards)
            return None, None, None, *again
        grad, how = torch.zeros_like(out) if grad is None else grad, ctx.how
        kind = how.program.results[0].kind
        stored = rest[len(rest) - len(how.chosen) :]
        extra = extra_tensors(kind, out, rest, grad, beside)
        passes = passes_of(how.program, ctx.needs_input_grad[3:], how.chosen, out.device)
        if how.winning is None:
            found = _gradients(passes, ctx.edges, ctx.transposed, [*tensors, *extra, *stored], len(tensors))
        else:
            found = _by_winners(ctx, passes, tensors, extra, grad.contiguous(), rest[1])
        return None, None, None, *found


def _prepare(how: _How, edges: Edges, transposed: Callable[[], Edges], tensors: Sequence[Tensor]) -> None:
    """Have a GPU's kernels of backward made while that of forward is, where none has run yet."""
    prepare = getattr(_backend(edges.indptr.device), "prepare", None)
    wanted, kinds = _wanted(tensors), [each.dtype for each in tensors]
    if prepare is None or not any(wanted) or (how, wanted, *kinds) in _prepared:
        return
    if edges.padded or _captures(edges.indptr) or any(map(native.valueless, tensors)):
        return
    _prepared.add((how, wanted, *kinds))
    passes = passes_of(how.program, wanted, how.chosen, edges.indptr.device)
    real, by = next(each for each in kinds if each.is_floating_point), how.winning
    given = [*kinds, *[real] * (len(passes.extra) + len(how.chosen))]
    back = edges if passes.of_others is None else transposed()
    if by is not None:
        each = replace(edges, places=how.program.shapes[how.program.results[0].args[0]][1])
        prepare(by.of_rows, each, [*kinds, real, real])
        if by.of_others is not None:
            prepare(by.of_others, back, [*kinds, real, torch.int32])
        # and those of a few rows that edges of several ends attain
        degree = edges.num_edges // edges.num_rows
        edges = replace(edges, indptr=edges.indptr[:2], other=edges.other[:degree])
        back = replace(back, other=back.other[:1], numbers=None if back.numbers is None else back.numbers[:1])
    for program, over in ((passes.of_rows, edges), (passes.of_others, back)):
        if program is not None:
            flags = [torch.uint8] * (passes.flags and program is passes.of_others)
            prepare(program, over, [*given, *flags], some=by is not None)


_prepared: set[tuple[object, ...]] = set()


def _plain(ctx: Any, given: Sequence[Tensor]) -> list[Tensor]:
    """Return what forward gave, all edges at once in plain torch."""
    return reference.run(ctx.how.program, ctx.edges, given)


def _by_winners(
    ctx: Any,
    passes: Gradients,
    tensors: Sequence[Tensor],
    extra: Sequence[Tensor],
    grad: Tensor,
    who: Tensor,
) -> list[Tensor | None]:
    """Return gradients by winners; those of rows that several edges attain by passes over all their edges."""
    edges, (share, value), count = ctx.edges, extra, len(tensors)
    rows = tied_rows(who)
    some = edges_of_rows(edges, rows) if len(rows) else None
    if some is not None and 2 * some.num_edges > edges.num_edges:
        return _gradients(passes, edges, ctx.transposed, [*tensors, share, value], count)
    grads = gradients_of_winners(ctx.how.winning, edges, ctx.transposed, tensors, share, grad, who, run)
    if some is None:
        return grads
    sources = [load.source for load in ctx.how.program.loads]
    given = [each[rows] if source == "row" else each for each, source in zip(tensors, sources)]
    given += [torch.where(who[rows] == TIED, share[rows], 0.0), value[rows]]
    rest = _gradients(passes, some, lambda: transposed_of(some), given, count)
    for place, found in enumerate(rest):
        known = grads[place]
        if found is not None and known is not None:
            grads[place] = known.index_add_(0, rows, found) if sources[place] == "row" else known + found
    return grads


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
