"""How much memory of a GPU the ways of training would take, told before a run rather than by its end."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures
from weft.layers.base import Layer
from weft.layers.stack import Stack
from weft.stores.cached import free_bytes
from weft.strategies.chunks import shown
from weft.train.model import build_model

_KEPT = 3
"""Matrices of the size of a layer's output that a step holds, at least: rows, gradients, what made them."""


def whole_bytes(graph: Graph, model: nn.Module) -> int:
    """Return what a step over the whole graph takes at least: edges both ways, features, rows of layers."""
    edges = 2 * graph.indptr.nbytes + graph.num_edges * (graph.indices.element_size() + 8)
    widths = [int(module.out_width) for module in model.modules() if isinstance(module, Layer)]
    size = next((each.element_size() for each in model.parameters()), 4)
    return edges + feature_bytes(graph) + graph.num_nodes * size * _KEPT * sum(widths)


def feature_bytes(graph: Graph) -> int:
    """Return the bytes of the features that lie in memory."""
    held = [data["x"] for data in graph.node_data.values() if "x" in data]
    dense = sum(x.nbytes for x in held if isinstance(x, Tensor))
    return dense + sum(8 * x.nnz for x in held if isinstance(x, SparseFeatures))


def needs(graph: Graph, model: nn.Module) -> dict[str, int]:
    """Return the bytes of a GPU that each way of training takes, about and at least."""
    degree = int(graph.indptr.diff().max()) if graph.num_nodes else 0
    widest = max([int(module.out_width) for module in model.modules() if isinstance(module, Layer)] or [1])
    return {
        "single": whole_bytes(graph, model),
        "single with activation = 'offload'": 4 * 8 * widest * (degree + 1) * 3,
        "sampled": 4 * widest * 1024 * 64,
    }


def check_memory(
    graph: Graph, model: nn.Module | str, options: Mapping[str, Any], device: torch.device
) -> None:
    """Refuse a step over the whole graph that cannot fit on a GPU, and name what would."""
    if device.type != "cuda":
        return
    built = build_model(graph, model, options) if isinstance(model, str) else model
    if not isinstance(built, Stack):
        return
    found, free = needs(graph, built), free_bytes(device)
    if found["single"] > free:
        raise RecipeError(too_little(found, free))


def too_little(found: Mapping[str, int], free: int) -> str:
    """Return the line that says what each way of training takes."""
    others = ", ".join(f"{name} about {shown(size)}" for name, size in found.items() if name != "single")
    return (
        f"train.device: a step over the whole graph takes at least {shown(found['single'])} of GPU memory, "
        f"{shown(free)} are free; {others}, or use 'cpu'"
    )


def out_of_memory(graph: Any, model: nn.Module, device: torch.device) -> str:
    """Return what to say of a run that found no memory on the GPU."""
    if not isinstance(graph, Graph):
        return "the GPU has no memory left; use more parts, strategy.activation = 'offload', or 'cpu'"
    return f"the GPU has no memory left. {too_little(needs(graph, model), free_bytes(device))}"
