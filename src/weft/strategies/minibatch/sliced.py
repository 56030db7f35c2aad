"""P3: Gandhi and Iyer, Distributed Deep Graph Learning at Scale, OSDI 2021.

The first layer is model parallel, over columns of the features; all others are data parallel. Features never
travel, nor do gradients of the first layer's weights: each rank trains those of its columns, and keeps what
an optimiser needs of them. What travels are the edges of the first block and products as wide as the first
layer's output. That pays where features are wide, the hidden layer narrow, and neighbourhoods grow much in
the last hop.
"""

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.config import Range
from weft.errors import GraphError
from weft.exchanges.accuracy import NOT_MEASURED, AccuracyCost
from weft.samplers.base import Batch, Sampler
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.stores.sliced import SlicedStore
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.call import evaluating
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.batch_source import PartSource
from weft.strategies.minibatch.fanouts import Fanouts, Hops, by_hop
from weft.strategies.minibatch.first_layer import EnoughError, LaterBlock
from weft.strategies.minibatch.neighbourhoods import Neighbourhoods
from weft.strategies.minibatch.neighbours import DrawSettings, PartNeighbours
from weft.strategies.minibatch.sampled import Sampled, check_sampler
from weft.strategies.minibatch.sliced_rows import Pushed, SlicedBlock, SlicedRows, push, refuse
from weft.strategies.minibatch.sliced_weights import OwnedWeights, feature_dim
from weft.strategies.reducer import PlainReducer, reducer_of


