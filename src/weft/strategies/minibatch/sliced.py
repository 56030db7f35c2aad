"""P3: Gandhi and Iyer, Distributed Deep Graph Learning at Scale, OSDI 2021.

The first layer is model parallel, over columns of the features; all others are data parallel. Features never
travel, nor do gradients of the first layer's weights: each rank trains those of its columns, and keeps what
an optimiser needs of them. What travels are the edges of the first block and products as wide as the first
layer's output. That pays where features are wide, the hidden layer narrow, and neighbourhoods grow much in
the last hop.
"""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from weft.config import Range
from weft.errors import GraphError
from weft.samplers.base import Batch, Sampler
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.stores.sliced import SlicedStore
from weft.strategies.base import Metrics, Scores, evaluating, strategies
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.batches import Shared
from weft.strategies.minibatch.fanouts import Fanouts, Hops
from weft.strategies.minibatch.first_layer import EnoughError, LaterBlock
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.minibatch.sliced_rows import Pushed, SlicedBlock, SlicedRows, push, refuse
from weft.strategies.minibatch.sliced_weights import OwnedWeights, feature_dim


@strategies.add("sliced")
class Sliced(Sampled):
    """Train on sampled batches with features cut by columns, the first layer model parallel (P3).

    Steps are those of 'sampled': `fanout`, `batch_size`, `sampler`, `seeds`, `evaluate` and `prepare` are its
    options. With `delay` d the first layer of a batch is computed d steps early, with the weights of then,
    while the steps before it run; its products travel meanwhile. 0 waits, and is exact. The first layer sums
    or averages neighbours, or multiplies features with a weight first, as attention does; it has no dropout
    of its input. Features are dense, of one node type.
    """

    name: ClassVar[str] = "sliced"
    over: ClassVar[tuple[str, ...]] = ("nodes",)
    hides_batches: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    takes_whole: ClassVar[bool] = False
    graph: LocalGraph  # type: ignore[assignment]

    def __init__(
        self,
        graph: LocalGraph,
        *,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        fanout: Fanouts | None = None,
        batch_size: Annotated[int, Range(least=1)] = 1024,
        sampler: str | Mapping[str, Any] = "neighbor",
        seeds: Literal["global", "local"] = "global",
        evaluate: Literal["exact"] | Sequence[int] = "exact",
        prepare: Annotated[int, Range(least=0)] = 2,
        delay: Annotated[int, Range(least=0)] = 0,
        **given: Unpack[Shared],
    ) -> None:
        super().__init__(
            graph,
            partitioner=partitioner,
            parts=parts,
            fanout=fanout,
            batch_size=batch_size,
            sampler=sampler,
            seeds=seeds,
            evaluate=evaluate,
            prepare=prepare,
            **given,
        )
        if len(graph.node_types) > 1 or not isinstance(graph.x, Tensor):
            raise GraphError("strategy 'sliced' needs a dense matrix x of one node type; use 'sampled'")
        self.delay = delay
        # Products wait for each other between batches that are being prepared: a lane of their own.
        self._products = self.group.subgroup(self.group.ranks, purpose="slices")
        self._started: nn.Module | None = None
        self._weights: tuple[nn.Module, OwnedWeights] | None = None

    # Weights of the first layer

    def parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Return what this worker trains: of the first layer's weights those of its columns."""
        return self._owned(model).parameters(model)

    def gather_weights(self, model: nn.Module) -> None:
        """Bring the columns that other workers train into the model."""
        self._owned(model).gather()

    def joined_state(
        self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the state of an optimiser that has whole weights."""
        return dict(state) if self._weights is None else self._weights[1].joined_state(optimizer, state)

    def own_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of own columns."""
        return dict(state) if self._weights is None else self._weights[1].own_state(optimizer, state)

    def _owned(self, model: nn.Module) -> OwnedWeights:
        if self._weights is None or self._weights[0] is not model:
            self._weights = model, OwnedWeights(model, self._factors(model), self.group)
        return self._weights[1]

    def _factors(self, model: nn.Module) -> dict[nn.Parameter, int]:
        """Return the parameters that features are multiplied with, found by a batch without any row."""
        if self._loader is None:
            self._loader = self.make_loader(model)
        batch = self._loader.sampler.sample(torch.empty(0, dtype=torch.int64))
        rows: SlicedRows = batch.x
        rows.pushed.factors = []
        self._first_layer(model, batch)
        if not rows.pushed.factors:
            refuse("more than one block before a product")
        known = {id(each): each for each in model.parameters() if each.requires_grad}
        found = [feature_dim(weight, known) for weight in rows.pushed.factors]
        return dict(each for each in found if each is not None)

    def _reduced(self, model: nn.Module) -> list[nn.Parameter]:
        return self._owned(model).shared(model)

    # An epoch

    def epoch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        """Take the steps of the epoch, own columns of the first layer's weights among what is trained."""
        self._owned(model).check(optimizer)
        return super().epoch(model, optimizer)

    def gradients(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, step: int
    ) -> tuple[Tensor, int]:
        """Fill the gradients of a step; those of the first layer's weights for own columns."""
        with self._owned(model).divided():
            return super().gradients(model, optimizer, batch, step)

    def evaluate(self, model: nn.Module, metrics: Metrics) -> Scores:
        """Return what 'sampled' does, with the weights of all workers."""
        self.gather_weights(model)
        return super().evaluate(model, metrics)

    def predict(self, model: nn.Module) -> Tensor:
        """Return what 'sampled' does, with the weights of all workers."""
        self.gather_weights(model)
        return super().predict(model)

    def begin_epoch(self, model: nn.Module) -> None:
        """Make ready as 'sampled' does, and remember the model for batches that are started early."""
        super().begin_epoch(model)
        self._started = model

    def batches(self) -> Generator[Batch, None, None]:
        """Give the batches of an epoch, each after those up to `delay` steps later were started."""
        ahead: deque[Batch] = deque()
        try:
            with closing(super().batches()) as coming:
                for batch in coming:
                    batch.x.pushed.group = self._products
                    if self.delay:
                        self._start(batch)
                    ahead.append(batch)
                    if len(ahead) > self.delay:
                        yield ahead.popleft()
            while ahead:
                yield ahead.popleft()
        finally:
            for batch in ahead:
                batch.x.pushed.settle()

    def runs_together(self, model: nn.Module) -> bool:
        """Return True: a worker without seeds still has columns of the others' features."""
        return True

    @torch.no_grad()
    def _start(self, batch: Batch) -> None:
        """Begin the products of a batch's first layer with the present weights; go no further."""
        assert self._started is not None
        pushed: Pushed = batch.x.pushed
        pushed.starting = True
        try:
            with self._owned(self._started).divided():
                self._first_layer(self._started, batch)
        finally:
            pushed.starting = False

    def _first_layer(self, model: nn.Module, batch: Batch) -> None:
        """Run a model up to the end of its first layer."""
        with evaluating(model), suppress(EnoughError):
            model([batch.blocks[0], *[LaterBlock()] * (len(batch.blocks) - 1)], batch.x)  # type: ignore[list-item]

    def _training_sampler(self, fanout: Hops) -> Sampler:
        shard, x = self.graph.shard, self.graph.x
        store = SlicedStore.of_rows(x, node_ids=shard.node_ids, num_rows=shard.num_nodes, group=self._lane)
        options = {"seed": int(self.clock[0]), "kind": self.kind, **self.options}
        return SlicedSampler(shard, self._lane, fanout, slices=store, **options)


class SlicedSampler(PartitionedSampler):
    """Draws as a `PartitionedSampler`; the features of a batch are columns of everybody's."""

    block_type = SlicedBlock

    def __init__(self, *args: Any, slices: SlicedStore, **options: Any) -> None:
        super().__init__(*args, **options)
        self.slices = slices

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0, **seen: Any) -> Batch:
        """Return this member's share of a batch, whose first block all members know."""
        batch = super().sample(seeds, epoch, step, **seen)
        held = {"x": push(batch.blocks[0], batch.nodes, self.slices), "y": batch.y}
        count = batch.seeds.numel()
        return Batch(
            self.graph, batch.blocks, batch.nodes, num_seeds=count, epoch=epoch, step=step, held=held
        )

    def _features(self, asking: Any, nodes: Tensor) -> None:
        """Bring nothing: see `sample`."""
