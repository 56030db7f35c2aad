"""Batches of pairs, for link prediction and tasks of edges: negatives, and the neighbourhood of all ends.

The pairs that a batch is to predict must not be among the edges its messages flow along, nor be counted by a
degree: a model would learn to look the answer up. So its neighbourhoods are those of a graph without them.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph.ends import drawn_order, edge_ends, first_of_each, mirrored, only, pair_ids
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.graph.views import EdgeView
from weft.samplers.core.hidden import HiddenPairs
from weft.samplers.core.pair_ends import AroundEnds, EndRows
from weft.samplers.gpu.transfer import Courier
from weft.samplers.loader import Loader
from weft.samplers.neighbor import NeighborSampler
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.samplers.workers.worker_loaders import CollectiveLoader


class PairNegatives(Protocol):
    """Negatives of pairs, as `weft.tasks.negatives` draws them."""

    @property
    def nodes(self) -> Tensor:
        """[n, k], with both sides [2 n, k], or [m] shared by all rows: global ids."""

    @property
    def masked(self) -> Tensor:
        """What is no negative of a row."""

    @property
    def log_q(self) -> Tensor | None:
        """[m] corrections of shared ones."""


class Draws(Protocol):
    """What draws negatives: a function of what it is given alone, so that any worker draws the same."""

    def __call__(self, pairs: Pairs, epoch: int, step: int, *, batch: Pairs) -> Tensor | PairNegatives:
        """Return the negatives of pairs; `batch` has all pairs of the step, whoever holds them."""


@dataclass(eq=False, repr=False)
class EdgeBatch(AroundEnds):
    """Pairs and their negatives: `h = model(batch.blocks, batch.x)` has a row for each end.

    `h[batch.src]`, `h[batch.dst]` are the ends of pairs, `h[batch.negative]` [n, count, ...] those that the
    sources are not joined to.
    """

    pairs: Pairs
    """Those of the step; with workers, those whose `dst` this one owns."""
    src: Tensor
    """[n] rows of the seeds."""
    dst: Tensor
    """[n]"""
    negative: Tensor
    """[n, count]; with both sides [2 n, count], or [m] shared by all; without negatives [n, 0]."""
    masked: Tensor | None = None
    """What is no negative of a row, where whoever draws them tells; see `weft.tasks.negatives`."""
    log_q: Tensor | None = None
    """[m] corrections of shared negatives, where whoever draws them tells."""
    total: int = 0
    """The pairs of the step on all workers."""
    penalty: Tensor | None = None
    """[rows] what is added to the loss of each row of outputs, once its rows are known."""

    @property
    def edges(self) -> Tensor:
        """[n] what pairs are told apart by: of edges of the graph, places in canonical order."""
        return self.pairs.keys

    @property
    def num_targets(self) -> int:
        """What is asked for: the pairs."""
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"EdgeBatch(pairs={len(self.pairs):,}, nodes={self.nodes!r})"

    def carried(self, courier: Courier) -> "EdgeBatch":
        """Return the batch on the courier's device."""
        names = ("pairs", "src", "dst", "negative", "masked", "log_q")
        moved = courier.moved({name: getattr(self, name) for name in names})
        nodes = courier.carry(self.nodes) if self.nodes.nodes.is_cpu else self.nodes
        return replace(self, nodes=nodes, **moved)


