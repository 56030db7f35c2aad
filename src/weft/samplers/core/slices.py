"""Rows of node data for a batch, copied by the thread that asks and by it alone.

Threads prepare different batches, so a copy that woke threads of its own would only be in their way.
"""

import math
from typing import Any

import torch
from torch import Tensor

from weft import kernels
from weft.graph.source import RowSource
from weft.graph.sparse import Features, SparseFeatures
from weft.graph.views import GraphView
from weft.kernels import native
from weft.kernels.buffers import reused
from weft.kernels.registration import is_subclass


def node_rows(graph: GraphView, nodes: Tensor, *, pin: bool = False) -> Any:
    """Return the features of global nodes: a matrix, or one for each type that has them, rows in order."""
    if len(graph.node_types) == 1:
        return None if graph.x is None else take_rows(graph.x, nodes, pin=pin)
    bounds = torch.tensor(graph.node_offsets[1:-1], device=nodes.device)
    kinds = torch.bucketize(nodes, bounds, right=True)
    by_name = {}
    for index, kind in enumerate(graph.node_types):
        if "x" in graph.node_data[kind]:
            by_name[kind] = take_rows(
                graph.node_data[kind]["x"], nodes[kinds == index] - graph.node_offsets[index], pin=pin
            )
    return by_name


def take_rows(x: Features, rows: Tensor, *, pin: bool = False) -> Features:
    """Return x[rows] for rows int64, copied without threads and without the GIL; a store gathers them.

    With `pin` the copy is in pinned memory, where the core makes it.
    """
    if isinstance(x, RowSource):
        return x.gather(rows)
    if isinstance(x, SparseFeatures):
        return x.rows(rows)
    if not x.is_cpu:
        return kernels.gather(x, rows)
    if not native.available() or not x.is_contiguous() or is_subclass(x):
        return x[rows]
    shape = (rows.numel(), *x.shape[1:])
    out = torch.empty(shape, dtype=x.dtype, device="cpu", pin_memory=True) if pin else reused(shape, x.dtype)
    row_bytes = math.prod(x.shape[1:]) * x.element_size()
    arguments = (x, x.shape[0], rows, rows.numel(), row_bytes, out, native.INDEX_CODES[rows.dtype])
    native.call("weft_gather", *arguments, 1, what="rows of a batch")
    return out
