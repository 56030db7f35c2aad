"""A batch of flattened neighbourhoods as blocks: nodes that several records share are there once.

What was drawn for a node in a hop is the same in every record that has it, so its edges are taken from the
first of them. A layer's block holds the rows that later layers need and no others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft import kernels
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.views import GraphView
from weft.samplers.base import Batch
from weft.samplers.core.block import SampledBlock

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.strategies.records.record_graph import RecordValues

Ints = NDArray[np.int64]
EDGES = ("hop", "dst", "src", "edge")


@dataclass(frozen=True)
class Values:
    """Features of a node type that lie in the records."""

    node_type: str
    column: str
    width: int


@dataclass(frozen=True, eq=False)
class Records:
    """Some records as arrays, edges of all one after the other."""

    target: Ints
    ends: Ints
    """[n + 1] where the edges of each begin."""
    edges: dict[str, Ints]
    scale: NDArray[np.float32] | None
    """How many edges of the graph each stands for, where degrees of rows do not tell."""
    nodes: Ints | None
    node_ends: Ints | None
    """The nodes of each record, where their features are here, too."""
    values: dict[str, NDArray[np.float32]]
    """By node type, [rows of that type in `nodes`, width]."""
    lists: dict[str, tuple[Ints, NDArray[Any]]] = field(default_factory=dict)
    """By column what the records hold of the graph: where the items of each record begin, and all items."""
    places: dict[int, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.target)

    def place_of(self, first: int, last: int) -> Ints:
        """Return the place of each node among those of its type, which are first … last - 1; kept."""
        assert self.nodes is not None, "values are read with the nodes that they are of"
        if first not in self.places:
            self.places[first] = np.cumsum((self.nodes >= first) & (self.nodes < last)) - 1
        return self.places[first]

    @classmethod
    def of(cls, table: "pa.Table", values: Sequence[Values] = (), more: Sequence[str] = ()) -> "Records":
        """Return the records of a table; `more` names further columns that it has."""
        ends, first = _lists(table, EDGES[0])
        edges = {EDGES[0]: first} | {name: _lists(table, name)[1] for name in EDGES[1:]}
        scale = _lists(table, "scale")[1].astype(np.float32) if "scale" in table.column_names else None
        target = table.column("target").to_numpy().astype(np.int64)
        if not values:
            return cls(target, ends, edges, scale, None, None, {})
        node_ends, nodes = _lists(table, "nodes")
        values_of = {each.node_type: _lists(table, each.column)[1].reshape(-1, each.width) for each in values}
        lists = {name: _items(table, name) for name in more}
        return cls(target, ends, edges, scale, nodes, node_ends, values_of, lists)


Parts = Sequence[tuple[Records, Ints]]
"""Records that were read together, and rows of them."""


class RecordSource(Protocol):
    """What completes a batch of records: the graph that they are of, or more columns of theirs."""

    @property
    def graph(self) -> GraphView:
        """The graph, or what the records tell of it."""

    @property
    def columns(self) -> Sequence[str]:
        """What is read of the records beside their edges and features."""

    def known(self, parts: Parts, edge: Ints) -> "Graph | RecordValues":
        """Return degrees and edge data of some records, whose edges are given, by id."""

    def targets(self, parts: Parts) -> dict[str, Tensor]:
        """Return `y` of some records where they hold it; else the batch reads it of the graph."""


@dataclass(frozen=True, eq=False)
class WholeGraph:
    """A `RecordSource` of records that only refer to their graph."""

    graph: Graph
    columns: Sequence[str] = ()

    def known(self, parts: Parts, edge: Ints) -> Graph:
        """Return the graph, which has all of it."""
        return self.graph

    def targets(self, parts: Parts) -> dict[str, Tensor]:
        """Return nothing."""
        return {}


def batch_of(
    source: RecordSource,
    parts: Parts,
    hops: int,
    *,
    epoch: int,
    step: int,
    seeds: Ints | None = None,
) -> Batch:
    """Return the batch of some rows of records, in their order, as the sampler would give it.

    `seeds` are the nodes that outputs are wanted for, by default the targets.
    """
    target = np.concatenate([records.target[rows] for records, rows in parts]) if seeds is None else seeds
    drawn = [gather(records.ends, rows) for records, rows in parts]
    edges = {
        name: np.concatenate([records.edges[name][at] for (records, _), at in zip(parts, drawn)])
        for name in EDGES
    }
    owner = np.concatenate([np.repeat(rows, np.diff(records.ends)[rows]) for records, rows in parts])
    scale = None
    if parts[0][0].scale is not None:
        scale = np.concatenate(
            [records.scale[at] for (records, _), at in zip(parts, drawn) if records.scale is not None]
        )
    known = source.known(parts, edges["edge"])
    nodes, blocks = _blocks(known, target, edges, _Runs.of(owner, edges), scale, hops)
    data = {"x": _features(source.graph, nodes, parts)} if parts[0][0].values else {}
    data |= source.targets(parts)
    return Batch(source.graph, blocks, nodes, num_seeds=len(target), epoch=epoch, step=step, data=data)


@dataclass(frozen=True, eq=False)
class _Runs:
    """Edges of one record, hop and destination, which stand one after the other."""

    starts: Ints
    lengths: Ints
    hop: Ints
    dst: Ints

    @classmethod
    def of(cls, owner: Ints, edges: dict[str, Ints]) -> "_Runs":
        count = len(owner)
        new = np.ones(count, dtype=np.bool_)
        new[1:] = owner[1:] != owner[:-1]
        for name in ("hop", "dst"):
            new[1:] |= edges[name][1:] != edges[name][:-1]
        starts = np.flatnonzero(new)
        return cls(starts, np.diff(np.append(starts, count)), edges["hop"][starts], edges["dst"][starts])

    def of_rows(self, hop: int, rows: Ints) -> tuple[Ints, Ints]:
        """Return where the edges of each row in a hop begin, and how many there are."""
        chosen = np.flatnonzero(self.hop == hop)
        known, first = np.unique(self.dst[chosen], return_index=True)
        if not len(known):
            return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        places = np.minimum(np.searchsorted(known, rows), len(known) - 1)
        run = chosen[first[places]]
        there = known[places] == rows
        return self.starts[run], np.where(there, self.lengths[run], 0)


def _blocks(
    graph: "Graph | RecordValues",
    target: Ints,
    edges: dict[str, Ints],
    runs: _Runs,
    scale: NDArray[np.float32] | None,
    hops: int,
) -> tuple[Tensor, list[Block]]:
    """Return all rows, and the blocks in the order that a model takes them."""
    rows = torch.from_numpy(target)
    made: list[dict[str, Any]] = []
    for hop in range(hops):
        starts, counts = runs.of_rows(hop, rows.numpy())
        ends = np.concatenate([[0], np.cumsum(counts)])
        at = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], counts)
        rows, local = _find_rows(rows, torch.from_numpy(edges["src"][at]), graph.node_offsets)
        ids = torch.from_numpy(edges["edge"][at])
        made.append({
            "indptr": torch.from_numpy(ends), "indices": local.to(torch.int32), "num_src": len(rows),
            "edge_ids": ids, "edge_scale": None if scale is None else torch.from_numpy(scale[at]),
        })  # fmt: skip
    blocks: list[Block] = [
        SampledBlock(
            **parts,
            node_types=graph.node_types,
            node_offsets=graph.node_offsets,
            src_ids=rows[: parts["num_src"]],
            edge_type=None if graph.edge_type is None else graph.edge_type[parts["edge_ids"]],
            num_relations=graph.num_relations,
            edge_data=graph.edge_data,
            degrees=graph,
        )
        for parts in reversed(made)
    ]
    return rows, blocks


def _find_rows(rows: Tensor, ids: Tensor, node_offsets: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return all rows, new ones behind in order of appearance and then of types, and the row of each id."""
    before = len(rows)
    distinct, local = kernels.relabel(torch.cat([rows, ids]))
    local = local[before:]
    if len(node_offsets) > 2 and len(distinct) > before:
        new = distinct[before:]
        order = torch.bucketize(new, torch.tensor(node_offsets[1:-1]), right=True).argsort(stable=True)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order))
        places = torch.cat([torch.arange(before), places + before])
        distinct, local = torch.cat([rows, new[order]]), places[local]
    return distinct, local


