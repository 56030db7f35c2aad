"""A graph in numbers: what reports show and `graph.summary()` returns."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from weft.graph.row_ranges import some_edges
from weft.graph.sparse import SparseFeatures

if TYPE_CHECKING:
    from weft.graph.graph import Graph


def summarise(graph: "Graph") -> dict[str, Any]:
    """Return counts, data and degree statistics as plain numbers."""
    in_degree, out_degree = graph.in_degree(), graph.out_degree()
    offsets = graph.node_offsets
    masks = {name: getattr(graph, f"{name}_mask") for name in ("train", "val", "test")}
    return {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "node_types": {kind: b - a for kind, a, b in zip(graph.node_types, offsets, offsets[1:])},
        "edge_types": _edge_type_counts(graph),
        "features": {kind: _features(data["x"]) for kind, data in graph.node_data.items() if "x" in data},
        "edge_data": {name: list(value.shape[1:]) for name, value in graph.edge_data.items()},
        **graph.target_counts._asdict(),
        "class_counts": _class_counts(graph),
        "split": {name: int(mask.sum()) for name, mask in masks.items() if mask is not None},
        "isolated_nodes": int(((in_degree == 0) & (out_degree == 0)).sum()),
        "self_loops": sum(int((src == dst).sum()) for src, dst in some_edges(graph.indptr, graph.indices)),
        "both_ways": both_ways(graph),
        "in_degree": _degree_statistics(in_degree),
        "out_degree": _degree_statistics(out_degree),
    }


def both_ways(graph: "Graph") -> bool:
    """Return whether every edge of a graph of one kind has its reverse, as about a thousand of them tell."""
    if len(graph.node_types) > 1 or graph.edge_type is not None:
        return False
    indptr, indices = graph.indptr.cpu().numpy(), graph.indices.cpu().numpy()
    for edge in range(0, len(indices), max(1, len(indices) // 1024)):
        src, dst = indices[edge], np.searchsorted(indptr, edge, side="right") - 1
        row = indices[indptr[src] : indptr[src + 1]]  # ascending, as edges are in canonical order
        place = np.searchsorted(row, dst)
        if place == len(row) or row[place] != dst:
            return False
    return True


def _features(x: Any) -> dict[str, Any]:
    sparse = isinstance(x, SparseFeatures)
    nnz = x.nnz if sparse else x.numel()
    return {
        "columns": x.shape[1],
        "sparse": sparse,
        "stored_values": nnz,
        "dtype": str(x.dtype).split(".")[-1],
    }


def _class_counts(graph: "Graph") -> list[int]:
    """Return the nodes of each class; unlabelled nodes count in none, those with several labels in each."""
    if graph.y is None or graph.has_values:
        return []
    if graph.multilabel:
        return [int(count) for count in graph.y.long().sum(dim=0)]
    y = graph.y.flatten().long()
    return [int(count) for count in torch.bincount(y[y >= 0], minlength=graph.num_classes)]


def _edge_type_counts(graph: "Graph") -> dict[str, int]:
    names = ["/".join(kind) for kind in graph.edge_types]
    if graph.edge_type is None:
        return {names[0]: graph.num_edges}
    return dict(zip(names, torch.bincount(graph.edge_type, minlength=len(names)).tolist()))


def _degree_statistics(degree: Tensor) -> dict[str, Any]:
    ordered = degree.sort().values
    last = len(ordered) - 1

    def quantile(part: float) -> int:
        return int(ordered[round(part * last)])

    return {
        "mean": round(float(degree.double().mean()), 3),
        "median": quantile(0.5),
        "p90": quantile(0.9),
        "p99": quantile(0.99),
        "max": int(ordered[-1]),
        "zero": int((degree == 0).sum()),
        "histogram": _histogram(degree),
    }


def _histogram(degree: Tensor) -> list[list[int]]:
    """Return [lowest degree, nodes] of each bin: 0, then powers of two, as degrees span magnitudes."""
    exponent = torch.where(degree > 0, torch.log2(degree.clamp(min=1).double()).floor().long() + 1, 0)
    counts = torch.bincount(exponent).tolist()
    return [[0 if index == 0 else 2 ** (index - 1), count] for index, count in enumerate(counts)]
