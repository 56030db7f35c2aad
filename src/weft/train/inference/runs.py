"""How inference runs a model on some nodes: on a device, over all their edges or a sample of them.

The graph and the rows between layers stay on the host; a piece goes to the device and its rows come back.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.graph import Graph
from weft.graph.source import RowSource
from weft.samplers.base import Batch
from weft.samplers.gpu.transfer import DeviceDegrees, Mover
from weft.samplers.loader import Loader
from weft.samplers.neighbor import NeighborSampler
from weft.stores.base import Store
from weft.stores.memory import MemoryStore
from weft.strategies.placement import Nearby
from weft.tasks.base import finished
from weft.train.inference.stages import Chain, Stage
from weft.train.settings import choose_device


class Runner:
    """Runs stages on a device: on the nodes of a batch, or on all of them at once."""

    def __init__(self, graph: Graph, device: torch.device) -> None:
        self.graph, self.device = graph, device
        self._degrees = DeviceDegrees(graph, device)
        self._whole: Graph | None = None

    def piece(self, stage: Stage, batch: Batch, before: Store | None) -> Tensor:
        """Return what a stage gives for the seeds of a batch, on the host."""
        inputs = batch.x if before is None else before.gather(batch.nodes)
        if self.device.type == "cpu":
            return stage.run(batch.blocks, inputs)
        move = Mover(self.device, self._degrees)
        return stage.run(move(batch.blocks), move(inputs)).cpu()

    def whole(self, stage: Stage, before: Store | None) -> Tensor:
        """Return what a stage gives for all nodes, on the host; no row is copied first."""
        # A graph of its own, whose block may remember what the caller's must not.
        parts = self.graph.parts()
        if self.device.type == "cpu":
            graph = Graph(parts)
            inputs = _in_memory(graph.x if before is None else before)
            return stage.run([graph.block()] * stage.hops, inputs)
        if self._whole is None:
            bare: dict[str, dict[str, Any]] = {kind: {} for kind in parts.node_types}
            self._whole = Graph(replace(parts, node_data=bare)).to(device=self.device)
        inputs = Mover(self.device, self._degrees)(_in_memory(self.graph.x if before is None else before))
        return stage.run([self._whole.block()] * stage.hops, inputs).cpu()

    @property
    def room(self) -> int:
        """The bytes that the edges of the whole graph take beside rows: on the host they are there."""
        return (
            0 if self.device.type == "cpu" else 2 * (self.graph.indptr.nbytes + 2 * self.graph.indices.nbytes)
        )


def _in_memory(x: Any) -> Any:
    if isinstance(x, dict):
        return {kind: _in_memory(rows) for kind, rows in x.items()}
    if isinstance(x, MemoryStore) and x.storage is None and x.values.dtype == x.dtype:
        return x.values  # as they lie there: nobody writes to them
    return x[:] if isinstance(x, RowSource) else x


@contextmanager
def placed(model: nn.Module, device: torch.device | str | None) -> Iterator[torch.device]:
    """Give the device that a model is run on, which is by default its own, and have it there for a while."""
    homes = {parameter.device for parameter in model.parameters()}
    if len(homes) > 1:
        raise InputError(f"the model lies on {', '.join(sorted(map(str, homes)))}; move it to one device")
    home = next(iter(homes), torch.device("cpu"))
    wanted = home if device is None else choose_device(str(device))
    model.to(wanted)
    try:
        yield wanted
    finally:
        model.to(home)


@dataclass(frozen=True, eq=False)
class SampledOutputs:
    """What was computed for some nodes from samples, on the host."""

    nodes: Tensor
    output: Tensor
    embedding: Tensor | None
    evaluations: int
    """Rows of layers that were computed for it."""


@dataclass(frozen=True)
class Draw:
    """How neighbourhoods are drawn for inference."""

    fanout: Any
    seed: int = 0
    batch_size: int = 1024
    threads: int = 2


def from_samples(
    model: nn.Module, chain: Chain | None, graph: Graph, wanted: Tensor, draw: Draw, device: torch.device
) -> Iterator[SampledOutputs]:
    """Give the outputs of nodes in their order, some at a time and at least once; embeddings with a chain."""

    def make(graph: Graph) -> NeighborSampler:
        return NeighborSampler(graph, draw.fanout, seed=draw.seed)

    near = Nearby(graph, device) if device.type == "cuda" else None
    sampler = make(graph) if near is None else near.sampler(make, "auto")
    courier = None if near is None else near.courier
    options: dict[str, Any] = {"batch_size": draw.batch_size, "shuffle": False, "threads": draw.threads}
    loader = Loader(sampler, wanted, **options, courier=courier)
    batches: Iterator[Batch] = iter(loader) if len(loader) else iter([make(graph).sample(wanted).fetch()])
    for batch in batches:
        batch = batch if near is None else near.brought(batch)
        evaluations = sum(block.num_dst for block in batch.blocks)
        if chain is None:
            output = finished(model, model(batch.blocks, batch.x))
            yield SampledOutputs(batch.seeds.cpu(), output.cpu(), None, evaluations)
            continue
        rows = _rows(chain, batch)
        embedding = None if chain.embed is None else chain.embed(rows).cpu()
        yield SampledOutputs(batch.seeds.cpu(), chain.finish(rows).cpu(), embedding, evaluations)


def _rows(chain: Chain, batch: Batch) -> Sequence[Tensor]:
    """Return the rows of the seeds after each stage."""
    h, hop, rows = batch.x, 0, []
    for stage in chain.stages:
        h = stage.run(batch.blocks[hop : hop + stage.hops], h)
        hop += stage.hops
        rows.append(h[: batch.seeds.numel()])
    return rows
