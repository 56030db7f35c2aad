"""A shard: what one part of a graph holds. Data only; the blocks that communicate are in `strategies/`.

A shard has its own rows (`node_ids`), the remote source rows of its edges (the halo), its edges by
destination in canonical order, the degrees of its rows in the whole graph, and the data of its own rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.degrees import Degrees, Direction
from weft.graph.graph import Graph
from weft.graph.node_data import TargetCounts
from weft.graph.parts.assignment import Assignment, Cuts
from weft.graph.parts.cut import EdgeRun, Piece, as_assignment, pieces
from weft.graph.parts.gathered import Gathering, InMemory
from weft.graph.sorting import distinct
from weft.graph.sparse import Features, SparseFeatures
from weft.graph.topology import index_dtype

EdgeType = tuple[str, str, str]
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Shard:
    """One part of a graph, or several merged. Rows 0 … n − 1 are `node_ids`, then come `halo_ids`."""

    part: int | tuple[int, ...]
    """The part; after a merge all its parts, ascending."""
    num_parts: int
    num_nodes: int
    """Nodes of the whole graph."""
    num_edges: int
    """Edges of the whole graph."""
    cuts: Cuts
    """"nodes": own rows are the nodes assigned here, edges those into them. "edges": own rows are replicas of
    the ends of its edges. "grid": own rows as for nodes, edges those of one block of the matrix."""
    node_ids: Tensor
    """[n] int64 global ids, ascending, so sorted by type."""
    node_part: Tensor
    """[n] int32 the part that owns each row: where edges are assigned, the root among the replicas."""
    halo_ids: Tensor
    """[m] int64 global ids of remote rows that edges touch (sources; on a grid destinations too), sorted by
    (owner, id); empty where edges are assigned."""
    halo_part: Tensor
    """[m] int32 the part that owns each halo row."""
    indptr: Tensor
    """[n + 1] int64; on a grid [n + m + 1], as any row may be a destination."""
    indices: Tensor
    """[e] source rows."""
    edge_ids: Tensor
    """[e] int64 canonical ids in the whole graph, ascending; on a grid by destination row, then so."""
    edge_type: Tensor | None
    """[e] int32 relation, None where there is one."""
    edge_data: dict[str, Tensor]
    """[e, ...] by name."""
    degrees: Degrees
    """`degrees[direction, relation or None, weighted]`: [n + m] in the whole graph; of weights float64."""
    node_data: dict[str, dict[str, Features]]
    """x, y, masks of the own rows, by node type."""
    node_types: list[str]
    node_offsets: list[int]
    """Of the whole graph."""
    edge_types: list[EdgeType]
    edge_columns: dict[str, list[int | None]]
    """Where relations differ in edge data: the columns each has of a name."""
    target_type: str
    num_classes: int
    multilabel: bool
    grid: tuple[int, int] | None = None
    """Rows and columns of parts where `cuts` is "grid"."""

    @property
    def target_counts(self) -> TargetCounts:
        """What y of the whole graph is."""
        return TargetCounts(self.num_classes, self.multilabel)

    @property
    def parts(self) -> tuple[int, ...]:
        """The parts held, ascending."""
        return self.part if isinstance(self.part, tuple) else (self.part,)

    @property
    def row_ids(self) -> Tensor:
        """The global id of each row: own rows, then halo, [n + m] int64."""
        return torch.cat([self.node_ids, self.halo_ids])

    def degree(self, direction: Direction, relation: int | None, weighted: bool) -> Tensor:
        """Return the degree in the whole graph of each row, [n + m] float32; of weights float64."""
        return self.degrees[direction, relation, weighted]

    def own_out_degrees(self) -> tuple[Tensor, Tensor]:
        """Return the global ids of the own rows, and the edges of the whole graph out of each."""
        return self.node_ids, self.degrees.out_of.count[: len(self.node_ids)]

    def ends(self) -> tuple[Tensor, Tensor]:
        """Return source and target of each edge that is here, [e] int64 global ids."""
        rows, targets = self.row_ids, torch.repeat_interleave(self.indptr.diff())
        return rows[self.indices.long()], rows[targets]

    def type_ranges(self) -> dict[str, slice]:
        """Return the own rows of each node type."""
        offsets = torch.tensor(self.node_offsets, device=self.node_ids.device)
        bounds = torch.searchsorted(self.node_ids, offsets).tolist()
        return {kind: slice(*bounds[index : index + 2]) for index, kind in enumerate(self.node_types)}

    def of_target(self, name: str, ids: Tensor) -> Tensor | None:
        """Return what nodes of the target type have under a name; None where one is not here."""
        own, data = self.node_ids[self.type_ranges()[self.target_type]], self.node_data[self.target_type]
        rows = torch.searchsorted(own, ids)
        known = len(own) > 0 and torch.equal(own[rows.clamp(max=len(own) - 1)], ids)
        return cast(Tensor, data[name])[rows] if name in data and (known or not len(ids)) else None

    def known_data(self, ids: Tensor) -> dict[str, Tensor]:
        """Return what is known of nodes of the target type by name, of those that others own nothing: -1."""
        y: Any = self.node_data[self.target_type].get("y")
        if y is None:
            return {}
        own = self.node_ids[self.type_ranges()[self.target_type]]
        there = torch.isin(ids, own)
        known: Tensor = y.new_full((len(ids), *y.shape[1:]), -1)
        known[there] = y[torch.searchsorted(own, ids[there])]
        return {"y": known}

    @staticmethod
    def merge(shards: "Sequence[Shard]") -> "Shard":
        """Return one shard that holds all the given parts; the halo is what none of them holds."""
        return _merge(list(shards))


def make_shards(graph: Graph, parts: Assignment | Tensor) -> list[Shard]:
    """Return the shard of every part; `parts` is an assignment, or the part of each node [N]."""
    return list(iterate_shards(graph, parts))


def iterate_shards(graph: Graph, parts: Assignment | Tensor) -> Iterator[Shard]:
    """Give one shard after the other, so that one at a time is held."""
    return (cut(InMemory()) for cut in shard_cuts(graph, as_assignment(graph, parts)))


def shard_cuts(graph: Graph, assignment: Assignment) -> Iterator[Callable[[Gathering], Shard]]:
    """Give what cuts each shard out, once it is told where its edges and the data of its rows are gathered.

    Beside these, memory is a few numbers for each node of the graph, and some edges at a time.
    """
    degrees = Degrees.of(graph)
    for piece in pieces(graph, assignment):
        yield partial(_cut_out, graph, assignment, piece, degrees)


def edge_array(place: int) -> str:
    """Return the name of an array of edge data, by its place among them."""
    return f"edge_{place}"


def node_array(number: int, place: int) -> str:
    """Return the name of an array of node data, by the number of the type and its place among them."""
    return f"node_{number}_{place}"


def _cut_out(graph: Graph, assignment: Assignment, piece: Piece, degrees: Degrees, into: Gathering) -> Shard:
    halo_ids, halo_part = _halo(graph, assignment, piece)
    rows = torch.cat([piece.node_ids, halo_ids])
    row_of = torch.empty(graph.num_nodes, dtype=index_dtype(len(rows)))  # what is no row here is never read
    row_of[rows] = torch.arange(len(rows), dtype=row_of.dtype)
    num_targets = len(rows) if assignment.cuts == "grid" else len(piece.node_ids)
    edges = _ShardEdges(graph, piece.num_edges, num_targets, row_of.dtype, into)
    for run in _by_destination(piece, row_of) if assignment.cuts == "grid" else piece.runs():
        edges.append(run.edges, row_of[run.src], row_of[run.dst])
    del row_of
    return Shard(
        part=piece.part,
        num_parts=assignment.num_parts,
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        cuts=assignment.cuts,
        node_ids=piece.node_ids,
        node_part=piece.node_part,
        halo_ids=halo_ids,
        halo_part=halo_part,
        **edges.close(),
        degrees=degrees.rows(rows),
        node_data=_rows_of_data(graph, piece.node_ids, into),
        node_types=list(graph.node_types),
        node_offsets=list(graph.node_offsets),
        edge_types=list(graph.edge_types),
        edge_columns=dict(graph.edge_columns),
        target_type=graph.target_type,
        **graph.target_counts._asdict(),
        grid=assignment.grid,
    )


def _halo(graph: Graph, assignment: Assignment, piece: Piece) -> tuple[Tensor, Tensor]:
    """Return the remote rows that a part's edges touch, sorted by owner, and these."""
    touched = torch.zeros(graph.num_nodes, dtype=torch.bool)
    if assignment.cuts != "edges":  # else a part has a replica of every end
        for run in piece.runs():
            touched[run.src] = True
            if assignment.cuts == "grid":
                touched[run.dst] = True
        touched[piece.node_ids] = False
    halo = touched.nonzero().flatten()
    owner = assignment.parts[halo]
    order = torch.argsort(owner, stable=True)
    return halo[order], owner[order].int()


