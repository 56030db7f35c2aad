"""A GAT layer 128 to 8 × 16, forward and backward, time and peak memory, against PyG's GATConv."""

from typing import Any

import torch
import torch_geometric

import weft
from benchmarks.graphs import rmat
from benchmarks.measure import Case, Step, agree, with_gradients


def _data() -> dict[str, Any]:
    graph = rmat()
    torch.manual_seed(0)
    conv = torch_geometric.nn.GATConv(128, 16, heads=8, add_self_loops=False)
    block = graph.block()
    _ = graph.transposed
    return {"graph": graph, "block": block, "conv": conv, "x": torch.randn(graph.num_nodes, 128)}


def _ours(data: dict[str, Any]) -> Step:
    layer = weft.nn.GAT(128, 16, heads=8)
    layer.load_state_dict(data["conv"].state_dict())
    x = data["x"].clone().requires_grad_()
    leaves = [x, *dict(sorted(layer.named_parameters())).values()]
    return with_gradients(lambda: layer(data["block"], x), leaves, torch.ones_like(x))


def _pyg(data: dict[str, Any]) -> Step:
    conv, x, edge_index = data["conv"], data["x"].clone().requires_grad_(), data["graph"].edge_index
    leaves = [x, *dict(sorted(conv.named_parameters())).values()]
    return with_gradients(lambda: conv(x, edge_index), leaves, torch.ones_like(x))


CASES = [
    Case(
        name="gat_layer",
        title="GAT layer 128 to 8 x 16, forward + backward, R-MAT 2^18 nodes, 8 M edges",
        setup=_data,
        contenders={"weft": _ours, "PyG GATConv": _pyg},
        check=agree,
        must=15.0,
        goal=20.0,
        memory=True,
        memory_must=8.0,
        memory_goal=15.0,
        repeat=3,
    )
]
