"""VR-GCN: Chen, Zhu and Song, 2018. A few drawn neighbours correct what is remembered of all."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from weft.config import Range
from weft.errors import GraphError
from weft.events import Events
from weft.graph.graph import Graph
from weft.layers.dropout import Dropout
from weft.samplers.base import Batch
from weft.samplers.loader import Loader
from weft.samplers.neighbor import NeighborSampler
from weft.strategies.base import LossName, evaluating, strategies, summed_loss
from weft.strategies.history_block import History, HistoryBlock, Recorder, history_blocks, named, restore
from weft.strategies.sampled import checked_hops
from weft.strategies.single import Single
from weft.strategies.steps import Steps


@strategies.add("control_variate")
class ControlVariate(Steps, Single):
    """Train on samples of a few neighbours whose inputs correct histories of all others (VR-GCN).

    A sum over neighbours is that of their histories, exactly, plus what the `fanout[i]` drawn ones have
    changed since, scaled up. Histories are rows of every node for each layer but the first, which reads
    features and is exact whatever its fanout (the last in the list); an exact pass fills them before the
    first step. With `safe`, dropout is kept out of them (the paper's CVD; two passes a step). Models sum or
    average neighbours, on graphs of one relation. With fanout -1 and one batch a step is that of the whole
    graph. One process; evaluation is exact.
    """

    name: ClassVar[str] = "control_variate"

    def __init__(
        self,
        graph: Graph,
        *,
        loss: LossName = "auto",
        seed: int = 0,
        events: Events | None = None,
        autocast: torch.dtype | None = None,
        fanout: int | Sequence[int] = (2, 2),
        batch_size: Annotated[int, Range(least=1)] = 1024,
        safe: bool = True,
        prepare: Annotated[int, Range(least=0)] = 2,
    ) -> None:
        super().__init__(graph, loss=loss, seed=seed, events=events, autocast=autocast)
        if graph.num_relations > 1 or len(graph.node_types) > 1:
            raise GraphError("strategy 'control_variate' is for graphs of one relation; use 'sampled'")
        self.fanout, self.batch_size, self.safe, self.threads = fanout, batch_size, safe, prepare
        self.history = History(graph.num_nodes)
        self._loader: Loader | None = None
        self._blocks: list[HistoryBlock] = []

    def begin_epoch(self, model: nn.Module) -> None:
        """Make the loader on first use, and fill the histories where there are none."""
        hops = checked_hops(model, self.fanout, "strategy.fanout")
        if self._loader is None:
            above = [self.fanout] * hops if isinstance(self.fanout, int) else list(self.fanout)
            sampler = NeighborSampler(
                self.graph, [*above[: hops - 1], -1], seed=int(self.clock[0]), resample="step"
            )
            self._loader = Loader(sampler, batch_size=self.batch_size, threads=self.threads)
        if hops > 1 and not self.history.rows:
            self.fill(model, hops)

    @property
    def loader(self) -> Loader:
        """What prepares the batches."""
        assert self._loader is not None, "begin_epoch makes it"
        return self._loader

    @torch.no_grad()
    def fill(self, model: nn.Module, hops: int) -> None:
        """Set all histories to what an exact pass without dropout computes."""
        above = [Recorder(self.graph, layer, self.history) for layer in range(1, hops)]
        with evaluating(model):
            model([self.graph.block(), *above], self.graph.x)

    def blocks_of(self, model: nn.Module, batch: Batch) -> Any:
        """Return the block of features and those with histories."""
        first, self._blocks = history_blocks(self.graph, batch.blocks, self.history)
        for block in self._blocks:
            block.clock = self.clock
        return [first, *self._blocks]

    def batch_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs of the seeds: from one pass, or from two where dropout is kept apart."""
        batch.set_clock(self.clock)
        blocks = self.blocks_of(model, batch)
        twice = self.safe and _drops(model)
        device = batch.nodes.device.type
        with torch.autocast(device, dtype=self.autocast, enabled=self.autocast is not None):
            self._begin(safe=False)
            if twice:
                with _without_dropout(model):
                    model(blocks, batch.x)
                self._begin(safe=True)
            outputs: Tensor = model(blocks, batch.x)
        return outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs

    def step_loss(self, model: nn.Module, batch: Batch, step: int) -> tuple[Tensor, int]:
        """Return the mean loss of the seeds and their number."""
        y = batch.y
        assert y is not None, "a strategy is made of a graph with labels"
        count = batch.seeds.numel()
        return summed_loss(self.loss, self.batch_outputs(model, batch), y) / count, count

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

    def _begin(self, *, safe: bool) -> None:
        for block in self._blocks:
            block.begin(safe=safe)


def _drops(model: nn.Module) -> bool:
    return any(isinstance(module, Dropout) and module.training and module.p > 0 for module in model.modules())


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """Switch dropout off for a pass, and all else left as it is."""
    held = [module for module in model.modules() if isinstance(module, Dropout) and module.training]
    for module in held:
        module.training = False
    try:
        yield
    finally:
        for module in held:
            module.training = True
