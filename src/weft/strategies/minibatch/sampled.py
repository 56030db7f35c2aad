"""Mini-batches of sampled neighbourhoods, in one process or data parallel over a partitioned graph.

An epoch is a number of steps. The seeds of step t are a function of (seed, epoch, t), what is drawn for a
node of (seed, epoch, node), and dropout is keyed by (seed, epoch, t, node): so the steps do not depend on how
many threads prepare batches, nor on how many workers take part, each with the seeds that it owns.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack, cast

import torch
from torch import Tensor

from weft.config import Range, bind
from weft.errors import GraphError, RecipeError
from weft.exchanges.accuracy import AccuracyCost
from weft.graph.graph import Graph
from weft.layers.stack import Stack
from weft.partitioners.base import partitioners
from weft.samplers.base import samplers
from weft.samplers.core.temporal import check_finite
from weft.samplers.workers.partitioned import on_workers
from weft.samplers.workers.replicas import Replicate
from weft.stores.base import stores
from weft.stores.open import check_store
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.device_bytes import sampled_bytes
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.batch_source import source_of
from weft.strategies.minibatch.fanouts import Fanouts, by_hop, check_fanouts
from weft.strategies.minibatch.neighbourhoods import Neighbourhoods
from weft.strategies.minibatch.neighbours import DrawSettings, GraphNeighbours, Neighbours, PartNeighbours
from weft.strategies.minibatch.pair_limits import check_timed_pairs, refuse_nodes_alone, refuse_typed_store
from weft.strategies.minibatch.sampler_ranks import check_samplers
from weft.strategies.placement import Where
from weft.strategies.reducer import reducer_of

TO_SAMPLER = ("graph", "fanout", "seed", "expand", "temporal", "shared")
"""What a strategy gives a sampler, and no option may set."""
_NOT_CLOSED = ("store", "samplers", "replicate", "temporal")


@strategies.add("sampled")
class Sampled(Strategy):
    """Train on batches of sampled neighbourhoods; `fanout` has the edges drawn a row in each hop, -1: all.

    By default they are 15, 10 and 5, and 5 in further hops, for as many hops as the model has. A table has a
    list for each relation: `{"author writes paper" = [10, 5], ...}`, zeros leave one out.

    `batch_size` counts the seeds of all workers together; each takes those that it owns, and the loss is the
    sum over all, so that several workers take the steps of one process. `seeds="local"` has each worker
    shuffle its own instead: batches are of equal size on all workers, but no longer those of one process.
    `sampler` is a name or a table with its options: neighbor, or labor. `evaluate` is exact, over all edges
    of the whole graph, or a fanout for each hop. `prepare` threads make batches ahead of training; workers,
    who draw together, have one thread that is so many batches ahead. `store` is where batches read features:
    a name or a table with its options, as `weft.stores.open_store` takes. On a GPU `sample_on` says who
    draws: it, threads of the CPU, or "auto", it where it can. With `samplers` so many of the workers, the
    last ones, only make batches and push them to the others. With `replicate` every worker holds the
    neighbourhoods of important nodes (AliGraph), and asks nobody for them: of those with at least so many
    edges out of them for each into them, or a table of `threshold` and `hops`, paths of up to so many edges
    counting and so many hops being held. `temporal` lets a seed see no edge whose `time` is later than its
    own, a node's `time`, in training and in evaluation; a row is then a (seed, node) pair, with the degree
    that the seed sees. With `closed` each worker copies, once, all that its training nodes read, so that no
    rows travel in training (PaGraph); by default so with the partitioner selfreliant, unless a store,
    replicas, samplers or neighbours by time are asked for. With fanout -1 and one batch a step is that of the
    whole graph. (Batch normalisation is over the rows of a batch; a row that two workers compute counts
    twice.)
    """

    name: ClassVar[str] = "sampled"
    over: ClassVar[tuple[str, ...]] = ("nodes", "pairs")
    hides_batches: ClassVar[bool] = True
    on_workers: ClassVar[bool] = True
    elastic: ClassVar[bool] = True
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = (
        AccuracyCost(-1.77, 0.29, "cornell5, SAGE", "control_variate_cornell5", {"fanout": 2}),
        AccuracyCost(-0.29, 0.16, "tolokers, GCN, ROC-AUC", "control_variate_tolokers", {"fanout": 2}),
    )
    in_batches: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    rows_by_owner: ClassVar[bool] = True
    batching: Neighbourhoods

    def __init__(
        self,
        graph: Graph | LocalGraph,
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
        store: str | Mapping[str, Any] | None = None,
        replicate: float | Mapping[str, Any] | None = None,
        samplers: Annotated[int, Range(least=0)] = 0,
        sample_on: Where = "auto",
        temporal: bool = False,
        closed: bool | None = None,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        self._check_group(replicate, samplers, sample_on)
        if self.task.over == "pairs":
            refuse_typed_store(store, graph.node_types)
        source = source_of(self.shared, graph, part_rank=part_rank, store=store, ranked=True)
        kind, options = check_sampler(sampler)
        options = {"seed": int(self.clock[0]), **options, **({"temporal": True} if temporal else {})}
        drawing = DrawSettings(kind, options, batch_size, prepare)
        neighbours: Neighbours
        if not source.in_parts:
            refuse_of_workers(closed=closed, seeds=seeds)
            neighbours = GraphNeighbours(source, drawing, sample_on)
        else:
            special = store is not None or replicate is not None or samplers or temporal
            usual = closes(partitioner) and not special and self.task.over == "nodes"
            closed = usual if closed is None else closed
            copies = None if replicate is None else check_replicate(replicate)
            ways: dict[str, Any] = {"store": store, "replicate": copies, "samplers": samplers}
            neighbours = PartNeighbours(source, drawing, **ways, closed=closed, local=seeds == "local")
        hops = by_hop(fanout, graph.edge_types, "strategy.fanout")
        batching = Neighbourhoods(neighbours, fanout=hops, evaluate=evaluate, temporal=temporal)
        self.compose(source.layout, batching, reducer_of(self.group))
        if temporal:
            self._check_times()

    def _check_group(self, replicate: Any, samplers: int, sample_on: Where) -> None:
        """Refuse what takes several workers, or a GPU, where there is none."""
        if replicate is not None and self.group.size == 1:
            raise RecipeError(
                "strategy.replicate: one process holds every neighbourhood; leave it out, or add --workers N"
            )
        if samplers and self.group.parent is None:
            check_samplers(samplers, 1)
        if sample_on == "gpu" and self.device.type != "cuda":
            raise RecipeError("strategy.sample_on: 'gpu' needs one; set train.device = 'cuda'")

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse a sampler, a store or a fanout that cannot be, before any data is read."""
        check_sampler(options.get("sampler", "neighbor"))
        if options.get("replicate") is not None:
            check_replicate(options["replicate"])
            if options.get("samplers"):
                raise RecipeError(
                    "strategy.replicate: samplers hold the whole graph and ask nobody; leave one of both out"
                )
        if options.get("store") is not None:
            name, _ = check_store(options["store"])
            if stores[name].caches and options.get("samplers"):
                raise RecipeError(
                    "strategy.store: samplers hold the whole graph and send features with batches, a cache "
                    "would hold what nobody reads; use 'memory', or 'mmap' for a file"
                )
        name, _ = check_sampler(options.get("sampler", "neighbor"))
        by_time = samplers[name].by_time
        if options.get("temporal") and (not by_time or options.get("samplers")):
            what = "strategy.samplers" if by_time else f"strategy.sampler = {name!r}"
            raise RecipeError(f"strategy.temporal: neighbours by time are drawn without {what}; leave it out")
        for name in _NOT_CLOSED if options.get("closed") else ():
            if options.get(name):
                raise RecipeError(
                    f"strategy.{name}: with closed = true each worker draws from what it holds in memory, "
                    "and knows degrees over all time; leave one of them out"
                )
        for name in ("fanout", "evaluate"):
            check_fanouts(options.get(name), f"strategy.{name}")

    @classmethod
    def arrangement(cls, options: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return how workers are arranged; refuse a sampler that cannot draw from parts of a graph."""
        name, _ = check_sampler(options.get("sampler", "neighbor"))
        if not samplers[name].on_workers:
            raise RecipeError(f"strategy.{on_workers(name)}")
        if options.get("store") is not None:
            check_store(options["store"], workers)
        return super().arrangement(options, workers)

    @classmethod
    def device_needs(cls, graph: Graph, model: Stack) -> dict[str, int]:
        """Return what a step of the usual fanouts takes, with edges and features on the GPU too."""
        return {cls.name: sampled_bytes(graph, model)}

    @classmethod
    def check_pairs(cls, options: Mapping[str, Any], hides: bool) -> None:
        """Refuse what is for batches of nodes alone, and draws that cannot leave the pairs of a step out."""
        refuse_nodes_alone(options)
        name, _ = check_sampler(options.get("sampler", "neighbor"))
        if hides and not samplers[name].hides:
            raise RecipeError(
                f"strategy.sampler: {name!r} draws from all edges and cannot hide the pairs of a step; use "
                "'neighbor', or task.hide = 'disjoint'"
            )

    def _check_times(self) -> None:
        """Refuse a graph without times, of edges and of all targets that are trained on or predicted."""
        if self.task.over == "pairs":
            check_timed_pairs(self.task, "time" in self.graph.edge_data, self.device)
            return
        graph, kind = self.graph, self.graph.target_type
        time = graph.node_data[kind].get("time")
        if "time" not in graph.edge_data or time is None:
            what = "edge data 'time'" if "time" not in graph.edge_data else f"node data 'time' of {kind!r}"
            raise GraphError(f"strategy.temporal: the graph has no {what}: when an edge, and a node, came")
        rows = torch.arange(len(time)) + int(graph.target_rows.start)
        check_finite(self.layout.global_ids(rows), cast(Tensor, time))
        if self.device.type != "cpu":
            raise RecipeError("strategy.temporal: batches by time stay on the CPU; set train.device = 'cpu'")


def closes(partitioner: str | Mapping[str, Any]) -> bool:
    """Return whether parts of a partitioner are made for workers that copy what their nodes read."""
    name = partitioner if isinstance(partitioner, str) else partitioner.get("name")
    return isinstance(name, str) and partitioners[name].closes


def refuse_of_workers(*, closed: bool | None = None, seeds: str = "global") -> None:
    """Refuse options that say what several workers do, in one process."""
    if closed:
        raise RecipeError(
            "strategy.closed: one process holds the whole graph; leave it out, or add --workers N"
        )
    if seeds == "local":
        raise RecipeError(
            "strategy.seeds: in one process all seeds are its own; leave out 'local', or add --workers N"
        )


def check_replicate(choice: float | Mapping[str, Any]) -> Replicate:
    """Return which neighbourhoods every worker is to hold: a threshold, or a table with it and `hops`."""
    options = dict(choice) if isinstance(choice, Mapping) else {"threshold": choice}
    return Replicate(**bind(Replicate, options, "strategy.replicate"))


def check_sampler(choice: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a sampler of neighbourhoods, checked."""
    options = {"name": choice} if isinstance(choice, str) else dict(choice)
    name = options.pop("name", "neighbor")
    if not isinstance(name, str):
        raise RecipeError("strategy.sampler: expected a name or a table with one")
    kind = samplers[name]
    if not kind.neighbourhoods:
        able = ", ".join(each for each in samplers.names() if samplers[each].neighbourhoods)
        raise RecipeError(f"strategy.sampler: {name!r} gives no neighbourhoods of seeds; use one of {able}")
    return name, bind(kind, options, "strategy.sampler", given=TO_SAMPLER)
