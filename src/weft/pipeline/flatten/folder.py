"""What the data plane reads of a graph folder, also in other processes: by path, nothing is carried along."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft import format
from weft.errors import FormatError, GraphError

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[Any]
_EDGES = 1 << 22  # that are looked at together


@dataclass(frozen=True)
class GraphFolder:
    """A graph folder, mapped where it is looked at."""

    path: str
    mark: str
    """The checksum of its manifest: another graph at the same path is another folder."""

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays by name."""
        return _read(self.path, self.mark)[0]

    @property
    def meta(self) -> dict[str, Any]:
        """What the manifest says of the graph."""
        return _read(self.path, self.mark)[1]

    @property
    def by_relation(self) -> bool:
        """Whether a fanout counts for each relation by itself: where types or relations have names."""
        named = [kind[1] for kind in self.meta["edge_types"]]
        numbers = [str(index) for index in range(len(named))]
        plain = named == ["edge"] or (len(named) > 1 and named == numbers)
        return self.meta["node_types"] != ["node"] or not plain

    @property
    def relations(self) -> int:
        """How many relations are drawn from by themselves."""
        return len(self.meta["edge_types"]) if self.by_relation else 1

    @property
    def target_type(self) -> str:
        """The node type that targets are of: one with a y, the first with a training mask if several have."""
        labelled, split = self.kinds_with("y"), self.kinds_with("train_mask")
        kinds = [*(kind for kind in labelled if kind in split), *labelled, *self.meta["node_types"]]
        return str(self.meta["target_type"] or kinds[0])

    def data(self, name: str) -> tuple[str, Array] | None:
        """Return the first node type that has this data, and the data; None where none has."""
        return next(self.each(name), None)

    def each(self, name: str) -> Iterator[tuple[str, Array]]:
        """Give the node types that have this data, and the data."""
        for entry in self.meta["node_data"]:
            if entry["name"] == name and "sparse" not in entry:
                yield entry["type"], self.arrays[entry["array"]]

    def edge_data(self, name: str) -> Array:
        """Return the data of all edges in canonical order."""
        entries = {entry["name"]: entry for entry in self.meta["edge_data"]}
        if name not in entries:
            known = ", ".join(entries) or "none"
            raise GraphError(f"the graph has no edge data {name!r}; it has: {known}")
        return self.arrays[entries[name]["array"]]

    def first(self, kind: str) -> int:
        """Return the first row of a node type."""
        return int(self.meta["node_offsets"][self.meta["node_types"].index(kind)])

    def ids(self) -> "pa.Array | None":
        """Return the user's ids of all nodes, as text where some are; None where there are none."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        named = self.meta["node_ids"]
        if set(named) != set(self.meta["node_types"]):
            return None
        parts = [
            pq.read_table(Path(self.path) / named[kind]).column("id").combine_chunks()
            for kind in self.meta["node_types"]
        ]
        text = any(pa.types.is_string(part.type) for part in parts)
        return pa.concat_arrays([part.cast(pa.string()) if text else part for part in parts])

    def targets(self, wanted: str) -> NDArray[np.int64]:
        """Return the rows of a split (train, val, test), of "labelled" nodes or of "all"."""
        if wanted == "all":
            return np.arange(self.meta["num_nodes"], dtype=np.int64)
        name = "y" if wanted == "labelled" else f"{wanted}_mask"
        chosen = self.data(name)
        if chosen is None:
            masks = {entry["name"] for entry in self.meta["node_data"]}
            held = sorted(mask.removesuffix("_mask") for mask in masks if mask.endswith("_mask"))
            held += ["labelled"] if "y" in masks else []
            known = ", ".join([*held, "all"])
            raise GraphError(f"targets: the graph has no {name}; targets may be: {known}")
        kind, values = chosen
        if wanted == "labelled":
            values = _known(values)
        return np.flatnonzero(values).astype(np.int64) + self.first(kind)

    def of_nodes(self, name: str, nodes: NDArray[np.int64], *, none: float = -1) -> Array | None:
        """Return data of some nodes, -1 for those of types that have none; None where nobody has it.

        `none` is what they have where the others have numbers with fractions.
        """
        arrays = list(self.each(name))
        if not arrays:
            return None
        dtype = np.result_type(*(values.dtype for _, values in arrays))
        none = none if dtype.kind == "f" else -1
        held = np.full((len(nodes), *arrays[0][1].shape[1:]), none, dtype=dtype)
        for kind, values in arrays:
            inside = self.of_kind(kind, nodes)
            held[inside] = values[nodes[inside] - self.first(kind)]
        return held

    def kinds_with(self, name: str) -> list[str]:
        """Return the node types that have this data."""
        return [kind for kind, _ in self.each(name)]

    def looped(self) -> bool:
        """Return whether every node has an edge to itself."""
        indptr, indices = self.arrays["indptr"], self.arrays["indices"]
        cuts = cut(indptr, _EDGES)
        return all(_loops(indptr[low : high + 1], indices, low) for low, high in pairwise(cuts))

    def of_kind(self, kind: str, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some nodes are of a type."""
        number = self.meta["node_types"].index(kind)
        first, end = self.meta["node_offsets"][number : number + 2]
        return np.asarray((nodes >= first) & (nodes < end))


def _known(y: Array) -> NDArray[np.bool_]:
    """Return of which nodes something is known."""
    if y.ndim == 2:
        return np.ones(len(y), dtype=np.bool_)
    return ~np.isnan(y) if y.dtype.kind == "f" else y >= 0


