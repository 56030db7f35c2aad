"""The native core of the samplers: one call per batch, without the GIL, on the thread that asks.

The arrays of a sample are allocated by the core, which alone knows their sizes in time, and given back when
the last tensor that shows them is gone.
"""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.errors import GraphError
from weft.kernels import native
from weft.kernels.buffers import adopt
from weft.samplers.core.request import Hop, Request, Sample

_P, _L, _I = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
_DUPLICATE = 5


class _Request(ctypes.Structure):
    """SampleRequest of csrc/sample.h."""

    _fields_ = (
        *((name, _P) for name in ("indptr", "indices", "edge_type", "edge_map", "edge_time", "weight")),
        *((name, _P) for name in ("seeds", "seed_time", "seed_group", "seed_key", "fanouts", "keys")),
        *((name, _P) for name in ("node_offsets", "hidden")),
        *((name, _L) for name in ("num_nodes", "num_edges", "num_seeds", "num_hops")),
        *((name, _L) for name in ("num_relations", "num_types", "num_hidden")),
        *((name, _I) for name in ("index", "replace", "once", "sorted", "table", "labor", "top")),
    )


class _Hop(ctypes.Structure):
    _fields_ = (
        *((name, _L) for name in ("num_dst", "num_src", "num_edges")),
        *((name, _P) for name in ("indptr", "indices", "edge_ids", "scale")),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        ("hops", ctypes.POINTER(_Hop)),
        ("nodes", _P),
        ("seed_of", _P),
        ("num_rows", _L),
        ("culprit", _L),
    )


native.declare(
    {
        "weft_sample": [ctypes.POINTER(_Request), ctypes.POINTER(_Result)],
        "weft_thread_limit": [ctypes.c_int],
    }
)


def sample(core: ctypes.CDLL, request: Request) -> Sample:
    """Return the sample of one batch."""
    asked, arrays = _asked(request)
    hops = (_Hop * len(request.fanouts))()
    result = _Result(hops=hops)
    status = core.weft_sample(ctypes.byref(asked), ctypes.byref(result))
    del arrays  # until here the core read them
    if status:
        _refuse(status, result.culprit, request)
    tensor = partial(adopt, core)
    nodes = tensor(result.nodes, result.num_rows, torch.int64)
    seed_of = tensor(result.seed_of, result.num_rows, torch.int64) if result.seed_of else None
    return Sample(nodes, seed_of, tuple(_hop(tensor, hop) for hop in hops))


def _asked(request: Request) -> tuple[_Request, list[Any]]:
    """Return the request as the core reads it, and what must be held while it does."""
    slots = request.slots
    offsets = np.asarray(slots.node_offsets, dtype=np.int64)
    arrays = [offsets, np.ascontiguousarray(request.fanouts), np.ascontiguousarray(request.keys)]
    asked = _Request(
        # Asked for each time: a storage moves when its tensor is shared with another process.
        *(_place(part) for part in (slots.indptr, slots.indices, slots.edge_type, slots.edge_map)),
        *(_place(part) for part in (slots.edge_time, slots.weight)),
        *(_place(part) for part in (request.seeds, request.seed_time)),
        *(_place(part) for part in (request.seed_group, request.seed_key)),
        arrays[1].ctypes.data,
        arrays[2].ctypes.data,
        offsets.ctypes.data,
        _place(request.hidden),
        slots.num_nodes,
        slots.indices.numel(),
        request.seeds.numel(),
        *request.fanouts.shape,
        len(slots.node_offsets) - 1,
        0 if request.hidden is None else request.hidden.numel(),
        native.INDEX_CODES[slots.indices.dtype],
        request.replace,
        request.once,
        slots.sorted,
        request.table,
        request.labor,
        request.top,
    )
    return asked, arrays


def _place(part: Tensor | None) -> int | None:
    """Return where a tensor begins; it has to lie in the memory that the core reads."""
    if part is not None and not part.is_cpu:
        raise GraphError(f"a sample on the CPU needs all tensors there, one lies on {part.device}")
    return native.pointer(part)


def _refuse(status: int, culprit: int, request: Request) -> None:
    if status == 1 and not 0 <= culprit < request.slots.num_nodes:
        raise GraphError(f"seed {culprit} is no node: expected 0 … {request.slots.num_nodes - 1}")
    if status == _DUPLICATE:
        raise GraphError(
            f"seed {culprit} is there twice: a batch has each seed once; use torch.unique(seeds)"
        )
    native.check(status, "sample")


def _hop(tensor: Callable[[int, int, torch.dtype], Tensor], hop: _Hop) -> Hop:
    return Hop(
        tensor(hop.indptr, hop.num_dst + 1, torch.int64),
        tensor(hop.indices, hop.num_edges, torch.int32),
        tensor(hop.edge_ids, hop.num_edges, torch.int64),
        tensor(hop.scale, hop.num_edges, torch.float64) if hop.scale else None,
        hop.num_src,
    )
