"""Forwards of PyG's summing, averaging and max-pooling convolutions; `conv` is the PyG module itself."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.interop.pyg.accelerate.adjacency import Adjacency, Kept, adjacency
from weft.interop.pyg.accelerate.inputs import linear, sparse_of
from weft.interop.pyg.accelerate.swap import NotCovered

Pair = tuple[Tensor, Tensor | None]


def check(conv: Any) -> None:
    """Refuse a convolution that no call of it would be covered of: with another aggregation than ours."""
    reduce_of(conv)


def check_sum(conv: Any) -> None:
    """Refuse one that has to sum, and does something else."""
    if (kind := reduce_of(conv)) != "sum":
        raise NotCovered(f"its aggregation is {kind}, not sum")


def check_gcn(conv: Any) -> None:
    """Refuse the same of GCNConv, and a map that adds something before the sum."""
    check_sum(conv)
    if conv.lin.bias is not None:
        raise NotCovered("its lin has a bias")


def gcn(conv: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """GCNConv."""
    if isinstance(x, tuple | list):
        raise NotCovered("x is a tuple")
    edges, weight, scales = _normalised(conv, x, edge_index, edge_weight, conv.improved)
    if _narrows(conv.lin) or sparse_of(x) is not None:
        out = edges.spmm(linear(conv.lin, x), weight, **scales)
    else:
        out = conv.lin(edges.spmm(x, weight, **scales))
    return out if conv.bias is None else out + conv.bias


def sage(conv: Any, x: Tensor | Pair, edge_index: Tensor, size: Any = None) -> Tensor:
    """SAGEConv with mean, max or sum."""
    reduce = reduce_of(conv)
    src, dst = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
    edges = adjacency(edge_index, *_sizes(src, dst, size))
    if conv.project and hasattr(conv, "lin"):
        src = conv.lin(src).relu()
    out = _aggregate_then(edges, conv.lin_l, src, reduce)
    if conv.root_weight and dst is not None:
        out = out + linear(conv.lin_r, dst)
    return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def graph(
    conv: Any, x: Tensor | Pair, edge_index: Tensor, edge_weight: Tensor | None = None, size: Any = None
) -> Tensor:
    """GraphConv with sum, mean or max."""
    reduce = reduce_of(conv)
    src, dst = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
    edges = adjacency(edge_index, *_sizes(src, dst, size))
    if edge_weight is not None and (reduce == "max" or edge_weight.dim() != 1):
        raise NotCovered("edge weights with max, or of several columns")
    weight = None if edge_weight is None else edges.ordered(edge_weight)
    out = _aggregate_then(edges, conv.lin_rel, src, reduce, weight)
    return out if dst is None else out + linear(conv.lin_root, dst)


def gin(conv: Any, x: Tensor | Pair, edge_index: Tensor, size: Any = None) -> Tensor:
    """GINConv; its network is called as it is."""
    reduce = reduce_of(conv)
    src, dst = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
    out = adjacency(edge_index, *_sizes(src, dst, size)).spmm(src, None, reduce)
    if dst is not None:
        out = torch.addcmul(out, dst, 1 + conv.eps)
    return conv.nn(out)  # type: ignore[no-any-return]


def sgc(conv: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """SGConv."""
    if conv._cached_x is not None:
        return conv.lin(conv._cached_x.detach())  # type: ignore[no-any-return]
    edges, weight, scales = _normalised(conv, x, edge_index, edge_weight)
    if not conv.cached and _narrows(conv.lin):
        h = _without_bias(conv.lin, x)
        for _ in range(conv.K):
            h = edges.spmm(h, weight, **scales)
        return h if conv.lin.bias is None else h + conv.lin.bias
    for _ in range(conv.K):
        x = edges.spmm(x, weight, **scales)
    if conv.cached:
        conv._cached_x = x
    return conv.lin(x)  # type: ignore[no-any-return]


def appnp(conv: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """APPNP."""
    if conv.dropout > 0 and conv.training:
        raise NotCovered("dropout of edge weights is on")
    edges, weight, scales = _normalised(conv, x, edge_index, edge_weight)
    h = x
    for _ in range(conv.K):
        x = torch.add(edges.spmm(x, weight, **scales) * (1 - conv.alpha), h, alpha=conv.alpha)
    return x


def _normalised(
    conv: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, improved: bool = False
) -> tuple[Adjacency, Tensor | None, dict[str, Any]]:
    """Return edges, their weights in CSR order and scales of D^-1/2 A D^-1/2 as PyG's gcn_norm has it."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    num_nodes = x.shape[0]
    if not getattr(conv, "normalize", True):
        edges = adjacency(edge_index, num_nodes, num_nodes)
        return edges, None if edge_weight is None else edges.ordered(edge_weight), {}
    cached = conv.cached and hasattr(conv, "_cached_edge_index")
    if edge_weight is None and not improved and not cached:
        edges = adjacency(
            edge_index, num_nodes, num_nodes, loops="completed" if conv.add_self_loops else "as given"
        )
        scale = edges.inverse_sqrt_degree(torch.float64 if x.dtype == torch.float64 else torch.float32)
        return edges, None, {"src_scale": scale, "dst_scale": scale}
    found = conv._cached_edge_index if cached else None
    if found is None:
        options = (num_nodes, improved, conv.add_self_loops, conv.flow, x.dtype)
        given = (edge_index,) if edge_weight is None else (edge_index, edge_weight)
        found = _norms.get(given, options, lambda: gcn_norm(edge_index, edge_weight, *options))
        if cached:
            conv._cached_edge_index = found
    edges = adjacency(found[0], num_nodes, num_nodes)
    return edges, edges.ordered(found[1]), {}


# Normalised edges and weights, kept while the given ones are unchanged constants.
_norms = Kept(4)


def _aggregate_then(
    edges: Adjacency, lin: Any, x: Tensor, reduce: str, weight: Tensor | None = None
) -> Tensor:
    """Return lin(aggregate(x)), transforming first where that is narrower and the reduction is linear."""
    if reduce == "max" or not (_narrows(lin) or sparse_of(x) is not None):
        return lin(edges.spmm(x, weight, reduce))  # type: ignore[no-any-return]
    out = edges.spmm(_without_bias(lin, x), weight, reduce)
    return out if lin.bias is None else out + lin.bias


def _without_bias(lin: Any, x: Tensor) -> Tensor:
    """Return x through the matrix of a linear map: its bias comes after the aggregation."""
    sparse = sparse_of(x)
    return F.linear(x, lin.weight) if sparse is None else sparse.matmul(lin.weight.t())


def _narrows(lin: Any) -> bool:
    return bool(lin.weight.shape[0] < lin.weight.shape[1])


def reduce_of(conv: Any) -> str:
    """Return the name of a convolution's aggregation, or refuse one that is not ours."""
    kinds = {"SumAggregation": "sum", "MeanAggregation": "mean", "MaxAggregation": "max"}
    kind = type(conv.aggr_module).__name__
    if kind not in kinds:
        raise NotCovered(f"aggregation is {kind}")
    return kinds[kind]


def _sizes(src: Tensor, dst: Tensor | None, size: Any) -> tuple[int, int]:
    """Return (num_src, num_dst), or refuse a call whose sizes PyG should judge."""
    given = (None, None) if size is None else tuple(size)
    num_dst = given[1] if dst is None else dst.shape[0]
    if num_dst is None:
        raise NotCovered("there are neither destination rows nor a size")
    if given[0] not in (None, src.shape[0]) or given[1] not in (None, num_dst):
        raise NotCovered(f"size {given} is not that of x")
    return src.shape[0], int(num_dst)
