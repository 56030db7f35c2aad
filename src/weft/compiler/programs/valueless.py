"""A program on tensors without values, as a rehearsal has them: one operator that gives shapes alone.

Whatever counts operators sees it, and asks for the program by its number.
"""

from collections.abc import Sequence
from threading import Lock

import torch
from torch import Tensor

from weft.compiler.programs import reference
from weft.compiler.programs.program import Edges, Program, Result, Shape
from weft.kernels.registration import define

_numbers: dict[Program, int] = {}
_programs: list[Program] = []
_lock = Lock()


def run(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of the shapes of all results, in their order."""
    at = edges.indptr, edges.other, edges.numbers, edges.num_other
    return list(torch.ops.weft.program([*tensors], *at, _number(program)))


def program_of(number: int) -> Program:
    """Return the program that an operator ran."""
    return _programs[number]


def output_forms(
    program: Program, result: Result, edges: Edges, dtype: torch.dtype
) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Return the shape and the type of each tensor of a result."""
    shapes: list[Shape] = [program.shapes[each] for each in result.args]
    rows, (heads, width) = edges.num_rows, shapes[-1]
    if result.kind == "place":
        return [((edges.places, heads, width), dtype)]
    if result.kind in ("edge", "flags"):
        return [((edges.num_edges, heads, width), dtype if result.kind == "edge" else torch.uint8)]
    if result.kind == "shared":
        return [((heads, width), dtype)]
    if result.kind == "weight":
        return [((shapes[0][1], width), dtype)]
    out = (rows, max(heads, shapes[0][0]), width)
    if result.kind == "sum":
        return [(out, dtype)]
    if result.kind == "softmax":
        return [(out, dtype), ((rows, shapes[0][0], 1), dtype)]
    return [(out, torch.int32)] if result.kind == "winner" else [(out, dtype), (out, torch.int32)]


def _number(program: Program) -> int:
    with _lock:
        if program not in _numbers:
            _numbers[program] = len(_programs)
            _programs.append(program)
        return _numbers[program]


def _reference(
    tensors: list[Tensor], indptr: Tensor, other: Tensor, numbers: Tensor | None, num_other: int, number: int
) -> list[Tensor]:
    return reference.run(_programs[number], Edges(indptr, other, num_other, numbers), tensors)


def _shapes(
    tensors: list[Tensor], indptr: Tensor, other: Tensor, numbers: Tensor | None, num_other: int, number: int
) -> list[Tensor]:
    program, edges = _programs[number], Edges(indptr, other, num_other, numbers)
    forms = [f for result in program.results for f in output_forms(program, result, edges, tensors[0].dtype)]
    return [indptr.new_empty(shape, dtype=dtype) for shape, dtype in forms]


define(
    "program(Tensor[] tensors, Tensor indptr, Tensor other, Tensor? numbers, SymInt num_other, int number) "
    "-> Tensor[]",
    reference=_reference,
    fake=_shapes,
)
