"""What of a graph lies on a GPU while batches of it are trained on there.

Features lie there where they fit into half of what is free, else in pinned memory of the host with a cache of
the rows read most often; those of several node types and sparse ones stay on the host where they do not fit,
and each batch brings its own. Edges lie there where the sampler can draw on the GPU and they fit, else
batches are drawn by threads of the host and copied.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.graph.source import RowSource
from weft.samplers.base import Batch, Sampler
from weft.samplers.gpu.transfer import Courier
from weft.stores.base import Store
from weft.stores.cached import CachedStore, free_bytes
from weft.stores.memory import MemoryStore
from weft.stores.rankers import out_degree
from weft.strategies.call import SameBlock, called, hops_of
from weft.strategies.offload.offload import Offload, obstacle_of

Where = Literal["auto", "cpu", "gpu"]
SHARE = 0.5
"""Of the GPU's free memory, what features may take, and again edges."""
MOST = 0.9
"""Of the GPU's free memory, what an exact pass over the whole graph may take."""


def with_near_data(graph: Graph, device: torch.device) -> Graph | None:
    """Return the graph with its node data on a GPU or in its reach; None: each batch is to bring its own.

    That is where a file or a rank has them, or they are too large and no matrix that a GPU reads itself.
    """
    features = [data["x"] for data in graph.node_data.values() if "x" in data]
    if any(isinstance(x, Store) and device.type not in x.devices for x in features):
        return None
    room = SHARE * free_bytes(device)
    fits = sum(_bytes(x) for x in features) <= room
    matrix = len(graph.node_types) == 1 and isinstance(graph.x, Tensor | CachedStore)
    if not fits and not matrix:
        return None
    data = {
        kind: {name: _near(graph, name, value, device, fits) for name, value in values.items()}
        for kind, values in graph.node_data.items()
    }
    return Graph(replace(graph.parts(), node_data=data))


def with_near_edges(graph: Graph, device: torch.device) -> Graph | None:
    """Return the graph with its edges on a GPU; None where they, and features not yet there, do not fit."""
    size = graph.indptr.nbytes + 2 * graph.indices.nbytes + 4 * graph.num_nodes
    features = [data["x"] for data in graph.node_data.values() if "x" in data]
    size += sum(_bytes(x) for x in features if x.device.type == "cpu")
    return None if size > SHARE * free_bytes(device) else graph.to(device=device)


def _near(graph: Graph, name: str, value: Any, device: torch.device, fits: bool) -> Any:
    if isinstance(value, CachedStore):
        return value.on(device)
    if name != "x" or fits:
        return value.to(device)
    room = int(SHARE * free_bytes(device)) // max(value[:1].nbytes, 1)
    return CachedStore(MemoryStore(value), out_degree(graph), capacity=room).on(device)


def _bytes(x: Any) -> int:
    if isinstance(x, Mapping | RowSource):
        return 0
    values = x if isinstance(x, Tensor) else x.values
    return int(values.numel() * values.element_size())


class Nearby:
    """A graph on the host as batches of it are drawn and read on a GPU."""

    def __init__(self, graph: Graph, device: torch.device) -> None:
        self.graph, self.device = graph, device
        self.data = with_near_data(graph, device)
        self.courier = Courier(device, graph, self.data)
        self._whole: Graph | None = None
        self._exact: Offload | None = None

    def sampler(self, make: Callable[[Graph], Sampler], where: Where) -> Sampler:
        """Return the sampler that `make` makes of the graph, on the GPU where that can be and is wanted."""
        drawn = make(self.graph)
        reason = self._obstacle(drawn)
        if where == "cpu" or (where == "auto" and reason):
            return drawn
        if reason:
            raise RecipeError(f"strategy.sample_on: {reason}; use 'auto' or 'cpu'")
        assert self._whole is not None, "there is no obstacle"
        return make(self._whole)

    def brought(self, batch: Batch) -> Batch:
        """Return a batch on the GPU, itself if it is there."""
        return self.courier.carry(batch) if batch.nodes.is_cpu else batch

    def outputs(self, model: nn.Module, clock: Tensor, autocast: torch.dtype | None) -> Tensor:
        """Return the exact outputs for every node, in the host's memory."""
        if obstacle_of(model):
            return self._at_once(model, clock, autocast)
        if self._exact is None:
            memory = int(MOST * free_bytes(self.device))
            self._exact = Offload(self.graph, self.device, memory=memory, clock=clock, autocast=autocast)
        return self._exact(model)

    def _at_once(self, model: nn.Module, clock: Tensor, autocast: torch.dtype | None) -> Tensor:
        """Return the outputs of a pass over the graph on the GPU, which no chunks of it can be run for."""
        whole = self._near_whole()
        if whole is None or isinstance(whole.x, RowSource):
            whole = self.graph.to(device=self.device)  # for this pass: batches need the memory
        block = whole.block(clock)
        try:
            with torch.autocast(self.device.type, dtype=autocast, enabled=autocast is not None):
                out: Tensor = model(called(model, SameBlock(block, hops_of(model))), whole.x)
        finally:
            block.clock = None  # the graph outlives this pass
        return out.cpu()

    def _near_whole(self) -> Graph | None:
        """Return the graph on the GPU, as batches are drawn from it there; None where it does not fit."""
        if self._whole is None:
            self._whole = with_near_edges(self.graph if self.data is None else self.data, self.device)
        return self._whole

    def _obstacle(self, drawn: Sampler) -> str:
        reason = drawn.gpu_obstacle()
        return reason or (
            "" if self._near_whole() is not None else "the graph does not fit into the GPU's memory"
        )
