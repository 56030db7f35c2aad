"""Batches of links in PyG's words: what `torch_geometric.loader.LinkNeighborLoader` takes and gives."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from weft.draw import Stream, fold
from weft.errors import GraphError, InputError
from weft.graph.build import EdgeType
from weft.graph.ends import mirrored
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.samplers.core.hidden import Hidden
from weft.samplers.core.pair_ends import EndRows
from weft.samplers.links.link_batch import LinkBatch
from weft.samplers.links.pyg_arguments import NegativeSampling, by_hop, check_as_is, links_of
from weft.samplers.loader import Loader
from weft.samplers.negative import NegativeSampler
from weft.samplers.neighbor import NeighborSampler


class LinkNeighborLoader(Loader):
    """Iterate over batches of links with the arguments of PyG's `LinkNeighborLoader`.

    `graph` is a `Graph`, or what `Graph.from_pyg` takes. `edge_label_index` [2, n] are the links, edges of it
    or not; by default all edges. With named node types it is `((source, relation, target), index)`, in
    the ids of the two types, or the relation alone. `batch.to_pyg()` has the fields of PyG.

    It differs from PyG's where a model could cheat. Links, and with `reverse` those the other way, are hidden
    from the batch that predicts them, as in `EdgeLoader`; `hide=False` shows them. Negatives are no edges
    of the graph; `exclude=False` allows them. All draws are by counters: the same for any number of threads,
    and after a resume. With `edge_label_time` a link sees no edge later than itself, by the `time` of edges:
    rows are (end, time) pairs, each once, and `batch` numbers those.

    >>> graph = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]])
    >>> loader = LinkNeighborLoader(graph, [2], batch_size=3, neg_sampling="triplet")
    >>> [(batch.input_id.tolist(), list(batch.negative.shape)) for batch in loader]
    [([0, 1, 2], [3, 1]), ([3], [1, 1])]
    """

    graph: Graph

    def __init__(
        self,
        graph: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Tensor | None = None,
        edge_label_time: Tensor | None = None,
        *,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        replace: bool = False,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        hide: bool = True,
        reverse: bool | None = None,
        exclude: bool = True,
        seed: int = 0,
        **options: Any,
    ) -> None:
        check_as_is(options, timed=edge_label_time is not None)
        if time_attr not in (None, "time", "edge_time") or (time_attr and edge_label_time is None):
            raise InputError(
                f"time_attr: expected 'time', that of edges, beside edge_label_time, got {time_attr!r}"
            )
        if reverse is not None and not hide:
            raise InputError("reverse: nothing is hidden; leave it out, or hide=False")
        graph = graph if isinstance(graph, Graph) else Graph.from_pyg(graph)
        self.wanted = NegativeSampling.of(neg_sampling, neg_sampling_ratio)
        self.kind, src, dst = links_of(graph, edge_label_index)
        self.links = self._with_answers(Pairs(src, dst), edge_label, edge_label_time)
        self.neighbours = NeighborSampler(
            graph,
            by_hop(num_neighbors),
            seed=seed,
            replace=replace,
            weight=None if weight_attr is None else weight_attr.removeprefix("edge_"),
            expand="once",
            temporal=edge_label_time is not None,
        )
        super().__init__(self.neighbours, batch_size=batch_size, shuffle=shuffle, **options)
        self.hide, self.both = hide, _reverses(graph, self.kind) if reverse is None else reverse
        self.sources, self.targets = self._samplers(exclude)

    def batch(self, epoch: int, step: int) -> Any:
        links = self.links.take(self.seeds_of(epoch, step))
        hidden = self._hidden(links) if self.hide else None
        asked, negative = self._drawn(links, epoch)
        nobody = asked.src.new_empty(len(asked), 0)
        ends = EndRows.of(asked, nobody if negative is None else negative, times=asked.time)
        more: dict[str, Any] = {"times": ends.times, "hidden": hidden}
        nodes = self.neighbours.sample(ends.seeds, epoch, step, **more).without_y()
        drawn = None if negative is None else ends.negative
        return LinkBatch(nodes, links.keys, ends.src, ends.dst, drawn, asked.y, asked.time, self.kind)

    def _checked(self, seeds: Any) -> Tensor:
        return torch.arange(len(self.links))

    def _with_answers(self, links: Pairs, label: Any, time: Any) -> Pairs:
        label, time = (None if column is None else torch.as_tensor(column).cpu() for column in (label, time))
        for name, column in (("edge_label", label), ("edge_label_time", time)):
            if column is not None and column.shape[:1] != (len(links),):
                shape = list(column.shape)
                raise GraphError(f"{name}: expected {len(links):,} values, one a link, got shape {shape}")
        if label is not None and self.wanted is not None:
            if self.wanted.mode == "triplet":
                raise InputError(
                    "edge_label: triplets have none, a link is told from its negatives; leave it out"
                )
            label = label + 1 if len(label) and label.min() == 0 else label  # 0 is a random link
        return replace(links, y=label, time=time)

    def _samplers(self, exclude: bool) -> tuple[NegativeSampler | None, NegativeSampler | None]:
        """Return what draws sources and targets of negatives."""
        if self.wanted is None:
            return None, None
        wanted, many = self.wanted, math.ceil(self.wanted.amount)
        src_weight = _weights(self.graph, wanted.src_weight, self.kind, 0)
        dst_weight = _weights(self.graph, wanted.dst_weight, self.kind, 2)
        seed = self.neighbours.seed
        if wanted.mode == "triplet":
            return None, NegativeSampler(self.graph, many, **dst_weight, exclude=exclude, seed=seed)
        other = fold(seed, Stream.NEGATIVE)  # the source of a link says nothing of its target
        return (
            NegativeSampler(self.graph, many, **src_weight, exclude=False, seed=other),
            NegativeSampler(self.graph, 1, **dst_weight, exclude=exclude, seed=seed),
        )

    def _drawn(self, links: Pairs, epoch: int) -> tuple[Pairs, Tensor | None]:
        """Return the links and the random ones after them; or targets [n, amount] beside them."""
        if self.targets is None or self.wanted is None:
            return links, None
        if self.sources is None:
            return links, self.targets.draw(links.keys, links.src, links.dst, epoch=epoch)
        many, count = self.sources.count, math.ceil(len(links) * self.wanted.amount)
        of = torch.arange(len(links)).repeat(many)[:count]  # the link that each stands beside, as in PyG
        sources = self.sources.draw(links.keys, links.src, links.src, epoch=epoch).T.flatten()[:count]
        keys = links.keys[of] * many + torch.arange(count) // max(1, len(links))
        targets = self.targets.draw(keys, sources, links.dst[of], epoch=epoch).flatten()
        label = torch.ones(len(links)) if links.y is None else links.y
        return Pairs(
            torch.cat([links.src, sources]),
            torch.cat([links.dst, targets]),
            y=torch.cat([label, label.new_zeros(count, *label.shape[1:])]),
            time=None if links.time is None else torch.cat([links.time, links.time[of]]),
        ), None

    def _hidden(self, links: Pairs) -> Hidden:
        src, dst = links.src, links.dst
        if self.both:
            src, dst = torch.cat([src, dst]), torch.cat([dst, src])
        return Hidden.between(self.graph, src, dst)


def _weights(graph: Graph, of_type: Any, kind: EdgeType | None, end: int) -> dict[str, Any]:
    """Return how negatives are drawn: uniformly, or by a weight for each node of the type of an end."""
    if of_type is None:
        return {}
    rows = slice(0, graph.num_nodes) if kind is None else graph.rows_of_type(kind[end])
    values, count = torch.as_tensor(of_type).cpu(), rows.stop - rows.start
    if values.shape != (count,):
        name = "dst_weight" if end else "src_weight"
        raise GraphError(
            f"neg_sampling: {name}: expected {count:,} values, one a node, got {list(values.shape)}"
        )
    weight = torch.zeros(graph.num_nodes, dtype=torch.float64)
    weight[rows] = values.double()
    return {"by": "weight", "weight": weight}


def _reverses(graph: Graph, kind: EdgeType | None) -> bool:
    """Return whether links the other way are to be hidden too: where every edge has one."""
    both = mirrored(graph)
    return bool(both.any() if kind is None else both[graph.edge_types.index(kind)])
