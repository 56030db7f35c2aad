"""Programs on the native core: encoded once, then run a tile of edges at a time; see csrc/program.h."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from weft.compiler.native.layout import Encoded, encode
from weft.compiler.programs.program import Edges, Program
from weft.compiler.programs.valueless import output_forms
from weft.errors import InputError
from weft.kernels import native

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
native.declare(
    {
        "weft_program": [*[_P] * 10, *[_L] * 4, *[_I] * 4],
        "weft_program_op": [ctypes.c_char_p],
        "weft_program_kind": [ctypes.c_char_p],
    }
)
_DTYPES = (torch.float32, torch.float64)
KEEPS_FLAGS = True
"""Whether conditions go from one gradient pass to the other."""
JOINS_PASSES = True
"""Whether one gradient pass gives all that two would, where none is needed for rows."""


def obstacle(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> str:
    """Return why the core cannot run this program on these tensors, "" where it can."""
    if native.library() is None:
        return "the native core is not there"
    given = [edges.indptr, edges.other, *tensors]
    if any(each.device.type != "cpu" for each in given):
        return "a tensor is not on the CPU"
    dtypes = {each.dtype for number, each in enumerate(tensors) if number not in _flags(program, tensors)}
    if len(dtypes) > 1 or not dtypes <= set(_DTYPES):
        return "the tensors are not all float32 or all float64"
    coded = _coded(program, 8, _flags(program, tensors))
    return coded if isinstance(coded, str) else ""


def run(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of all results, in their order."""
    dtype = tensors[0].dtype if tensors else torch.float32
    coded = _coded(program, dtype.itemsize, _flags(program, tensors))
    assert isinstance(coded, Encoded), coded
    _check(program, edges, tensors)
    numbers = edges.numbers
    dense = [each.contiguous() for each in tensors]
    forms = [form for result in program.results for form in output_forms(program, result, edges, dtype)]
    outputs = [native.empty(*form) for form in forms]
    given = (edges.indptr, edges.other, numbers, _pointers(dense), _pointers(outputs), len(outputs))
    sizes = (edges.num_rows, edges.num_other, edges.num_edges)
    numbers_type = torch.int32 if numbers is None else numbers.dtype
    codes = (
        native.INDEX_CODES[edges.other.dtype],
        native.INDEX_CODES[numbers_type],
        native.DTYPE_CODES[dtype],
    )
    threads = native.threads()
    native.call("weft_program", *coded.addresses, *given, *sizes, *codes, threads, what="edge program")
    return outputs


def _flags(program: Program, tensors: Sequence[Tensor]) -> frozenset[int]:
    """Return the loads of edges that are bytes."""
    pairs = enumerate(zip(program.loads, tensors))
    return frozenset(n for n, (load, each) in pairs if load.source == "edge" and each.dtype == torch.uint8)


@lru_cache(maxsize=512)
def _coded(program: Program, itemsize: int, flags: frozenset[int]) -> Encoded | str:
    """Return the program as the core takes it, or what it has that the core does not know."""
    return encode(program, itemsize, _code, flags=flags)


def _code(name: str, *, kind: bool = False) -> int:
    """Return the core's code of a step or a kind of result, -1 where it has none."""
    core = native.library()
    assert core is not None
    find = core.weft_program_kind if kind else core.weft_program_op
    code: int = find(name.encode())
    return code


def _pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(len(tensors), 1))(*(native.pointer(each) for each in tensors))


def _check(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> None:
    """Raise if a tensor is not of the shape that the program loads; indices are checked as they are read."""
    if edges.indptr.dtype != torch.int64 or edges.indptr.dim() != 1 or len(edges.indptr) == 0:
        raise InputError(
            f"indptr must be int64 of one axis, got {edges.indptr.dtype} {[*edges.indptr.shape]}"
        )
    for name, index in (("other", edges.other), ("numbers", edges.numbers)):
        if index is not None and (index.dtype not in native.INDEX_CODES or index.shape != edges.other.shape):
            raise InputError(
                f"{name} must be int32 or int64, one per edge, got {index.dtype} {[*index.shape]}"
            )
    if len(tensors) != len(program.loads):
        raise InputError(f"the program loads {len(program.loads)} tensors, got {len(tensors)}")
    counts = {"row": edges.num_rows, "other": edges.num_other, "edge": edges.num_edges}
    for place, (load, tensor) in enumerate(zip(program.loads, tensors)):
        shape = (*([counts[load.source]] if load.source in counts else []), *load.shape)
        if tuple(tensor.shape) != shape:
            raise InputError(
                f"load {place} ({load.source}) must be of shape {[*shape]}, got {[*tensor.shape]}"
            )
