"""A whole GraphSAGE layer, 128 to 128, forward and backward, against PyG's SAGEConv."""

from typing import Any

import torch
import torch_geometric

import weft
from benchmarks.graphs import rmat
from benchmarks.measure import Case, Step, agree, with_gradients


def _data() -> dict[str, Any]:
    graph = rmat()
    torch.manual_seed(0)
    conv = torch_geometric.nn.SAGEConv(128, 128)
    block = graph.block()
    _ = graph.transposed
    return {"graph": graph, "block": block, "conv": conv, "x": torch.randn(graph.num_nodes, 128)}


def _ours(data: dict[str, Any]) -> Step:
    layer = weft.nn.SAGE(128, 128)
    layer.load_state_dict(data["conv"].state_dict())
    x = data["x"].clone().requires_grad_()
    leaves = [x, *dict(sorted(layer.named_parameters())).values()]
    return with_gradients(lambda: layer(data["block"], x), leaves, torch.ones_like(x))


def _pyg(data: dict[str, Any]) -> Step:
    conv, x, edge_index = data["conv"], data["x"].clone().requires_grad_(), data["graph"].edge_index
    leaves = [x, *dict(sorted(conv.named_parameters())).values()]
    return with_gradients(lambda: conv(x, edge_index), leaves, torch.ones_like(x))


def _pyg_csr(data: dict[str, Any]) -> Step:
    graph, conv, x = data["graph"], data["conv"], data["x"].clone().requires_grad_()
    size = (graph.num_nodes, graph.num_nodes)
    adj_t = torch.sparse_csr_tensor(graph.indptr, graph.indices.long(), torch.ones(graph.num_edges), size)
    leaves = [x, *dict(sorted(conv.named_parameters())).values()]
    return with_gradients(lambda: conv(x, adj_t), leaves, torch.ones_like(x))


CASES = [
    Case(
        name="sage_layer",
        title="SAGE layer 128 to 128, forward + backward, R-MAT 2^18 nodes, 8 M edges",
        setup=_data,
        contenders={"weft": _ours, "PyG SAGEConv": _pyg, "PyG SAGEConv, torch CSR": _pyg_csr},
        check=agree,
        must=2.0,
        goal=3.0,
        memory=True,
        repeat=5,
    )
]