@strategies.add("sliced")
class Sliced(Strategy):
    """Train on sampled batches with features cut by columns, the first layer model parallel (P3).

    Steps are those of 'sampled': `fanout`, `batch_size`, `sampler`, `seeds`, `evaluate` and `prepare` are its
    options. With `delay` d the first layer of a batch is computed d steps early, with the weights of then,
    while the steps before it run; its products travel meanwhile. 0 waits, and is exact. The first layer sums
    or averages neighbours, or multiplies features with a weight first, as attention does; it has no dropout
    of its input. Features are dense, of one node type.
    """

    name: ClassVar[str] = "sliced"
    on_workers: ClassVar[bool] = True
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = NOT_MEASURED
    in_batches: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = False
    batching: "Slices"

    def __init__(
        self,
        graph: LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        fanout: Fanouts | None = None,
        batch_size: Annotated[int, Range(least=1)] = 1024,
        sampler: str | Mapping[str, Any] = "neighbor",
        seeds: Literal["global", "local"] = "global",
        evaluate: Literal["exact"] | Sequence[int] = "exact",
        prepare: Annotated[int, Range(least=0)] = 2,
        delay: Annotated[int, Range(least=0)] = 0,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        if len(graph.node_types) > 1 or not isinstance(graph.x, Tensor):
            raise GraphError("strategy 'sliced' needs a dense matrix x of one node type; use 'sampled'")
        kind, options = check_sampler(sampler)
        drawing = DrawSettings(kind, {"seed": int(self.clock[0]), **options}, batch_size, prepare)
        source = PartSource(self.shared, graph, None, part_rank)
        neighbours = SlicedNeighbours(source, drawing, local=seeds == "local")
        hops = by_hop(fanout, graph.edge_types, "strategy.fanout")
        batching = Slices(neighbours, fanout=hops, evaluate=evaluate, delay=delay)
        self.compose(source.layout, batching, Columns(self.group, batching))

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse a sampler or a fanout that cannot be, before any data is read."""
        Sampled.check(options)

    @classmethod
    def arrangement(cls, options: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return how workers are arranged; refuse a sampler that cannot draw from parts of a graph."""
        return Sampled.arrangement(options, workers)


class Columns(PlainReducer):
    """Each worker trains the first layer's weights of its columns; all others are trained together."""

    def __init__(self, group: Group, batching: "Slices") -> None:
        self.batching = batching
        self.others = reducer_of(group, lambda model: batching.owned(model).shared(model))

    def prepare(self, model: nn.Module) -> None:
        """Make the model ready for several workers."""
        self.others.prepare(model)

    def backward(self, loss: Tensor) -> None:
        """Sum the gradients of weights that all train."""
        self.others.backward(loss)

    def close(self) -> None:
        self.others.close()

    @contextmanager
    def epoch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Refuse an optimiser that trains others than own columns of the first layer's weights."""
        self.batching.owned(model).check(optimizer)
        yield

    def weights(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Have the first layer hold own columns."""
        return self.batching.owned(model).divided()

    def parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Return what this worker trains: of the first layer's weights those of its columns."""
        return self.batching.owned(model).parameters(model)

    def gather(self, model: nn.Module) -> None:
        """Bring the columns that other workers train into the model."""
        self.batching.owned(model).gather()

    def joined_state(
        self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the state of an optimiser that has whole weights."""
        owned = self.batching.weights
        return dict(state) if owned is None else owned.joined_state(optimizer, state)

    def own_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of own columns."""
        owned = self.batching.weights
        return dict(state) if owned is None else owned.own_state(optimizer, state)


class Slices(Neighbourhoods):
    """Neighbourhoods whose first layer all workers compute together, each with its columns of the features.

    With `delay` d the first layer of a batch is begun d steps early.
    """

    def __init__(self, neighbours: "SlicedNeighbours", *, delay: int, **options: Any) -> None:
        super().__init__(neighbours, **options)
        self.delay = delay
        group = self.shared.group
        # Products wait for each other between batches that are being prepared: a lane of their own.
        self._products = group.subgroup(group.ranks, purpose="slices")
        self._started: nn.Module | None = None
        self._owned: tuple[nn.Module, OwnedWeights] | None = None

    @property
    def weights(self) -> OwnedWeights | None:
        """The first layer's weights of the model that is trained; None before there is one."""
        return None if self._owned is None else self._owned[1]

    def owned(self, model: nn.Module) -> OwnedWeights:
        """Return the first layer's weights of a model, cut by columns; all workers call it first together."""
        if self._owned is None or self._owned[0] is not model:
            self._owned = model, OwnedWeights(model, self._factors(model), self.shared.group)
        return self._owned[1]

    def begin_epoch(self, model: nn.Module) -> None:
        """Make the loader, and remember the model for batches that are started early."""
        super().begin_epoch(model)
        self._started = model

    def coming(self) -> Generator[Batch, None, None]:
        """Give the batches of an epoch, each after those up to `delay` steps later were started."""
        ahead: deque[Batch] = deque()
        try:
            with closing(super().coming()) as coming:
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
            with self.owned(self._started).divided():
                self._first_layer(self._started, batch)
        finally:
            pushed.starting = False

    def _factors(self, model: nn.Module) -> dict[nn.Parameter, int]:
        """Return the parameters that features are multiplied with, found by a batch without any row."""
        super().begin_epoch(model)
        batch = self.loader.sampler.sample(torch.empty(0, dtype=torch.int64))
        rows: SlicedRows = batch.x
        rows.pushed.factors = []
        self._first_layer(model, batch)
        if not rows.pushed.factors:
            refuse("more than one block before a product")
        known = {id(each): each for each in model.parameters() if each.requires_grad}
        dims = [feature_dim(weight, known) for weight in rows.pushed.factors]
        return dict(each for each in dims if each is not None)

    def _first_layer(self, model: nn.Module, batch: Batch) -> None:
        """Run a model up to the end of its first layer."""
        with evaluating(model), suppress(EnoughError):
            model([batch.blocks[0], *[LaterBlock()] * (len(batch.blocks) - 1)], batch.x)  # type: ignore[list-item]


class SlicedNeighbours(PartNeighbours):
    """Neighbourhoods whose features are cut by columns in training, by rows in an evaluation."""

    def training_sampler(self, fanout: Hops) -> Sampler:
        """Return the sampler of training, with columns of everybody's features."""
        shard, lane, x = self.source.shard, self.source.lane, self.source.graph.x
        store = SlicedStore.of_rows(x, node_ids=shard.node_ids, num_rows=shard.num_nodes, group=lane)
        options = {"kind": self.drawing.kind, **self.drawing.options}
        return SlicedSampler(shard, lane, fanout, slices=store, **options)


class SlicedSampler(PartitionedSampler):
    """Draws as a `PartitionedSampler`; the features of a batch are columns of everybody's."""

    block_type = SlicedBlock

    def __init__(self, *args: Any, slices: SlicedStore, **options: Any) -> None:
        super().__init__(*args, **options)
        self.slices = slices

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0, **seen: Any) -> Batch:
        """Return this member's share of a batch, whose first block all members know."""
        batch = super().sample(seeds, epoch, step, **seen)
        data = {"x": push(batch.blocks[0], batch.nodes, self.slices), "y": batch.y}
        count = batch.seeds.numel()
        return Batch(
            self.graph, batch.blocks, batch.nodes, num_seeds=count, epoch=epoch, step=step, data=data
        )

    def features_of(self, requests: Any, nodes: Tensor) -> None:
        """Bring nothing: see `sample`."""
