"""Tensors without values in the place of features and weights; indices, labels and masks stay as they are."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from weft.graph.graph import Graph
from weft.graph.parts.shard import Shard
from weft.graph.sparse import SparseFeatures


def fake_mode() -> FakeTensorMode:
    """Return what makes tensors without values, which go together with real ones."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def without_values(value: Any, mode: FakeTensorMode) -> Any:
    """Return features, dense or sparse, with shapes and no values; anything else as it is."""
    if isinstance(value, SparseFeatures):
        return value.with_values(mode.from_tensor(value.values.detach()))
    if isinstance(value, FakeTensor) or not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    return mode.from_tensor(value.detach())


def empty_features(data: Mapping[str, dict[str, Any]], mode: FakeTensorMode) -> dict[str, dict[str, Any]]:
    """Return the data of nodes with features that have no values."""
    return {
        kind: {name: without_values(value, mode) if name == "x" else value for name, value in held.items()}
        for kind, held in data.items()
    }


def empty_shard(shard: Shard, mode: FakeTensorMode) -> Shard:
    """Return what a rank holds, with features that have no values."""
    return replace(shard, node_data=empty_features(shard.node_data, mode))


def empty_graph(graph: Graph, mode: FakeTensorMode) -> Graph:
    """Return a graph with features that have no values."""
    return Graph(replace(graph.parts(), node_data=empty_features(graph.node_data, mode)))


def empty_weights(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Put weights without values in the place of a model's; those that are shared stay so."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, held in module._parameters.items():
            if held is not None:
                if id(held) not in made:
                    made[id(held)] = nn.Parameter(
                        mode.from_tensor(held.detach()), requires_grad=held.requires_grad
                    )
                module._parameters[name] = made[id(held)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = without_values(buffer, mode)
    return model
