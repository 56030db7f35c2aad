"""Forwards of PyG's attention convolutions on the fused kernel. `conv` is the PyG module itself."""

import math
from typing import Any

import torch
from torch import Tensor

from weft import kernels
from weft.interop.pyg.accelerate.adjacency import Adjacency, adjacency, plain
from weft.interop.pyg.accelerate.inputs import linear, sparse_of
from weft.interop.pyg.accelerate.swap import NotCovered
from weft.layers.base import linear as sparse_linear
from weft.layers.gat import head_columns

Pair = tuple[Tensor, Tensor | None]


def check(conv: Any) -> None:
    """Refuse a convolution that no call of it would be covered of."""
    if type(conv.aggr_module).__name__ != "SumAggregation":
        raise NotCovered(f"its aggregation is {type(conv.aggr_module).__name__}, not sum")


def check_gat(conv: Any) -> None:
    """Refuse the same of GATConv, and maps with more than the matrix that scores are made with."""
    check(conv)
    for name in ("lin", "lin_src", "lin_dst", "lin_edge"):
        if getattr(getattr(conv, name), "bias", None) is not None:
            raise NotCovered(f"its {name} has a bias")


def check_transformer(conv: Any) -> None:
    """Refuse the same of TransformerConv, and one that reads edges."""
    check(conv)
    if conv.lin_edge is not None:
        raise NotCovered("it reads features of edges")


def gat(
    conv: Any,
    x: Tensor | Pair,
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    size: Any = None,
    return_attention_weights: Any = None,
) -> Tensor:
    """GATConv."""
    src, dst, edges, attr = _opened(conv, x, edge_index, edge_attr, return_attention_weights, size)
    value, score_src, score_dst = _gat_scores(conv, src, dst)
    edge = None
    if attr is not None and conv.lin_edge is not None:
        # (W e)·a = e·(Wᵀ a): the transformed edge features are never formed.
        edge = attr @ (head_columns(conv.att_edge).t() @ conv.lin_edge.weight).t()
    out = kernels.attention(
        edges.indptr,
        edges.indices,
        score_src,
        score_dst,
        value,
        conv.negative_slope,
        edge=edge,
        **_options(conv, edges),
    )
    return _finish(conv, out, dst)


def gatv2(
    conv: Any,
    x: Tensor | Pair,
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    return_attention_weights: Any = None,
) -> Tensor:
    """GATv2Conv."""
    src, dst, edges, attr = _opened(conv, x, edge_index, edge_attr, return_attention_weights)
    shape = (-1, conv.heads, conv.out_channels)
    left = linear(conv.lin_l, src).view(shape)
    right = left if conv.share_weights and dst is src else linear(conv.lin_r, dst).view(shape)
    if attr is not None and conv.lin_edge is None:
        raise NotCovered("edge_attr is given but the layer was built without edge_dim")
    edge = None if attr is None else conv.lin_edge(attr).view(shape)
    out = kernels.attention_gatv2(
        edges.indptr,
        edges.indices,
        left,
        right,
        conv.att[0],
        left,
        conv.negative_slope,
        edge=edge,
        **_options(conv, edges),
    )
    return _finish(conv, out, dst)


def transformer(
    conv: Any,
    x: Tensor | Pair,
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    return_attention_weights: Any = None,
) -> Tensor:
    """TransformerConv without edge features."""
    if isinstance(return_attention_weights, bool) or edge_attr is not None:
        raise NotCovered("attention weights are asked for, or edges have features")
    src, dst = _ends(x)
    shape = (-1, conv.heads, conv.out_channels)
    edges = adjacency(edge_index, src.shape[0], dst.shape[0])
    key, query, value = (linear(lin, rows).view(shape) for lin, rows in _projections(conv, src, dst))
    scale = 1.0 / math.sqrt(conv.out_channels)
    out = kernels.attention_dot(
        edges.indptr, edges.indices, key, query, value, scale, **_options(conv, edges)
    )
    joined = out.flatten(1) if conv.concat else out.mean(dim=1)
    if not conv.root_weight:
        return joined
    own = linear(conv.lin_skip, dst)
    if conv.lin_beta is None:
        return joined + own
    beta = conv.lin_beta(torch.cat([joined, own, joined - own], dim=-1)).sigmoid()
    return beta * own + (1 - beta) * joined  # type: ignore[no-any-return]


