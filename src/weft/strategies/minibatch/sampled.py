"""Mini-batches of sampled neighbourhoods, in one process or data parallel over a partitioned graph.

An epoch is a number of steps. The seeds of step t are a function of (seed, epoch, t), what is drawn for a
node of (seed, epoch, node), and dropout is keyed by (seed, epoch, t, node): so the steps do not depend on how
many threads prepare batches, nor on how many workers take part, each with the seeds that it owns.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Unpack, cast

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.rows import owners
from weft.config import Range, bind
from weft.errors import GraphError, InputError, RecipeError, WeftWarning
from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures
from weft.kernels import gpu
from weft.partitioners.base import partitioners
from weft.samplers.base import Batch, Sampler, samplers
from weft.samplers.core.temporal import check_finite
from weft.samplers.loader import Loader
from weft.samplers.workers.asking import LABEL
from weft.samplers.workers.partitioned import PartitionedSampler, on_workers
from weft.samplers.workers.replicas import Replicate, important, with_replicas
from weft.stores.base import Counters, Store, stores
from weft.stores.cached import CachedStore
from weft.stores.open import as_read, check_store, open_store, with_store
from weft.stores.rankers import frequency
from weft.stores.typed import TypedStores
from weft.strategies.base import evaluating, strategies
from weft.strategies.hops import found_hops
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.batches import Batches, Shared
from weft.strategies.minibatch.closing import CLOSURE, closed_shard
from weft.strategies.minibatch.fanouts import Fanouts, Hops, by_hop, check_fanouts, usual_fanouts
from weft.strategies.minibatch.pairs import refuse_nodes_alone, refuse_typed_store
from weft.strategies.minibatch.placement import Where
from weft.strategies.minibatch.replay import Replay
from weft.strategies.minibatch.sampler_ranks import ReceivingLoader, check_samplers, dismiss
from weft.tasks.base import Pieces
from weft.tasks.nodes import NodeTargets

_NOT_CLOSED = ("store", "samplers", "replicate", "temporal")


@strategies.add("sampled")
class Sampled(Batches):
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

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
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
        **given: Unpack[Shared],
    ) -> None:
        group = given.get("group")
        if replicate is not None and (group is None or group.size == 1):
            raise RecipeError(
                "strategy.replicate: one process holds every neighbourhood; leave it out, or add --workers N"
            )
        if samplers and (group is None or group.parent is None):
            check_samplers(samplers, 1)
        if store is not None and isinstance(graph, Graph):
            self._opened = open_store(store, graph, "later")
            graph = with_store(graph, self._opened)
        elif store is not None and isinstance(graph, LocalGraph):
            graph = LocalGraph(as_read(graph.shard, store), facts=graph.facts)
        super().__init__(graph, **given)
        if self.task.over == "pairs":
            refuse_typed_store(store, graph.node_types)
        self.store_options, self.samplers = store, samplers
        self._store: Store | TypedStores | None = None  # of several workers
        self.replicate = None if replicate is None else check_replicate(replicate)
        self._important: Tensor | None = None
        self.fanout: int | Sequence[Any] | None = by_hop(fanout, graph.edge_types, "strategy.fanout")
        self.batch_size, self.threads = batch_size, prepare
        self.kind, self.options = check_sampler(sampler)
        self.temporal = temporal
        if temporal:
            self._check_times()
            self.options = {**self.options, "temporal": True}
        self.evaluation, self.local_seeds = evaluate, seeds == "local"
        self.sample_on = sample_on
        if sample_on == "gpu" and self.device.type != "cuda":
            raise RecipeError("strategy.sample_on: 'gpu' needs one; set train.device = 'cuda'")
        self.closed = self._closes(closed, partitioner)
        self._evaluator: Sampler | None = None
        self._replay: Replay | None = None
        if self.local_seeds and isinstance(graph, Graph):
            raise RecipeError(
                "strategy.seeds: in one process all seeds are its own; leave out 'local', or add --workers N"
            )
        if self.local_seeds and self.group.size > 1:
            warnings.warn(
                "strategy.seeds = 'local': each worker shuffles its own seeds, so the steps depend on the "
                "number of workers; 'global' does not",
                WeftWarning,
                stacklevel=2,
            )

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
    def layout(cls, options: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return how workers are arranged; refuse a sampler that cannot draw from parts of a graph."""
        name, _ = check_sampler(options.get("sampler", "neighbor"))
        if not samplers[name].on_workers:
            raise RecipeError(f"strategy.{on_workers(name)}")
        if options.get("store") is not None:
            check_store(options["store"], workers)
        return super().layout(options, workers)

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

    # An epoch

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model of another number of hops than there are fanouts."""
        checked_hops(model, self.fanout, "strategy.fanout", self.graph.x)
        if self.evaluation != "exact":
            checked_hops(model, self.evaluation, "strategy.evaluate", self.graph.x)

    def make_loader(self, model: nn.Module) -> Loader:
        """Return what prepares the batches; there must be a fanout for each hop of the model."""
        hops = checked_hops(model, self.fanout, "strategy.fanout", self.graph.x)
        fanout = self._fanouts(self.fanout, hops)
        self._fill_cache(fanout)
        loader = self._make_loader(fanout)
        plain = loader.sampler.plain and not isinstance(loader.sampler.graph.x, SparseFeatures)
        plain = plain and self.task.over == "nodes"
        plain = plain and not self.task.loss.own  # a function of the user's may do anything
        if self.nearby is not None and plain and Replay.suits(model, fanout):
            self._replay = Replay(self._mean_loss, fanout)
            loader.convert = self._replay.fetch
        return loader

    def gradients(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, step: int
    ) -> tuple[Tensor, int]:
        """Fill the gradients of a step, on a GPU by what was captured of one of its size."""
        if self._replay is not None and self._replay.able and batch.seeds.numel():
            with self.events.phase("forward"):
                loss = self._replay(model, batch, self.clock)
            if loss is not None:
                return loss, batch.seeds.numel()
        with nullcontext() if self.nearby is None else gpu.uncaptured():  # a thread may capture draws
            return super().gradients(model, optimizer, batch, step)

    def counters(self) -> Counters | None:
        """Return what was read from the store of the features; None where they are no store's."""
        return super().counters() if self._opened is None else self._opened.counters

    def close(self) -> None:
        """Take the hooks off the model, let the samplers go, and the memory of what was captured."""
        super().close()
        self._replay = None
        if self._loader is not None:
            self._loader.convert = None
        if self.samplers and self.group.parent is not None:
            dismiss(self.group.parent)
            self.samplers = 0

    # Evaluation

    def split_outputs(self, model: nn.Module) -> dict[str, Pieces]:
        """Return the outputs of the own rows of each split: exact, or from samples."""
        if self.evaluation == "exact" and not self.temporal:
            return super().split_outputs(model)
        return {
            split: [(self._sampled_outputs(model, held.rows), held.y)]
            for split, held in self.scored.items()
            if isinstance(held, NodeTargets)
        }

    # Underneath

    def _mean_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        outputs = self.batch_outputs(model, batch)
        return self.task.loss.summed(outputs, self.task.values_of_batch(batch)) / batch.seeds.numel()

    def _sampled_outputs(self, model: nn.Module, rows: Tensor) -> Tensor:
        """Return the outputs of own rows of the target type, from samples of their own fanouts."""
        fanout = -1 if self.evaluation == "exact" else self.evaluation
        hops = checked_hops(model, fanout, "strategy.evaluate", self.graph.x)
        if self._evaluator is None:
            self._evaluator = self._make_sampler(self._fanouts(fanout, hops))
        sampler = self._evaluator
        ids = self._ids(rows)
        chunks = list(torch.split(ids, self.batch_size))
        (steps,) = self.agree(len(chunks))
        chunks += [ids[:0]] * (int(steps) - len(chunks))
        batches = (sampler.sample(chunk, int(self.clock[1]), step) for step, chunk in enumerate(chunks))
        if self.nearby is not None:
            batches = (self.nearby.brought(batch) for batch in batches)
        with evaluating(model):
            outputs = [self.batch_outputs(model, batch).cpu() for batch in batches if batch.seeds.numel()]
        double = any(parameter.dtype == torch.float64 for parameter in model.parameters())
        wide = torch.float64 if double else torch.float32
        return torch.cat(outputs) if outputs else torch.zeros(0, self.task.width, dtype=wide)

    def _node_outputs(self, model: nn.Module) -> Tensor:
        """Return the outputs of all own rows, where edges have times from those that each may see."""
        if not self.temporal:
            return super()._node_outputs(model)
        rows = self.graph.target_rows
        return self._sampled_outputs(model, torch.arange(rows.stop - rows.start))

    def _check_times(self) -> None:
        """Refuse a graph without times, of edges and of all nodes that are trained on or predicted."""
        graph, kind = self.graph, self.graph.target_type
        time = graph.node_data[kind].get("time")
        if "time" not in graph.edge_data or time is None:
            what = "edge data 'time'" if "time" not in graph.edge_data else f"node data 'time' of {kind!r}"
            raise GraphError(f"strategy.temporal: the graph has no {what}: when an edge, and a node, came")
        check_finite(self._ids(torch.arange(len(time))), cast(Tensor, time))
        if self.device.type != "cpu":
            raise RecipeError("strategy.temporal: batches by time stay on the CPU; set train.device = 'cpu'")

    def _fill_cache(self, fanout: Hops) -> None:
        """Hold the rows that this model's batches read most often, where a cache waits for them."""
        cache = self._opened
        if (
            isinstance(cache, CachedStore | TypedStores)
            and not cache.ranked
            and isinstance(self.graph, Graph)
        ):
            cache.hold(frequency(self._drawing(self.graph, fanout), batch_size=self.batch_size))
            self._nearby = None  # what a GPU has of the store is of before

    def _drawing(self, graph: Graph, fanout: Hops) -> Sampler:
        made: Any = samplers[self.kind]
        drawn: Sampler = made(graph, fanout, **{"seed": int(self.clock[0]), **self.options})
        return drawn

    def _make_sampler(self, fanout: Hops) -> Sampler:
        if isinstance(self.graph, Graph):
            make = partial(self._drawing, fanout=fanout)
            # A GPU draws from all edges.
            where: Where = self.sample_on if self.task.over == "nodes" else "cpu"
            return make(self.graph) if self.nearby is None else self.nearby.sampler(make, where)
        options = {"seed": int(self.clock[0]), "kind": self.kind, **self.options}
        shard, lane = self.graph.shard, self._lane
        if self._store is None and self.store_options is not None:
            trial = PartitionedSampler(shard, lane, fanout, **options)
            self._store = open_store(self.store_options, shard, lambda: self._reads(trial), group=lane)
            self._opened = self._store
        sampler = PartitionedSampler(shard, lane, fanout, features=self._store, **options)
        if self.replicate is not None:
            if self._important is None:
                self._important = important(shard, lane, self.replicate)
            sampler.hold(with_replicas(sampler, self._important), self._important)
        return sampler

    def _training_sampler(self, fanout: Hops) -> Sampler:
        if not self.closed or isinstance(self.graph, Graph):
            return self._make_sampler(fanout)
        shard = self.graph.shard
        held = closed_shard(shard, self._lane, self._ids(self._train_rows()), len(fanout))
        rows = torch.tensor([len(held.node_ids)], dtype=torch.int64)
        copies = int(self.group.all_reduce(rows, label=CLOSURE).wait()) / shard.num_nodes
        self.events.write("closure", rows=len(held.node_ids), own=len(shard.node_ids), replication=copies)
        options = {"seed": int(self.clock[0]), "kind": self.kind, **self.options}
        return PartitionedSampler(held, Group.alone(), fanout, **options)

    def _closes(self, asked: bool | None, partitioner: str | Mapping[str, Any]) -> bool:
        """Return whether workers hold all that their training nodes read; refuse where that cannot be."""
        if asked and isinstance(self.graph, Graph):
            raise RecipeError(
                "strategy.closed: one process holds the whole graph; leave it out, or add --workers N"
            )
        name = partitioner if isinstance(partitioner, str) else partitioner.get("name")
        others = (
            self.store_options is not None or self.replicate is not None or self.samplers or self.temporal
        ) or self.task.over != "nodes"
        closes = isinstance(name, str) and partitioners[name].closes
        return closes and not others if asked is None else asked

    def _reads(self, trial: PartitionedSampler) -> tuple[Callable[[int, int], Tensor], int]:
        """Return the nodes of this worker's batches, by epoch and step, and the number of steps."""
        loader = self._partitioned(trial, local=self.local_seeds)
        return lambda epoch, step: trial.reach(loader.seeds_of(epoch, step), epoch, step).rows, len(loader)

    def _make_loader(self, fanout: Hops) -> Loader:
        sampler = self._training_sampler(fanout)
        given: dict[str, Any] = {"batch_size": self.batch_size, "threads": self.threads}
        given["courier"] = None if self.nearby is None else self.nearby.courier
        loader = self.task.make_loader(sampler, **given)
        if loader is not None:
            return loader
        if not isinstance(sampler, PartitionedSampler):
            return Loader(sampler, **given)
        if self.closed and isinstance(self.graph, LocalGraph):
            owner = owners(self.graph.shard.node_ids, self.graph.num_nodes, self._lane, label=LABEL)
            return self._partitioned(sampler, local=self.local_seeds, owner=owner)
        if not self.samplers:
            return self._partitioned(sampler, local=self.local_seeds)
        more: dict[str, Any] = {"whole": self.group.parent, "hops": len(fanout), "local": self.local_seeds}
        return self._partitioned(sampler, ReceivingLoader, **more)

    @staticmethod
    def _fanouts(fanout: Any, hops: int) -> Hops:
        if fanout is None:
            return usual_fanouts(hops)
        return [fanout] * hops if isinstance(fanout, int) else list(fanout)


