"""VR-GCN: Chen, Zhu and Song, 2018. A few drawn neighbours correct what is remembered of all."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Unpack, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from weft.config import Range
from weft.errors import GraphError
from weft.graph.block import Block
from weft.graph.graph import Graph
from weft.layers.dropout import Dropout
from weft.samplers.base import Batch
from weft.samplers.loader import Loader
from weft.samplers.neighbor import NeighborSampler
from weft.samplers.partitioned import PartitionedBatch, PartitionedSampler
from weft.strategies.base import evaluating, strategies
from weft.strategies.batches import Batches, Shared
from weft.strategies.history_block import (
    AtOwners,
    HaloRecorder,
    Here,
    History,
    HistoryBlock,
    Recorder,
    Remembered,
    history_blocks,
    named,
    restore,
)
from weft.strategies.local import LocalGraph
from weft.strategies.sampled import checked_hops


@strategies.add("control_variate")
class ControlVariate(Batches):
    """Train on samples of a few neighbours whose inputs correct histories of all others (VR-GCN).

    A sum over neighbours is that of their histories, exactly, plus what the `fanout[i]` drawn ones have
    changed since, scaled up. Histories are rows of every node for each layer but the first, which reads
    features and is exact whatever its fanout (the last in the list); an exact pass fills them before the
    first step. With `safe`, dropout of whatever kind is kept out of them (the paper's CVD; two passes a step
    where a model drops, or has code of its own that may). Models sum or average neighbours, on graphs of one
    relation. With fanout -1 and one batch a step is that of the whole graph. On several workers the owner of
    a node keeps its histories, and steps are those of one process. Evaluation is exact.
    """

    name: ClassVar[str] = "control_variate"

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        fanout: int | Sequence[int] = (2, 2),
        batch_size: Annotated[int, Range(least=1)] = 1024,
        safe: bool = True,
        prepare: Annotated[int, Range(least=0)] = 2,
        **given: Unpack[Shared],
    ) -> None:
        super().__init__(graph, **given)
        if len(graph.edge_types) > 1 or len(graph.node_types) > 1:
            raise GraphError("strategy 'control_variate' is for graphs of one relation; use 'sampled'")
        self.fanout, self.batch_size, self.safe, self.threads = fanout, batch_size, safe, prepare
        self.history = History(len(graph.indptr) - 1)
        self._blocks: list[HistoryBlock] = []

    def begin_epoch(self, model: nn.Module) -> None:
        """Make ready, and fill the histories where there are none."""
        super().begin_epoch(model)
        hops = checked_hops(model, self.fanout, "strategy.fanout", self.graph.x)
        if hops > 1 and not self.history.rows:
            self.fill(model, hops)

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model of another number of hops than there are fanouts."""
        checked_hops(model, self.fanout, "strategy.fanout", self.graph.x)

    def make_loader(self, model: nn.Module) -> Loader:
        """Return what prepares the batches: few neighbours in all hops but the last, which has all."""
        hops = checked_hops(model, self.fanout, "strategy.fanout", self.graph.x)
        above = [self.fanout] * hops if isinstance(self.fanout, int) else list(self.fanout)
        fanout, seed = [*above[: hops - 1], -1], int(self.clock[0])
        if isinstance(self.graph, LocalGraph):
            shard = self.graph.shard
            return self._partitioned(
                PartitionedSampler(shard, self._lane, fanout, seed=seed, resample="step")
            )
        sampler = NeighborSampler(self.graph, fanout, seed=seed, resample="step")
        return Loader(sampler, batch_size=self.batch_size, threads=self.threads)

    @torch.no_grad()
    def fill(self, model: nn.Module, hops: int) -> None:
        """Set all histories to what an exact pass without dropout computes."""
        above: list[Block]
        if self._exact is None:
            assert isinstance(self.graph, Graph)
            first: Block = self.graph.block()
            above = [Recorder(self.graph, layer, self.history) for layer in range(1, hops)]
        else:
            first, exchange, shard = self.exact_block(), self._exact.exchange, self._exact.shard
            layers = range(1, hops)
            above = [HaloRecorder(shard, exchange, self.group, layer, self.history) for layer in layers]
        with evaluating(model):
            model([first, *above], self.graph.x)

    def runs_together(self, model: nn.Module) -> bool:
        """Return True: all workers ask the owners of nodes for histories together."""
        return True

    def blocks_of(self, model: nn.Module, batch: Batch) -> Any:
        """Return the block of features and those with histories."""
        first, self._blocks = history_blocks(batch.blocks, self._remembered(batch))
        for block in self._blocks:
            block.clock = self.clock
        return [first, *self._blocks]

    def batch_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs of the seeds: from one pass, or from two where dropout is kept apart."""
        batch.set_clock(self.clock)
        blocks, device = self.blocks_of(model, batch), batch.nodes.device.type
        self._begin(safe=False)
        if self.safe and _drops(model):
            with _without_dropout(model):
                self._outputs(model, blocks, batch.x, device=device)
            self._begin(safe=True)
        return self._outputs(model, blocks, batch.x, device=device)

    def end_step(self) -> None:
        """Remember what was computed."""
        for block in self._blocks:
            block.keep()
        self._blocks = []

    def state(self) -> dict[str, Tensor]:
        """Return the histories, and how far the epoch is."""
        return {**super().state(), **named(self.history)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        super().load_state(state)
        restore(self.history, state)

    def _remembered(self, batch: Batch) -> Remembered:
        if isinstance(self.graph, Graph):
            return Here(self.history, batch.nodes)
        asking, node_ids = cast(PartitionedBatch, batch).asking, self.graph.shard.node_ids
        return AtOwners(self.history, asking, node_ids, self.group, len(batch.blocks))

    def _begin(self, *, safe: bool) -> None:
        for block in self._blocks:
            block.begin(safe=safe)


def _drops(model: nn.Module) -> bool:
    """Return whether something may be dropped in training; modules of other code may, by a function."""
    return any(_may_drop(module) for module in model.modules() if module.training)


def _may_drop(module: nn.Module) -> bool:
    if isinstance(module, Dropout | _DropoutNd):
        return module.p > 0
    return not type(module).__module__.startswith(("torch.nn.", "weft."))


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """Switch dropout off for a pass, which counts in no running statistics.

    Every module is told not to train but norms of the batch: so also functions that drop, as
    `F.dropout(h, training=self.training)`, do nothing.
    """
    norms = [module for module in model.modules() if isinstance(module, _NormBase) and module.training]
    held = [module for module in model.modules() if module.training and not isinstance(module, _NormBase)]
    statistics = [(buffer, buffer.clone()) for module in norms for buffer in module.buffers()]
    for module in held:
        module.training = False
    try:
        yield
    finally:
        for module in held:
            module.training = True
        for buffer, before in statistics:
            buffer.data.copy_(before)  # as a batch norm itself writes them: backward does not read them