def _projections(conv: Any, src: Tensor, dst: Tensor) -> list[tuple[Any, Tensor]]:
    return [(conv.lin_key, src), (conv.lin_query, dst), (conv.lin_value, src)]


def _gat_scores(conv: Any, src: Tensor, dst: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return value [num_src, H, D], score_src [num_src, H] and score_dst [num_dst, H]."""
    shape = (-1, conv.heads, conv.out_channels)
    lin_src, lin_dst = (conv.lin, conv.lin) if conv.lin is not None else (conv.lin_src, conv.lin_dst)
    value = linear(lin_src, src)
    if lin_src is lin_dst and src is dst:
        both = torch.cat([head_columns(conv.att_src), head_columns(conv.att_dst)], dim=1)
        score_src, score_dst = _score(lin_src, src, value, both).chunk(2, dim=1)
        return value.view(shape), score_src, score_dst
    score_src = _score(lin_src, src, value, head_columns(conv.att_src))
    other = linear(lin_dst, dst) if lin_dst.weight.shape[1] > lin_dst.weight.shape[0] else None
    return value.view(shape), score_src, _score(lin_dst, dst, other, head_columns(conv.att_dst))


def _score(lin: Any, x: Tensor, value: Tensor | None, columns: Tensor) -> Tensor:
    """Return lin(x) @ columns, from x itself where that is the cheaper side."""
    sparse = sparse_of(x)
    if sparse is not None:
        return sparse_linear(sparse, columns.t() @ lin.weight)
    return x @ (columns.t() @ lin.weight).t() if value is None else value @ columns


def _ends(x: Tensor | Pair, size: Any = None) -> tuple[Tensor, Tensor]:
    src, dst = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
    if dst is None or src.dim() != 2:
        raise NotCovered("there are no destination rows")
    if size is not None and tuple(size) != (src.shape[0], dst.shape[0]):
        raise NotCovered(f"size {tuple(size)} is not that of x")
    return src, dst


def _opened(
    conv: Any,
    x: Tensor | Pair,
    edge_index: Tensor,
    edge_attr: Tensor | None,
    return_attention_weights: Any,
    size: Any = None,
) -> tuple[Tensor, Tensor, Adjacency, Tensor | None]:
    """Return source rows, destination rows, edges and their features, or refuse what is not covered."""
    if return_attention_weights:
        raise NotCovered("attention weights are asked for")
    src, dst = _ends(x, size)
    return src, dst, *_edges(conv, edge_index, edge_attr, src.shape[0], dst.shape[0])


def _edges(
    conv: Any, edge_index: Tensor, edge_attr: Tensor | None, num_src: int, num_dst: int
) -> tuple[Adjacency, Tensor | None]:
    """Return the CSR with the self loops the layer adds, and the edge features in its order."""
    edges = adjacency(edge_index, num_src, num_dst, loops="replaced" if conv.add_self_loops else "as given")
    if edge_attr is None:
        return edges, None
    attr = edge_attr[:, None] if edge_attr.dim() == 1 else edge_attr
    if conv.add_self_loops:
        attr = _looped(conv, edge_index, attr, min(num_src, num_dst))
    return edges, edges.ordered(attr)


def _looped(conv: Any, edge_index: Tensor, attr: Tensor, num_nodes: int) -> Tensor:
    """Return the edge features with those of the added self loops, as PyG fills them."""
    from torch_geometric import utils

    kept, attr = utils.remove_self_loops(plain(edge_index), attr)
    _, attr = utils.add_self_loops(kept, attr, fill_value=conv.fill_value, num_nodes=num_nodes)
    return attr


def _options(conv: Any, edges: Adjacency) -> dict[str, Any]:
    dropout = conv.dropout if conv.training else 0.0
    return {
        "dropout": dropout,
        "clock": torch.randint(0, 2**62, (3,)) if dropout > 0 else None,
        "transposed": edges.transposed if torch.is_grad_enabled() else None,
    }


def _finish(conv: Any, out: Tensor, dst: Tensor) -> Tensor:
    joined = out.flatten(1) if conv.concat else out.mean(dim=1)
    if conv.res is not None:
        joined = joined + linear(conv.res, dst)
    return joined if conv.bias is None else joined + conv.bias