def _by_destination(piece: Piece, row_of: Tensor) -> Iterator[EdgeRun]:
    """Give all edges of a part in the order of their destination rows."""
    edges, src, dst = (torch.cat(ends) for ends in zip(*piece.runs()))
    order = torch.argsort(row_of[dst], stable=True)
    yield EdgeRun(edges[order], src[order], dst[order])


class _ShardEdges:
    """The edges of a shard as they come, in the order of their destination rows."""

    def __init__(
        self, graph: Graph, count: int, num_targets: int, row_type: torch.dtype, into: Gathering
    ) -> None:
        self.graph, self.counts = graph, torch.zeros(num_targets + 1, dtype=torch.int64)
        self.values = {edge_array(place): value for place, value in enumerate(graph.edge_data.values())}
        if graph.edge_type is not None:
            self.values["edge_type"] = graph.edge_type
        types: dict[str, Any] = {"indices": row_type, "edge_ids": torch.int64}
        types |= {name: value.dtype for name, value in self.values.items()}
        tails = {name: tuple(value.shape[1:]) for name, value in self.values.items()}
        self.made = {
            name: into.array(name, dtype, (count, *tails.get(name, ()))) for name, dtype in types.items()
        }

    def append(self, edges: Tensor, src: Tensor, dst: Tensor) -> None:
        """Take edges by canonical ids and the rows of their ends."""
        self.counts.index_add_(0, dst + 1, torch.ones(len(dst), dtype=torch.int64))
        self.made["indices"].append(src)
        self.made["edge_ids"].append(edges)
        for name, value in self.values.items():
            self.made[name].append(value[edges])

    def close(self) -> dict[str, Any]:
        """Return the fields of the shard."""
        done = {name: rows.close() for name, rows in self.made.items()}
        data = {name: done[edge_array(place)] for place, name in enumerate(self.graph.edge_data)}
        return {
            "indptr": self.counts.cumsum(0),
            "indices": done["indices"],
            "edge_ids": done["edge_ids"],
            "edge_type": done.get("edge_type"),
            "edge_data": data,
        }