def open_graph(path: str | Path) -> GraphFolder:
    """Return the graph folder at a path, which other processes may find there too."""
    folder = format.as_path(path).absolute()
    mark = format.manifest_checksum(folder)
    format.read_directory(folder)  # all bytes once, against their checksums; other processes then map them
    opened = GraphFolder(str(folder), mark)
    if opened.meta.get("kind") != "graph":
        raise FormatError(f"{path}: not a graph folder")
    return opened


@lru_cache(maxsize=4)
def _read(path: str, mark: str) -> tuple[dict[str, Array], dict[str, Any]]:
    if format.manifest_checksum(path) != mark:
        raise FormatError(f"{path}: the graph was written anew while it was read")
    return format.read_directory(path, verify=False)


@dataclass(frozen=True)
class EdgeSource:
    """The edges of a graph in pieces of whole destinations, each edge with its position among its likes.

    An edge's likes go to the same destination, in the same relation where these are drawn from by themselves.
    Its position is its place among them: in canonical order or, where `moments` are asked for, by time. A
    shard is a run of `shard` positions: the edges of a hub are in several.
    """

    folder: GraphFolder
    cuts: tuple[int, ...]
    """Destinations at which pieces begin, and the number of nodes."""
    shard: int
    weight: str | None = None
    moments: bool = False

    def __call__(self, piece: int) -> "pa.RecordBatch":
        """Return the edges of a piece: dst, relation, position, shard, src, edge and what is asked for."""
        import pyarrow as pa

        dst, kind, edge = self._slots(piece)
        starts, lengths = _runs(dst, kind)
        position = np.arange(len(edge)) - np.repeat(starts, lengths)
        columns = {"dst": dst, "relation": kind, "position": position, "shard": position // self.shard}
        columns |= {"src": self.folder.arrays["indices"][edge].astype(np.int64), "edge": edge}
        if self.weight is not None:
            columns["weight"] = self._finite(self.weight, edge).astype(np.float64)
            if (columns["weight"] < 0).any():
                raise GraphError(f"{self.weight}: expected weights of at least 0")
        if self.moments:
            columns["moment"] = self._finite("time", edge)
        return pa.record_batch(columns)

    def _finite(self, name: str, edge: Array) -> Array:
        values = self.folder.edge_data(name)
        if values.ndim != 1 or not np.isfinite(values[edge]).all():
            raise GraphError(f"{name}: expected one finite number an edge, got shape {list(values.shape)}")
        return values[edge]

    def degrees(self, piece: int) -> "pa.RecordBatch":
        """Return the node, relation and number of each set of likes of a piece."""
        import pyarrow as pa

        dst, kind, _ = self._slots(piece)
        starts, lengths = _runs(dst, kind)
        return pa.record_batch({"node": dst[starts], "relation": kind[starts], "degree": lengths})

    def shards(self, piece: int) -> "pa.RecordBatch":
        """Return the node, relation and number of each shard of a piece."""
        import pyarrow as pa

        dst, kind, _ = self._slots(piece)
        starts, lengths = _runs(dst, kind)
        counts = -(-lengths // self.shard)
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        node, relation = np.repeat(dst[starts], counts), np.repeat(kind[starts], counts)
        return pa.record_batch({"node": node, "relation": relation, "shard": number})

    def _slots(self, piece: int) -> tuple[Array, Array, Array]:
        """Return destination, relation and number of the edges of a piece, in the order of positions."""
        low, high = self.cuts[piece], self.cuts[piece + 1]
        indptr = self.folder.arrays["indptr"][low : high + 1]
        edge = np.arange(indptr[0], indptr[-1], dtype=np.int64)
        dst = np.repeat(np.arange(low, high, dtype=np.int64), np.diff(indptr))
        kind = np.zeros(len(edge), dtype=np.int64)
        if self.folder.by_relation and "edge_type" in self.folder.arrays:
            kind = self.folder.arrays["edge_type"][indptr[0] : indptr[-1]].astype(np.int64)
        if self.moments:
            order = np.lexsort((self.folder.edge_data("time")[indptr[0] : indptr[-1]], kind, dst))
            dst, kind, edge = dst[order], kind[order], edge[order]
        return dst, kind, edge


def cut(indptr: Array, edges: int) -> tuple[int, ...]:
    """Return the nodes at which pieces of about so many edges begin, and the number of nodes.

    >>> cut(np.array([0, 3, 4, 9, 9]), 4)
    (0, 2, 3, 4)
    """
    cuts, nodes = [0], len(indptr) - 1
    while cuts[-1] < nodes:
        low = cuts[-1]
        high = int(np.searchsorted(indptr, indptr[low] + edges, side="right")) - 1
        cuts.append(min(max(low + 1, high), nodes))
    return tuple(cuts)


def _loops(indptr: Array, indices: Array, first: int) -> bool:
    """Return whether each of some destinations, from `first` on, is one of its own sources."""
    dst = np.repeat(np.arange(first, first + len(indptr) - 1), np.diff(indptr))
    looped = np.unique(dst[indices[indptr[0] : indptr[-1]] == dst])
    return len(looped) == len(indptr) - 1


def _runs(*columns: Array) -> tuple[Array, Array]:
    """Return where runs of equal rows begin, and how long they are."""
    new = np.ones(len(columns[0]), dtype=np.bool_)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    starts = np.flatnonzero(new)
    return starts, np.diff(np.append(starts, len(new)))
