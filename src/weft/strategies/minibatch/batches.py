"""What strategies of mini-batches share: who holds the graph, one loss, one gradient, an exact evaluation.

One process may hold the graph itself; several workers hold its parts, and each step is theirs together: the
seeds of a step are a function of (seed, epoch, step), each worker sums the loss of its own, and gradients are
summed. So the steps do not depend on how many workers there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan
from weft.errors import GraphError
from weft.exchanges.exact import Exact
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.samplers.base import Batch
from weft.samplers.loader import Loader
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.samplers.workers.together import PartitionedLoader
from weft.stores.base import Store
from weft.stores.typed import TypedStores
from weft.strategies.base import Given, Metrics, Scores, evaluating
from weft.strategies.distributed import Distributed, GivenToRanks
from weft.strategies.halo.block import HaloBlock
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.placement import Nearby
from weft.strategies.minibatch.steps import Steps
from weft.strategies.norm import GlobalBatchNorm
from weft.tasks.nodes import NodeTargets

_CONTROL = Label("control")


class Shared(GivenToRanks, total=False):
    """What strategies of mini-batches are given beside their options: who else trains, and where."""

    part_rank: Sequence[int] | None
    device: torch.device | None


class Batches(Steps, Distributed):
    """Steps on batches, of a whole graph in one process or of its parts on several workers."""

    exchanges: ClassVar[tuple[str, ...]] = ()
    takes_whole: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    graph: Graph | LocalGraph  # type: ignore[assignment]
    batch_size: int
    threads: int
    _opened: Store | TypedStores | None = None
    """The store that was opened for this strategy, and is closed with it."""

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
        group: Group | None = None,
        part_rank: Sequence[int] | None = None,
        device: torch.device | None = None,
        **given: Unpack[Given],
    ) -> None:
        super().__init__(graph, group=group, **given)  # type: ignore[arg-type]
        self._device = device
        self._nearby: Nearby | None = None
        self._loader: Loader | None = None
        self._exact: HaloBlock | None = None
        if isinstance(graph, LocalGraph):
            self._exact = self._halo(graph, part_rank)
            self._lane = self.group.subgroup(self.group.ranks, purpose="sample")

    @classmethod
    def layouts(cls, workers: int) -> list[dict[str, Any]]:
        """Return nothing: a batch is not the whole graph, however workers are arranged."""
        return []

    @classmethod
    def graph_on_device(cls, options: Mapping[str, Any]) -> bool:
        """Return False: the graph stays in the host's memory, batches of it go to the model."""
        return False

    # What a strategy provides

    def make_loader(self, model: nn.Module) -> Loader:
        """Return what prepares the batches of an epoch."""
        raise NotImplementedError

    # An epoch

    def begin_epoch(self, model: nn.Module) -> None:
        """Make the loader on first use, and the model ready for several workers."""
        if self._loader is None:
            self._loader = self.make_loader(model)
        if self.group.size > 1:
            self._prepare(model)

    @property
    def loader(self) -> Loader:
        """What prepares the batches."""
        assert self._loader is not None, "begin_epoch makes it"
        return self._loader

    def step_loss(self, model: nn.Module, batch: Batch, step: int) -> tuple[Tensor, int]:
        """Return the loss of the own targets as a share of the step's mean, and how many rows all have."""
        count = self.loader.count(int(self.clock[1]), step) * self.task.rows_per_target
        if not batch.num_targets and not self.runs_together(model):
            return torch.zeros(()), count  # whose gradients are zeros: the reducer sends them
        outputs = self.batch_outputs(model, batch)
        return self.task.loss.summed(outputs, self.task.values_of_batch(batch)) / count, count

    def runs_together(self, model: nn.Module) -> bool:
        """Return whether all workers must run the model together, also one without a seed in a step."""
        return any(isinstance(module, GlobalBatchNorm) for module in model.modules())

    def close(self) -> None:
        """Take the hooks off the model, and close the store that was opened."""
        super().close()
        if self._opened is not None:
            self._opened.close()

    # Evaluation

    @torch.no_grad()
    def evaluate(self, model: nn.Module, metrics: Metrics) -> Scores:
        """Return the metrics and the loss of each split over all workers, and change no state."""
        if self.group.size > 1:
            self._prepare(model)
        with self.events.phase("evaluate"):
            return self._scores(model, metrics)

    @torch.no_grad()
    def predict(self, model: nn.Module) -> Tensor:
        """Return the exact outputs for every node of the target type, on every worker."""
        return self._node_outputs(model) if isinstance(self.graph, Graph) else super().predict(model)

    def exact_block(self) -> Block:
        """Return the block of the whole graph, or of the worker's own rows of it."""
        if self._exact is None:
            assert isinstance(self.graph, Graph)
            return self.graph.block(self.clock)
        self._exact.exchange.begin_step()
        self._exact.forget()
        return self._exact

    def rows_of(self, h: Tensor, ids: Tensor) -> Tensor:
        """Return the rows of any nodes by global id, where the model is."""
        if isinstance(self.graph, LocalGraph):
            return super().rows_of(h, ids)
        return h[ids.to(h.device)].to(self.device)

    @property
    def nearby(self) -> Nearby | None:
        """The graph as a GPU reads it; None where the model is on the CPU."""
        if self._nearby is None and self.device.type == "cuda" and isinstance(self.graph, Graph):
            self._nearby = Nearby(self.graph, self.device)
        return self._nearby

    # Underneath

    def _exact_rows(self, model: nn.Module) -> Tensor:
        if self.nearby is not None:
            with evaluating(model):
                return self.nearby.outputs(model, self.clock, self.autocast)
        if self.infer is not None and self.in_store and isinstance(self.graph, Graph):
            return self._everywhere(self.infer(model))
        outputs = super()._exact_rows(model)
        if isinstance(self.graph, Graph):
            self.graph.block().clock = None  # the block is the graph's, and the graph outlives this run
        return outputs

    def _everywhere(self, rows: Tensor) -> Tensor:
        """Return rows of the target type among those of all nodes, whose others nobody reads."""
        if len(self.graph.node_types) == 1:
            return rows
        h = rows.new_zeros(self.graph.num_nodes, rows.shape[1])
        h[self.graph.target_rows] = rows
        return h

    def _partitioned(
        self, sampler: PartitionedSampler, kind: type[PartitionedLoader] = PartitionedLoader, **more: Any
    ) -> PartitionedLoader:
        """Return the loader of the own seeds of each step."""
        seeds = self._gathered(self._ids(self._train_rows()))
        more = {"owner": sampler.owner} | more
        more |= {"rank": self.group.rank, "workers": self.group.size}
        more |= {"batch_size": self.batch_size, "threads": self.threads}
        return kind(sampler, seeds, **more)

    def _train_rows(self) -> Tensor:
        """Return the own training nodes, rows of the target type."""
        train = self.targets["train"]
        assert isinstance(train, NodeTargets), "batches of nodes are of a task of nodes"
        return train.rows

    def _ids(self, rows: Tensor) -> Tensor:
        """Return the global ids of own rows of the target type."""
        rows = rows + int(self.graph.target_rows.start)
        return rows if isinstance(self.graph, Graph) else self.graph.shard.node_ids[rows]

    def _halo(self, graph: LocalGraph, part_rank: Sequence[int] | None) -> HaloBlock:
        if graph.shard.cuts != "nodes":
            raise GraphError(f"{self.name} needs parts of nodes; this partition cuts edges: use another")
        exchange = Exact(HaloPlan.make(graph.shard, self.group, part_rank), self.group, self.clock)
        exchange.kind = "evaluate"
        block = HaloBlock(graph.shard, exchange, self.group, clock=self.clock)
        if len(graph.node_types) == 1 and graph.x is not None:
            block.mark_constant(graph.x)
        return block
