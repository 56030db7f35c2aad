"""Forward of PyG's R-GCN convolutions on (relation, source) pairs. `conv` is the PyG module itself."""

from typing import Any

import torch
from torch import Tensor

from weft import kernels
from weft.graph.sparse import SparseFeatures
from weft.interop.pyg.accelerate.adjacency import typed_adjacency
from weft.interop.pyg.accelerate.inputs import features
from weft.interop.pyg.accelerate.summing import reduce_of
from weft.interop.pyg.accelerate.swap import NotCovered
from weft.layers.base import linear
from weft.layers.rgcn import relation_mean, stacked_rows


def check(conv: Any) -> None:
    """Refuse a convolution that no call of it would be covered of."""
    if conv.num_blocks is not None or _reduce(conv) not in ("mean", "add", "sum"):
        raise NotCovered("it has block-diagonal weights, or another aggregation than mean and sum")


def _reduce(conv: Any) -> str:
    """Return how neighbours are reduced: by its aggregation, but for the class whose code reads a name."""
    from torch_geometric.nn import FastRGCNConv

    return str(conv.aggr) if isinstance(conv, FastRGCNConv) else reduce_of(conv)


def rgcn(conv: Any, x: Any, edge_index: Tensor, edge_type: Tensor | None = None) -> Tensor:
    """RGCNConv and FastRGCNConv, with or without bases; node numbers for features are one-hot rows."""
    if edge_type is None:
        raise NotCovered("there is no edge_type")
    src = x[0] if isinstance(x, tuple | list) else x
    src = torch.arange(conv.in_channels_l, device=edge_index.device) if src is None else src
    dst = x[1] if isinstance(x, tuple | list) else src
    out = _neighbours(conv, src, dst.shape[0], edge_index, edge_type)
    if conv.root is not None:
        out = out + (conv.root[dst] if not dst.is_floating_point() else linear(features(dst), conv.root.t()))
    return out if conv.bias is None else out + conv.bias


def _neighbours(conv: Any, src: Tensor, num_dst: int, edge_index: Tensor, edge_type: Tensor) -> Tensor:
    edges = typed_adjacency(edge_index, edge_type, src.shape[0], num_dst)
    block = edges.typed_block(conv.num_relations)
    pairs = block.by_relation()
    weights = conv.weight
    if conv.num_bases is not None:
        weights = (conv.comp @ weights.flatten(1)).view(-1, *weights.shape[1:])
    rows = features(src) if src.is_floating_point() else _one_hot(src, weights.shape[1], weights.dtype)
    if isinstance(rows, SparseFeatures):
        each = stacked_rows(pairs, rows).matmul(weights.reshape(-1, weights.shape[2]))
    else:
        each = kernels.segment_matmul(rows, pairs.offsets, weights, pairs.rows)
    weight = relation_mean(block, each.dtype) if _reduce(conv) == "mean" else None
    return pairs.aggregate(each, "sum", weight=weight)


def _one_hot(numbers: Tensor, width: int, dtype: torch.dtype) -> SparseFeatures:
    count, device = numbers.numel(), numbers.device
    indptr, ones = torch.arange(count + 1, device=device), torch.ones(count, dtype=dtype, device=device)
    return SparseFeatures(indptr, numbers.int(), ones, (count, width))