class EdgeLoader(CollectiveLoader):
    """Iterate over batches of pairs, prepared by threads in a fixed order, as `Loader` does over nodes.

    `pairs` are `Pairs`, or edges of the graph by place in canonical order, by default all. `negatives` is
    called with the pairs, the epoch and the step, a `NegativeSampler` or what `weft.tasks.negatives` draws;
    None: none.

    With `hide` a batch is that of a graph without the pairs it is to predict: without every edge between the
    same ends, whatever its relation, and, with `reverse`, those the other way. By default reverses are hidden
    for pairs of a relation that has each of its edges in both directions, there or in another relation; a
    directed graph keeps them. They are gone before neighbours are drawn, so a row draws its whole fanout from
    what is left. With a temporal sampler no end sees what is later than its pair, where pairs have times.

    With a `PartitionedSampler` all workers take the same steps, each with the pairs whose `dst` it owns, and
    hide those of all: the pairs of any number of workers are those of one process, in the same graph. Its
    group is used by the thread that prepares batches, and so by nobody else.
    """

    def __init__(
        self,
        sampler: NeighborSampler | PartitionedSampler,
        negatives: Draws | None,
        pairs: Any = None,
        *,
        batch_size: int = 1024,
        hide: bool = True,
        reverse: bool | None = None,
        **options: Any,
    ) -> None:
        draws = sampler.drawn_by
        if options.get("courier") is not None and sampler.together:
            raise InputError("courier: batches of workers stay on the CPU; leave it out")
        if reverse is not None and not hide:
            raise InputError("reverse: nothing is hidden; leave it out, or hide=False")
        if hide and not draws.hides:
            raise InputError("hide: its draws see all edges; use a NeighborSampler, or hide=False")
        if sampler.together and not isinstance(pairs, Pairs):
            raise InputError("pairs: with workers expected Pairs, the same on all of them")
        self.pairs = pairs if isinstance(pairs, Pairs) else pairs_of_edges(sampler.graph, pairs)
        self.neighbours, self.negatives, self.hide, self.draws = sampler, negatives, hide, draws
        super().__init__(sampler, torch.arange(len(self.pairs)), batch_size=batch_size, **options)
        self._both = self._reverses(reverse) if hide else torch.zeros(0, dtype=torch.bool)

    def __iter__(self) -> Generator[Any, None, None]:
        """Give the batches from the present step on; in one process threads prepare them in any order."""
        return super().__iter__() if self.neighbours.together else Loader.__iter__(self)

    def pairs_of(self, epoch: int, step: int) -> Pairs:
        """Return the pairs of a step, those of all workers."""
        return self.pairs.take(self.seeds_of(epoch, step))

    def own(self, pairs: Pairs) -> Pairs:
        """Return the pairs that this worker has: all, or those whose `dst` it owns."""
        own = self.neighbours.owns(pairs.dst)
        return pairs if own is None else pairs.take(own)

    def batch(self, epoch: int, step: int) -> Any:
        everybody = self.pairs_of(epoch, step)
        pairs = self.own(everybody)
        # Negatives are drawn for own pairs alone, but told of all pairs of the step: in-batch ones are the
        # ends of others, and every worker must see the same batch.
        drawn: Any = pairs.src.new_empty(len(pairs), 0)
        if self.negatives is not None:
            drawn = self.negatives(pairs, epoch, step, batch=everybody)
        negative = drawn if isinstance(drawn, Tensor) else drawn.nodes
        more: dict[str, Any] = {"hidden": self._hidden(everybody)} if self.hide else {}
        timed = self.draws.times is not None and pairs.time is not None
        times = self.neighbours.moments(cast(Tensor, pairs.time)) if timed else None
        ends = EndRows.of(pairs, negative, times=times)
        if ends.times is not None:
            more["times"] = ends.times
        # Seeds are ends of any type, of which most have no y to be read.
        nodes = self.neighbours.sample(ends.seeds, epoch, step, **more).without_y()
        masked, log_q = (getattr(drawn, name, None) for name in ("masked", "log_q"))
        return EdgeBatch(nodes, pairs, ends.src, ends.dst, ends.negative, masked, log_q, total=len(everybody))

    def _reverses(self, reverse: bool | None) -> Tensor:
        """Return of each relation whether reverses are hidden too."""
        sampler = self.neighbours
        if reverse is not None:
            return torch.full((sampler.graph.num_relations,), reverse)
        return sampler.mirrored()

    def _hidden(self, pairs: Pairs) -> HiddenPairs:
        src, dst, kinds = pairs.src, pairs.dst, pairs.relation
        # Pairs without a relation may be of any: reverses are hidden where some relation has them.
        both = self._both.any().expand(len(src)) if kinds is None else self._both[kinds]
        return HiddenPairs(torch.cat([src, dst[both]]), torch.cat([dst, src[both]]))

    def _make(self, epoch: int, step: int) -> Any:
        batch = self.batch(epoch, step)
        if self.courier is not None:
            batch = batch.carried(self.courier)
        return batch.fetch() if self.convert is None else self.convert(batch)

    def _checked(self, seeds: Any) -> Tensor:
        """Return the places of pairs, once the ends are known to be nodes."""
        ends, count = torch.cat([self.pairs.src, self.pairs.dst]), self.graph.num_nodes
        wrong = ends[(ends < 0) | (ends >= count)]
        if wrong.numel():
            raise GraphError(f"pairs: expected ids 0 … {count - 1:,}, got {int(wrong[0]):,}")
        return torch.as_tensor(seeds)


def pairs_of_edges(graph: EdgeView, edges: Any = None) -> Pairs:
    """Return edges of a graph, places in canonical order, as pairs whose keys are these places."""
    count = graph.num_edges
    places = torch.arange(count) if edges is None else torch.as_tensor(edges).long()
    wrong = places[(places < 0) | (places >= count)]
    if wrong.numel():
        raise GraphError(f"edges: expected places 0 … {count - 1:,}, got {int(wrong[0]):,}")
    src, dst, kinds = edge_ends(graph)
    time = graph.edge_data.get("time")
    return Pairs(
        src[places],
        dst[places],
        places,
        relation=None if graph.edge_type is None else kinds[places],
        time=None if time is None else time[places],
    )


def split_edges(
    graph: Graph, *, val: float = 0.05, test: float = 0.1, undirected: bool | None = None, seed: int = 0
) -> tuple[Graph, Tensor, Tensor]:
    """Return the graph without some edges, and those: (2, n) to choose a model by and (2, m) to test it.

    With `undirected`, by default where the graph has every edge in both directions, both directions of a pair
    are taken out and one of them is given. Else edges are taken one by one, and keep their direction. All
    parallel copies of an edge are taken out with it. `weft.tasks.split_pairs` splits by time, relation and
    label too.
    """
    if val < 0 or test < 0 or val + test >= 1:
        raise InputError(f"val and test are shares that leave some edges, got {val!r} and {test!r}")
    if undirected is None:
        undirected = bool(mirrored(graph).all())
    src, dst, _ = edge_ends(graph)
    pairs = pair_ids(src, dst, graph.num_nodes, undirected=undirected)
    distinct, pair_of = torch.unique(pairs, return_inverse=True)
    order = drawn_order(distinct, seed)
    first, second = round(val * len(distinct)), round((val + test) * len(distinct))
    taken = torch.zeros(len(distinct), dtype=torch.bool)
    taken[order[:second]] = True
    one = first_of_each(
        pair_of, src > dst
    )  # of each pair an edge that is there, from its lower end if it can be
    val_edges, test_edges = (
        torch.stack([src[one[part]], dst[one[part]]]) for part in (order[:first], order[first:second])
    )
    return only(graph, ~taken[pair_of]), val_edges, test_edges
