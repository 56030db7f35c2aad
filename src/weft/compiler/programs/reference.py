"""A program in plain torch, all edges at once: what every backend is compared with, and where none fits."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from weft.compiler.programs.program import COMPARISONS, TIED, Edges, Program, Result, Step

_TORCH: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": torch.pow,
    "same": lambda a, b: _same(a, b),
    "not": lambda a: a == 0,
    "where": lambda mask, a, b: torch.where(mask != 0, a, b),
    "sum_width": lambda a: a.sum(2, keepdim=True),
    "sum_heads": lambda a: a.sum(1, keepdim=True),
    "dot": torch.matmul,
    "dot_t": lambda a, weight: a @ weight.t(),
}
_ULPS = 8


def run(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of all results, in their order; differentiable by torch's autograd."""
    rows = torch.repeat_interleave(
        torch.arange(edges.num_rows, device=edges.indptr.device), edges.indptr.diff()
    )
    place = torch.arange(edges.num_edges, device=rows.device) - edges.indptr[rows]
    if edges.places:  # edges that are none are left out
        there = (edges.other >= 0).nonzero().squeeze(1)
        numbers = there if edges.numbers is None else edges.numbers[there]
        rows, place = rows[there], place[there]
        edges = replace(edges, other=edges.other[there], numbers=numbers)
    places = {"row": rows, "other": edges.other.long(), "edge": edges.numbers, "place": place}
    values: list[Tensor] = []
    for load, tensor in zip(program.loads, tensors, strict=True):
        at = places.get(load.source)
        value = tensor if at is None else tensor[at.long()]
        value = value.to(tensors[0].dtype) if value.dtype == torch.uint8 else value  # flags
        values.append(value[None] if load.source == "shared" else value)
    for step in program.steps:
        args = [values[each] for each in step.args]
        ends = {"is_other": edges.other, "is_row": rows}.get(step.op)
        made = _step(step, args, tensors) if ends is None else _is(args[0], ends, tensors)
        values.append(made)
    found: list[Tensor] = []
    for result in program.results:
        shapes = [program.shapes[each] for each in result.args]
        args = [values[each].expand(edges.num_edges, *shape) for each, shape in zip(result.args, shapes)]
        if result.kind == "place":
            found.append(_sum(args[0], place, edges.places))
        elif result.kind == "winner":
            found.append(_winner(args[0], rows, edges, program.results[0].kind))
        else:
            found += _reduced(result, args, rows, edges)
    return found


def _is(numbers: Tensor, ends: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    kind = next((t for t in tensors if t.is_floating_point()), torch.zeros(()))
    return (numbers == ends.view(-1, 1, 1)).to(kind.dtype)


def _step(step: Step, args: list[Tensor], tensors: Sequence[Tensor]) -> Tensor:
    if step.op == "constant":
        kind = next((t for t in tensors if t.is_floating_point()), torch.zeros(()))
        return torch.full((1, 1, 1), step.number, dtype=kind.dtype, device=kind.device)
    if step.op == "expand":
        return args[0].expand(-1, *step.shape)
    made = _TORCH.get(step.op, getattr(torch, step.op, None))
    assert made is not None, step.op
    return made(*args).to(args[0].dtype) if step.op in COMPARISONS else made(*args)


def _reduced(result: Result, args: list[Tensor], rows: Tensor, edges: Edges) -> list[Tensor]:
    first = args[0]
    if result.kind in ("edge", "flags"):
        back = slice(None) if edges.numbers is None else torch.argsort(edges.numbers)
        return [first[back] if result.kind == "edge" else first[back].to(torch.uint8)]
    if result.kind == "shared":
        return [first.sum(0)]
    if result.kind == "weight":
        return [torch.einsum("ehk,ehn->kn", first, args[1])]
    if result.kind == "sum":
        return [_sum(first, rows, edges.num_rows)]
    if result.kind == "softmax":
        return _softmax(first, args[1], rows, edges.num_rows)
    return _extreme(first, rows, edges.num_rows, result.kind)


def _sum(values: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    return values.new_zeros(num_rows, *values.shape[1:]).index_add(0, rows, values)


def _extreme(values: Tensor, rows: Tensor, num_rows: int, kind: str) -> list[Tensor]:
    index = rows.view(-1, 1, 1).expand_as(values)
    out = values.new_zeros(num_rows, *values.shape[1:])
    out = out.scatter_reduce(0, index, values, "a" + kind, include_self=False)
    return [out, _sum(_same(values, out[rows]).to(torch.int32), rows, num_rows)]


def _winner(values: Tensor, rows: Tensor, edges: Edges, kind: str) -> Tensor:
    """Return the other end of the edges that attain an extreme, see `Result`."""
    out, _ = _extreme(values, rows, edges.num_rows, kind)
    index = rows.view(-1, 1, 1).expand_as(values)
    ends = edges.other.to(torch.int32).view(-1, 1, 1).expand_as(values)
    won, most = _same(values, out[rows]), torch.iinfo(torch.int32).max
    least, last = (
        torch.full(out.shape, start, dtype=torch.int32, device=out.device).scatter_reduce(
            0, index, torch.where(won, ends, start), name
        )
        for start, name in ((most, "amin"), (-1, "amax"))
    )
    return torch.where(least == last, last, torch.where(last == -1, -1, TIED)).to(torch.int32)


def _softmax(score: Tensor, value: Tensor, rows: Tensor, num_rows: int) -> list[Tensor]:
    top = _extreme(score.detach(), rows, num_rows, "max")[0]
    top = torch.where(top == -torch.inf, 0.0, top)
    weight = torch.exp(score - top[rows])
    mass = _sum(weight, rows, num_rows)
    total = _sum(weight * value, rows, num_rows)
    out = total / torch.where(mass == 0, 1.0, mass)
    return [out, top + mass.log()]


def _same(a: Tensor, b: Tensor) -> Tensor:
    """Return where two values are one: torch rounds a function by where it lies in a tensor, so almost."""
    near = (a - b).abs() <= _ULPS * torch.finfo(a.dtype).eps * b.abs()
    return (near & b.isfinite()) | (a == b) | (a.isnan() & b.isnan())
