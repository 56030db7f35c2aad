"""CSR building, transposing and relabelling: counting sorts, deterministic for any number of threads."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.kernels import reference
from weft.kernels.registration import as_indptr, define, index_dtype


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
    if src.numel() and (int(src.min()) < 0 or int(dst.min()) < 0 or int(dst.max()) >= num_dst):
        raise GraphError(
            f"expected src >= 0 and dst in 0 … {num_dst - 1}, got an edge outside; check edge_index"
        )
    return reference.build_csr(src, dst, num_dst, edge_type)


def transpose_csr(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """Return the transposed CSR: for each source row its edges, in forward order."""
    return Transposed(*transpose_op(as_indptr(indptr), indices, num_src))


def relabel(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids in order of first appearance (int64) and each id's place among them."""
    return reference.relabel(ids)


def _transpose_fake(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor, Tensor]:
    kind = index_dtype(max(indptr.shape[0], indices.shape[0]))
    rows = torch.empty_like(indices, dtype=kind)
    return indptr.new_empty(num_src + 1), rows, torch.empty_like(rows)


transpose_op: Any = define(
    "transpose(Tensor indptr, Tensor indices, SymInt num_src) -> (Tensor, Tensor, Tensor)",
    reference=reference.transpose,
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
        built: tuple[Tensor, Tensor, Tensor] = transpose_op(indptr, indices, num_src)
        return built
    return t_indptr, t_indices, t_edges