def check_replicate(given: float | Mapping[str, Any]) -> Replicate:
    """Return which neighbourhoods every worker is to hold: a threshold, or a table with it and `hops`."""
    options = dict(given) if isinstance(given, Mapping) else {"threshold": given}
    return Replicate(**bind(Replicate, options, "strategy.replicate"))


def check_sampler(given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a sampler of neighbourhoods, checked."""
    options = {"name": given} if isinstance(given, str) else dict(given)
    name = options.pop("name", "neighbor")
    if not isinstance(name, str):
        raise RecipeError("strategy.sampler: expected a name or a table with one")
    kind = samplers[name]
    if not kind.neighbourhoods:
        able = ", ".join(each for each in samplers.names() if samplers[each].neighbourhoods)
        raise RecipeError(f"strategy.sampler: {name!r} gives no neighbourhoods of seeds; use one of {able}")
    given_here = ("graph", "fanout", "seed", "expand", "temporal")
    return name, bind(kind, options, "strategy.sampler", given=given_here)


def checked_hops(model: nn.Module, fanout: int | Sequence[Any] | None, where: str, x: Any = None) -> int:
    """Return the number of hops; refuse a list of fanouts of another length than the model has hops.

    x are the features, on which a model that does not say is tried.
    """
    hops = found_hops(model, x)
    if hops is None and isinstance(fanout, Sequence):
        return len(fanout)
    if hops is None:
        raise InputError(
            f"{type(model).__name__} does not tell how many hops it takes: say hops=2 (in a recipe: "
            f"model.hops = 2), or give {where} as a list, one number a hop"
        )
    if isinstance(fanout, Sequence) and len(fanout) != hops:
        raise InputError(
            f"{where}: the model takes {hops} hops, {list(fanout)} are {len(fanout)}; give one fanout a hop"
        )
    return hops