def _localise(edge_src: Tensor, node_ids: Tensor, node_part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return halo ids, their owners, and the local row of each source; `node_part` is [N], by global id."""
    row_of = torch.searchsorted(node_ids, edge_src)
    own = row_of < len(node_ids)
    own &= node_ids[row_of.clamp(max=max(len(node_ids) - 1, 0))] == edge_src if len(node_ids) else own
    remote = edge_src[~own]
    halo = distinct(remote)
    owner = node_part[halo]
    order = torch.argsort(owner, stable=True)
    row = torch.empty_like(order)
    row[order] = torch.arange(len(order))
    row_of[~own] = len(node_ids) + row[torch.searchsorted(halo, remote)]
    return halo[order], owner[order].int(), row_of.to(index_dtype(len(node_ids) + len(halo)))


def _row_pointers(edge_dst: Tensor, node_ids: Tensor) -> Tensor:
    """Return indptr over own rows of edges sorted by destination."""
    inner = torch.searchsorted(edge_dst, node_ids)
    return torch.cat([inner, torch.tensor([len(edge_dst)])])


def _rows_of_data(graph: Graph, node_ids: Tensor, into: Gathering) -> dict[str, dict[str, Features]]:
    bounds = torch.searchsorted(node_ids, torch.tensor(graph.node_offsets)).tolist()
    data: dict[str, dict[str, Features]] = {}
    for number, kind in enumerate(graph.node_types):
        rows = node_ids[bounds[number] : bounds[number + 1]] - graph.node_offsets[number]
        data[kind] = {}
        for place, (name, value) in enumerate(graph.node_data[kind].items()):
            if isinstance(value, SparseFeatures):
                data[kind][name] = value[rows]
                continue
            made = into.array(node_array(number, place), value.dtype, (len(rows), *value.shape[1:]))
            for some in torch.split(rows, _ROWS_AT_ONCE):
                made.append(value[some])
            data[kind][name] = made.close()
    return data


# Merging


def _merge(shards: list[Shard]) -> Shard:
    if not shards:
        raise GraphError("merge: no shards were given")
    first = shards[0]
    if len(shards) == 1:
        return first
    _check_alike(shards)
    node_ids, chosen = _first_of_each(torch.cat([shard.node_ids for shard in shards]))
    node_part = torch.cat([shard.node_part for shard in shards])[chosen]
    edge_ids, by_edge = torch.sort(torch.cat([shard.edge_ids for shard in shards]))
    edge_src = torch.cat([shard.row_ids[shard.indices.long()] for shard in shards])[by_edge]
    edge_dst = torch.cat([shard.node_ids.repeat_interleave(shard.indptr.diff()) for shard in shards])[by_edge]
    held_ids, first_places = _first_of_each(torch.cat([shard.row_ids for shard in shards]))
    owner = torch.cat([torch.cat([shard.node_part, shard.halo_part]) for shard in shards])[first_places]
    halo_ids, halo_part, indices = _localise_sparse(edge_src, node_ids, held_ids, owner)
    degrees = first.degrees
    for shard in shards[1:]:
        degrees = degrees.followed_by(shard.degrees)
    rows = first_places[torch.searchsorted(held_ids, torch.cat([node_ids, halo_ids]))]
    edge_type = None
    if first.edge_type is not None:
        edge_type = torch.cat([s.edge_type for s in shards if s.edge_type is not None])[by_edge]
    return replace(
        first,
        part=tuple(sorted(part for shard in shards for part in shard.parts)),
        node_ids=node_ids,
        node_part=node_part,
        halo_ids=halo_ids,
        halo_part=halo_part,
        indptr=_row_pointers(edge_dst, node_ids),
        indices=indices,
        edge_ids=edge_ids,
        edge_type=edge_type,
        edge_data={name: torch.cat([s.edge_data[name] for s in shards])[by_edge] for name in first.edge_data},
        degrees=degrees.rows(rows),
        node_data=_merge_data(shards),
    )


def _check_alike(shards: list[Shard]) -> None:
    parts = [part for shard in shards for part in shard.parts]
    if any(shard.cuts == "grid" for shard in shards):
        raise GraphError(f"merge: parts {sorted(parts)} are blocks of a grid; a worker holds one block")
    if len(set(parts)) != len(parts):
        raise GraphError(f"merge: parts {sorted(parts)} hold one part twice")
    whole = {(s.num_parts, s.num_nodes, s.num_edges, s.cuts, tuple(s.node_offsets)) for s in shards}
    if len(whole) > 1:
        raise GraphError(f"merge: parts {sorted(parts)} are of different partitions")


def _first_of_each(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids, ascending, and the place where each stands first."""
    ordered, order = torch.sort(ids, stable=True)
    fresh = torch.ones(len(ids), dtype=torch.bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh], order[fresh]


def _localise_sparse(
    edge_src: Tensor, node_ids: Tensor, held_ids: Tensor, owner: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `_localise` does, where owners are known for `held_ids` alone: a merge is O(its parts)."""
    compact = torch.searchsorted(held_ids, edge_src)
    halo, halo_part, indices = _localise(compact, torch.searchsorted(held_ids, node_ids), owner)
    return held_ids[halo], halo_part, indices


def _merge_data(shards: list[Shard]) -> dict[str, dict[str, Features]]:
    ranges = [shard.type_ranges() for shard in shards]
    data: dict[str, dict[str, Features]] = {}
    for kind in shards[0].node_types:
        _, chosen = _first_of_each(torch.cat([s.node_ids[r[kind]] for s, r in zip(shards, ranges)]))
        names = shards[0].node_data[kind]
        data[kind] = {name: _joined([s.node_data[kind][name] for s in shards])[chosen] for name in names}
    return data


def _joined(values: list[Features]) -> Features:
    dense = [value for value in values if isinstance(value, Tensor)]
    if len(dense) == len(values):
        return torch.cat(dense)
    sparse = [value for value in values if isinstance(value, SparseFeatures)]
    counts = torch.cat([value.indptr.diff() for value in sparse])
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    columns, stored = (
        torch.cat([getattr(value, part) for value in sparse]) for part in ("indices", "values")
    )
    return SparseFeatures(indptr, columns, stored, (len(counts), sparse[0].shape[1]))
