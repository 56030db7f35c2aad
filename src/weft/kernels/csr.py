"""CSR building, transposing and relabelling: counting sorts, deterministic for any number of threads."""

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.errors import GraphError, WeftError
from weft.kernels import native, reference
from weft.kernels.registration import as_indptr, define, eager, index_dtype


class Transposed(NamedTuple):
    """The outgoing edges of each source row, beside the incoming edges of each destination."""

    indptr: Tensor
    """int64 [num_src + 1]"""
    indices: Tensor
    """destination row of each edge [E], int32 where it fits"""
    edges: Tensor
    """position of each edge in the forward order [E], int32 where it fits"""


def build_csr(
    src: Tensor, dst: Tensor, num_dst: int, *, edge_type: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (indptr, indices, edge_ids) of the edges in canonical order.

    The order is by destination, then relation, then source, then original position; `edge_ids` (int64) is the
    original position of each edge. `indices` is int32 where the sources fit.
    """
    if src.shape != dst.shape or src.dim() != 1:
        raise GraphError(
            f"expected src and dst of one length, got shapes {list(src.shape)} and {list(dst.shape)}"
        )
    if edge_type is not None and edge_type.shape != src.shape:
        raise GraphError(f"expected {src.shape[0]} edge types, got shape {list(edge_type.shape)}")
    _check_types(edge_type)
    most = _checked(src, dst, num_dst)
    if not native.available() or src.device.type != "cpu" or most >= 1 << 32:
        return reference.build_csr(src, dst, num_dst, edge_type)
    kind = index_dtype(most + 1)
    indptr = native.empty((num_dst + 1,), torch.int64)
    indices = native.empty((src.shape[0],), kind)  # in huge pages: a sampler reads it all over the place
    edge_ids = native.empty((src.shape[0],), torch.int64)
    wide = [value if value is None else value.to(torch.int64) for value in (src, dst, edge_type)]
    made = indptr, indices, edge_ids
    sizes, kinds = (src.shape[0], num_dst), (native.INDEX_CODES[kind], native.threads())
    native.call("weft_build_csr", *wide, *sizes, *made, *kinds)
    return made


def _checked(src: Tensor, dst: Tensor, num_dst: int) -> int:
    """Return the largest source, or -1; raise for an edge that cannot be."""
    if num_dst < 0:
        raise GraphError(f"expected no fewer than 0 destinations, got {num_dst}")
    if not src.numel():
        return -1
    (low, most), (dst_low, dst_most) = (map(int, value.aminmax()) for value in (src, dst))
    if low < 0 or dst_low < 0 or dst_most >= num_dst:
        raise GraphError(
            f"expected src >= 0 and dst in 0 … {num_dst - 1}, got src from {low} and dst from {dst_low} "
            f"to {dst_most}; check edge_index and num_nodes"
        )
    return most


def _check_types(edge_type: Tensor | None) -> None:
    if edge_type is None or not edge_type.numel():
        return
    low, most = map(int, edge_type.aminmax())
    if low < 0 or most >= 1 << 31:  # the core sorts by relation and source in one number of 64 bits
        raise GraphError(f"expected edge types in 0 … 2^31 - 1, got {low} to {most}; number the relations")


def transpose_csr(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """Return the transposed CSR: for each source row its edges, in forward order."""
    if num_src < 0:
        raise GraphError(f"expected no fewer than 0 sources, got {num_src}")
    return Transposed(*eager(transpose_op, as_indptr(indptr), indices, num_src))


def relabel(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids in order of first appearance (int64) and each id's place among them."""
    if not native.available() or ids.device.type != "cpu":
        return reference.relabel(ids)
    flat = ids.to(torch.int64).contiguous()
    unique, local, count = torch.empty_like(flat.view(-1)), torch.empty_like(flat), ctypes.c_int64()
    native.call("weft_relabel", flat, flat.numel(), unique, local, ctypes.byref(count))
    return unique[: count.value].clone(), local


def group(keys: Tensor, num_keys: int, indptr: Tensor | None = None) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the positions of each key 0 … num_keys − 1, in order, as (pointers, rows, positions); CPU only.

    With `indptr` the keys are the indices of a CSR and `rows` the row of each position: its transpose.
    """
    if not native.available():
        raise WeftError("group needs the native core; the reference operators do without it")
    kind = index_dtype(max(keys.shape[0], 0 if indptr is None else indptr.shape[0]))
    pointers = native.empty((num_keys + 1,), torch.int64)
    positions = native.empty((keys.shape[0],), kind)
    rows = None if indptr is None else torch.empty_like(positions)
    num_rows = 0 if indptr is None else indptr.shape[0] - 1
    given, kinds = (indptr, num_rows, keys, keys.shape[0], num_keys), (keys.dtype, kind)
    codes = (native.INDEX_CODES[each] for each in kinds)
    made = pointers, rows, positions
    native.call("weft_group", *given, *made, *codes, native.threads(), what="transpose_csr")
    return pointers, rows, positions


def _transpose_cpu(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor, Tensor]:
    if not native.available() or indices.dtype not in native.INDEX_CODES:
        return reference.transpose(indptr, indices, num_src)
    pointers, rows, positions = group(indices, num_src, indptr)
    assert rows is not None
    return pointers, rows, positions


def _transpose_fake(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor, Tensor]:
    kind = index_dtype(max(indptr.shape[0], indices.shape[0]))
    rows = torch.empty_like(indices, dtype=kind)
    return indptr.new_empty(num_src + 1), rows, torch.empty_like(rows)


transpose_op: Any = define(
    "transpose(Tensor indptr, Tensor indices, SymInt num_src) -> (Tensor, Tensor, Tensor)",
    reference=reference.transpose,
    cpu=_transpose_cpu,
    fake=_transpose_fake,
)


def transposed_or_built(
    transposed: tuple[Tensor | None, Tensor | None, Tensor | None],
    indptr: Tensor,
    indices: Tensor,
    num_src: int,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the given transposed CSR, or build it: what every backward starts with."""
    t_indptr, t_indices, t_edges = transposed
    if t_indptr is None or t_indices is None:
        built: tuple[Tensor, Tensor, Tensor] = eager(transpose_op, indptr, indices, num_src)
        return built
    return t_indptr, t_indices, t_edges