def _features(graph: GraphView, nodes: Tensor, parts: Sequence[tuple[Records, Ints]]) -> Any:
    """Return the features of the rows from the records: a matrix, or one for each type that has them."""
    ids = nodes.numpy()
    features = {}
    for number, kind in enumerate(graph.node_types):
        if kind not in parts[0][0].values:
            continue
        first, last = graph.node_offsets[number : number + 2]
        typed = [_typed(records, rows, kind, first, last) for records, rows in parts]
        known, at = np.unique(np.concatenate([each[0] for each in typed]), return_index=True)
        wanted = ids[(ids >= first) & (ids < last)]
        values = np.concatenate([each[1] for each in typed])[at[np.searchsorted(known, wanted)]]
        dtype = graph.node_data[kind]["x"].dtype
        features[kind] = torch.from_numpy(values).to(dtype)
    return features if len(graph.node_types) > 1 else next(iter(features.values()))


def _typed(
    records: Records, rows: Ints, kind: str, first: int, last: int
) -> tuple[Ints, NDArray[np.float32]]:
    """Return the nodes of one type that some records have, and their features."""
    assert records.nodes is not None, "values are read with the nodes that they are of"
    assert records.node_ends is not None
    at = gather(records.node_ends, rows)
    at = at[(records.nodes[at] >= first) & (records.nodes[at] < last)]
    return records.nodes[at], records.values[kind][records.place_of(first, last)[at]]


def gather(ends: Ints, rows: Ints) -> Ints:
    """Return the places of the list items of some rows, one row after the other."""
    lengths = ends[rows + 1] - ends[rows]
    stops = np.cumsum(lengths)
    total = int(stops[-1]) if len(stops) else 0
    places: Ints = np.arange(total) + np.repeat(ends[rows] - stops + lengths, lengths)
    return places


def _items(table: "pa.Table", name: str) -> tuple[Ints, NDArray[Any]]:
    """Return where the items of each row begin, and all items; a column of numbers has one a row."""
    if hasattr(table.column(name).type, "value_type"):
        return _lists(table, name)
    return np.arange(table.num_rows + 1), table.column(name).to_numpy()


def _lists(table: "pa.Table", name: str) -> tuple[Ints, NDArray[Any]]:
    """Return where the list of each row begins, and all items."""
    column = table.column(name)
    chunks: Iterator[Any] = iter(column.chunks)
    parts = [(np.diff(chunk.offsets.to_numpy()), chunk.flatten()) for chunk in chunks]
    lengths = np.concatenate([length for length, _ in parts]) if parts else np.zeros(0, np.int64)
    items = [part.to_numpy(zero_copy_only=False) for _, part in parts]
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return ends, np.concatenate(items) if items else np.zeros(0, np.int64)
