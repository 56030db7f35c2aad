"""VR-GCN: Chen, Zhu and Song, 2018. A few drawn neighbours correct what is remembered of all."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from weft.config import Range
from weft.errors import GraphError, InputError
from weft.exchanges.accuracy import AccuracyCost
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.layers.dropout import Dropout
from weft.samplers.base import Batch
from weft.samplers.loader import Loader
from weft.samplers.workers.inputs import InputBlock
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.call import evaluating
from weft.strategies.hops import checked_hops, hops_of
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.batch_source import BatchSource, source_of
from weft.strategies.minibatch.first_layer import norms_kept, sums_of_inputs
from weft.strategies.minibatch.history_block import History, HistoryBlock, history_blocks, named, restore
from weft.strategies.minibatch.loaded import LoadedBatches
from weft.strategies.reducer import reducer_of


@strategies.add("control_variate")
class ControlVariate(Strategy):
    """Train on samples of a few neighbours whose inputs correct histories of all others (VR-GCN).

    A sum over neighbours is that of their histories, exactly, plus what the `fanout[i]` drawn ones have
    changed since, scaled up; the first number is of the seeds' layer, and there is one for each layer but the
    first, which is exact. Where that sums or averages features as they are, its sums are computed once and
    kept (`preprocess`), so that no hop is drawn for it; else, as under dropout of the input, it reads all
    neighbours. Histories are rows of every node for each layer but the first; an exact pass fills them before
    the first step. With `safe`, dropout of whatever kind is kept out of them (the paper's CVD; two passes a
    step where a model drops, or has code of its own that may). Models sum or average neighbours, on graphs of
    one relation. With fanout -1 and one batch a step is that of the whole graph. On several workers the owner
    of a node keeps its histories, and steps are those of one process. Evaluation is exact.
    """

    name: ClassVar[str] = "control_variate"
    on_workers: ClassVar[bool] = True
    elastic: ClassVar[bool] = True
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = (
        AccuracyCost(-0.18, 0.16, "cornell5, SAGE", "control_variate_cornell5", {"fanout": 2}),
        AccuracyCost(-0.39, 0.11, "tolokers, GCN, ROC-AUC", "control_variate_tolokers", {"fanout": 2}),
    )
    in_batches: ClassVar[bool] = True
    batching: "Histories"

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        fanout: int | Sequence[int] = 2,
        batch_size: Annotated[int, Range(least=1)] = 1024,
        safe: bool = True,
        preprocess: bool | Literal["auto"] = "auto",
        prepare: Annotated[int, Range(least=0)] = 2,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        if len(graph.edge_types) > 1 or len(graph.node_types) > 1:
            raise GraphError("strategy 'control_variate' is for graphs of one relation; use 'sampled'")
        source = source_of(self.shared, graph, part_rank=part_rank)
        loading: dict[str, Any] = {"batch_size": batch_size, "threads": prepare}
        batching = Histories(source, fanout, safe=safe, preprocess=preprocess, loading=loading)
        self.compose(source.layout, batching, reducer_of(self.group))


class Histories(LoadedBatches):
    """Small neighbourhoods, and what is remembered of all other neighbours."""

    def __init__(
        self,
        source: BatchSource,
        fanout: int | Sequence[int],
        *,
        safe: bool,
        preprocess: bool | Literal["auto"],
        loading: dict[str, Any],
    ) -> None:
        super().__init__(source.layout.shared, source.layout)
        self.source, self.fanout, self.safe, self.preprocess = source, fanout, safe, preprocess
        self.loading = loading
        self.history = History(len(source.graph.indptr) - 1)
        self._first: Block | None = None
        self._blocks: list[HistoryBlock] = []

    def begin_epoch(self, model: nn.Module) -> None:
        """Make ready, and fill the histories where there are none."""
        super().begin_epoch(model)
        hops = len(self._fanouts(model)) + 1
        if hops > 1 and not self.history.rows:
            self.fill(model, hops)

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model of another number of hops than there are fanouts."""
        self._fanouts(model)

    def make_loader(self, model: nn.Module) -> Loader:
        """Return what prepares the batches: few neighbours of all layers but the first, of that one all.

        Where it sums features as they are, its sums are known instead.
        """
        fanout = self._fanouts(model)
        options: dict[str, Any] = {"seed": int(self.shared.clock[0]), "resample": "step"}
        sampler = self.source.inputs(fanout, self._sums(model, len(fanout) + 1), **options)
        return self.source.seed_loader(sampler, **self.loading)

    @torch.no_grad()
    def fill(self, model: nn.Module, hops: int) -> None:
        """Set all histories to what an exact pass without dropout computes."""
        with evaluating(model):
            model(self.source.recorders(hops, self.history), self.source.graph.x)

    def runs_together(self, model: nn.Module) -> bool:
        """Return True: all workers ask the owners of nodes for histories together."""
        return True

    def blocks_of(self, model: nn.Module, batch: Batch) -> Any:
        """Return the block of features and those with histories."""
        self._first = batch.blocks[0]
        every = self._first if batch.every is None else batch.every
        self._blocks = history_blocks(batch.blocks, every, self.source.remembered(self.history, batch))
        for block in self._blocks:
            block.clock = self.shared.clock
        return [self._first, *self._blocks]

    def batch_rows(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the rows of the seeds: from one pass, or from two where dropout is kept apart."""
        batch.set_clock(self.shared.clock)
        blocks, device = self.blocks_of(model, batch), batch.nodes.device.type
        self._begin(safe=False)
        if self.safe and _drops(model):
            with _without_dropout(model):
                self.shared.call(model, blocks, batch.x, device=device)
            self._begin(safe=True)
        return self.shared.call(model, blocks, batch.x, device=device)

    def end_step(self) -> None:
        """Remember what was computed."""
        for block in self._blocks:
            block.keep()
        self._first, self._blocks = None, []

    def state(self) -> dict[str, Tensor]:
        """Return the histories."""
        return named(self.history)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        restore(self.history, state)

    def is_by_node(self, name: str) -> bool:
        """Return whether it is a history."""
        return name.startswith("history.")

    def _fanouts(self, model: nn.Module) -> list[int]:
        """Return what is drawn for each layer but the first, the seeds' layer first; refuse others."""
        if isinstance(self.fanout, int):
            return [self.fanout] * (
                checked_hops(model, self.fanout, "strategy.fanout", self.layout.graph.x) - 1
            )
        fanouts, hops = list(self.fanout), hops_of(model, self.layout.graph.x)
        drawn = fanouts[:-1] if hops in (None, len(fanouts)) and fanouts[-1:] == [-1] else fanouts
        if hops is not None and len(drawn) != hops - 1:
            raise InputError(
                f"strategy.fanout: the model takes {hops} hops and the first layer reads all neighbours; "
                f"give {hops - 1} numbers, one for each other layer, got {fanouts}"
            )
        return drawn

    def _sums(self, model: nn.Module, hops: int) -> list[Tensor] | None:
        """Return what the first layer sums of the features, where that is to be known beforehand."""
        if self.preprocess is False:
            return None
        block = self.layout.exact_block()
        try:
            sums = sums_of_inputs(model, block, self.layout.graph.x, hops)
        finally:
            self.layout.release(block)
        if sums is None and self.preprocess is True:
            raise InputError(
                "strategy.preprocess: needs a first layer of several that sums or averages dense features as "
                "they are, as gcn and sage without dropout of the input; use 'auto' or false"
            )
        return sums

    def _begin(self, *, safe: bool) -> None:
        if isinstance(self._first, InputBlock):
            self._first.begin()
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
    training = [module for module in model.modules() if module.training and not isinstance(module, _NormBase)]
    with norms_kept(model):
        for module in training:
            module.training = False
        try:
            yield
        finally:
            for module in training:
                module.training = True
