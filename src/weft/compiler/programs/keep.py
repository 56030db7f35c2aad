"""Store or make again: which values of edges stay for backward, by counted bytes and operations.

Nothing per edge stays unless it saves more than it costs. To keep a value is to write it once and to read it
in each pass of backward; it saves the steps that made it, and the rows that only those read. Bytes weigh
against operations by what a machine does of these while it moves one of those. A kept value has the bits that
it would have if it were made again, so keeping changes no result.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import prod

import torch

from weft.compiler.programs.cost import EdgeCounts, Work, program_cost, step_operations
from weft.compiler.programs.gradient import gradients
from weft.compiler.programs.program import Program, Result
from weft.machine import free_memory

OPERATIONS_PER_BYTE = {"cpu": 24.0, "cuda": 60.0}
"""What a device computes of a program while it moves a byte of memory, doubled: memory is worth time, too."""
SHARE = 8
"""What is kept takes at most this part of the memory that is free."""
_MOST = 4
"""Values that one program keeps."""
_NODES = 1024
_WIDE = (torch.float32, torch.float64)
"""Types in which backends compute: values of others would be rounded when they are stored."""

Kept = tuple[int, ...]
"""Values of a program, by number."""


def kept(
    program: Program,
    wanted: tuple[bool, ...],
    counts: EdgeCounts,
    dtype: torch.dtype,
    device: torch.device,
    *,
    always_alike: bool = False,
) -> Kept:
    """Return the values that stay for the gradients of the wanted loads, on a graph of this size.

    Those that are `always_alike` do not depend on how much memory is free just now.
    """
    if dtype not in _WIDE or not any(wanted) or not counts.edges:
        return ()
    degree = 1 << (counts.edges // max(counts.rows, 1)).bit_length() >> 1 or 1
    chosen = choice(program, wanted, degree, dtype, OPERATIONS_PER_BYTE.get(device.type, 0.0))
    room = _whole(device) if always_alike else _free(device)
    if chosen and kept_bytes(program, chosen, counts, dtype) > room // SHARE:
        return ()
    return chosen


def kept_bytes(program: Program, chosen: Kept, counts: EdgeCounts, dtype: torch.dtype) -> int:
    """Return what kept values take."""
    return counts.edges * sum(prod(program.shapes[each]) for each in chosen) * dtype.itemsize


def storing(program: Program, chosen: Kept) -> Program:
    """Return the program that also gives the chosen values, one row per edge."""
    return Program(
        program.loads, program.steps, (*program.results, *(Result("edge", (each,)) for each in chosen))
    )


@lru_cache(maxsize=1024)
def choice(program: Program, wanted: tuple[bool, ...], degree: int, dtype: torch.dtype, ratio: float) -> Kept:
    """Return the values whose keeping saves most, one after the other; `ratio` 0 never keeps."""
    counts = EdgeCounts(_NODES, _NODES, _NODES * degree)
    chosen: Kept = ()
    best = _weight(program, wanted, chosen, counts, dtype, ratio)
    candidates = list(_candidates(program, ratio, dtype)) if ratio else []
    while candidates and len(chosen) < _MOST:
        tried = [
            (_weight(program, wanted, (*chosen, each), counts, dtype, ratio), each) for each in candidates
        ]
        least, value = min(tried)
        if least >= best:
            break
        best, chosen = least, (*chosen, value)
        candidates.remove(value)
    return tuple(sorted(chosen))


def _candidates(program: Program, ratio: float, dtype: torch.dtype) -> Iterator[int]:
    """Give the values of edges with enough operations behind them that keeping could pay."""
    first = len(program.loads)
    behind: dict[int, set[int]] = {}
    for number, step in enumerate(program.steps, first):
        behind[number] = {number}.union(*(behind.get(each, set()) for each in step.args))
        saved = sum(step_operations(program, program.steps[each - first]) for each in behind[number])
        # Two passes may make it again; it is written once and read twice.
        if 2 * saved > 3 * prod(step.shape) * dtype.itemsize * ratio and _of_edges(program, behind[number]):
            yield number


def _of_edges(program: Program, steps: set[int]) -> bool:
    first = len(program.loads)
    loads = {arg for each in steps for arg in program.steps[each - first].args if arg < first}
    return any(program.loads[each].source in ("other", "edge") for each in loads)


def _weight(
    program: Program,
    wanted: tuple[bool, ...],
    chosen: Kept,
    counts: EdgeCounts,
    dtype: torch.dtype,
    ratio: float,
) -> float:
    """Return the cost of forward and backward, in bytes and operations weighed as bytes."""
    passes = gradients(program, wanted, kept=chosen)
    work = program_cost(storing(program, chosen), counts, dtype)
    for each, over in ((passes.of_rows, counts), (passes.of_others, counts.swapped)):
        work += Work() if each is None else program_cost(each, over, dtype)
    return work.read + work.written + work.operations / max(ratio, 1e-9)


def _free(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()


def _whole(device: torch.device) -> int:
    """Return half of a device's memory: of what is free, all that can be said beforehand."""
    if device.type != "cuda":
        return _free(device)
    return int(torch.cuda.get_device_properties(device).total_memory) // 2
