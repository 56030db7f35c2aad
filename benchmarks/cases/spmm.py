"""Sum aggregation, forward and forward with backward, against torch's CSR product (MKL) and PyG."""

from typing import Any

import torch
import torch_geometric
from torch import Tensor

from benchmarks.graphs import rmat
from benchmarks.measure import Case, Step, agree, with_gradients
from weft import kernels


def _data(width: int) -> dict[str, Any]:
    graph = rmat()
    x = torch.randn(graph.num_nodes, width, generator=torch.Generator().manual_seed(0))
    # Each side gets its own form of the graph, ready before the clock starts: for us, both CSRs.
    adjacency = torch.sparse_csr_tensor(
        graph.indptr, graph.indices.long(), torch.ones(graph.num_edges), (graph.num_nodes, graph.num_nodes)
    )
    return {"graph": graph, "x": x, "adjacency": adjacency, "transposed": graph.transposed}


def _ours(data: dict[str, Any]) -> Step:
    graph = data["graph"]
    return lambda: kernels.spmm(graph.indptr, graph.indices, data["x"])


def _mkl(data: dict[str, Any]) -> Step:
    return lambda: data["adjacency"] @ data["x"]


def _forward(width: int) -> Case:
    return Case(
        name=f"spmm_forward_{width}",
        title=f"spmm sum, forward, F = {width}, R-MAT 2^18 nodes, 8 M edges",
        setup=lambda: _data(width),
        contenders={"weft": _ours, "torch CSR @ dense (MKL)": _mkl},
        check=agree,
        must=1.8,
        goal=2.5,
        repeat=15,
    )


def _ours_training(data: dict[str, Any]) -> Step:
    graph, x = data["graph"], data["x"].clone().requires_grad_()

    def forward() -> Tensor:
        return kernels.spmm(graph.indptr, graph.indices, x, reduce="mean", transposed=data["transposed"])

    return with_gradients(forward, [x], torch.ones_like(x))


def _mkl_training(data: dict[str, Any]) -> Step:
    x = data["x"].clone().requires_grad_()
    graph = data["graph"]
    degree = graph.in_degree().clamp(min=1)
    mean = torch.sparse_csr_tensor(
        graph.indptr,
        graph.indices.long(),
        (1.0 / degree).repeat_interleave(graph.indptr.diff()),
        (graph.num_nodes, graph.num_nodes),
    )
    return with_gradients(lambda: mean @ x, [x], torch.ones_like(x))


def _pyg_training(data: dict[str, Any]) -> Step:
    # SAGEConv without its two linear maps would not be SAGEConv; the aggregation alone is the fairer rival.
    x = data["x"].clone().requires_grad_()
    aggregate = torch_geometric.nn.SimpleConv(aggr="mean")
    edge_index = data["graph"].edge_index
    return with_gradients(lambda: aggregate(x, edge_index), [x], torch.ones_like(x))


CASES = [
    _forward(32),
    _forward(128),
    _forward(256),
    Case(
        name="spmm_training",
        title="mean aggregation, forward + backward, F = 128, R-MAT 2^18 nodes, 8 M edges",
        setup=lambda: _data(128),
        contenders={
            "weft": _ours_training,
            "torch CSR autograd": _mkl_training,
            "PyG mean aggregation": _pyg_training,
        },
        check=agree,
        must=2.0,
        goal=3.0,
        repeat=5,
    ),
]
