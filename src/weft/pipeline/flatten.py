"""GraphFlat: the sampled k-hop neighbourhood of every target as one record, by joins.

An edge has a position among those of its destination (and relation). Which positions a node draws in a hop
is a function of (seed, hop, node, degree): the engine hands Arrow batches of (node, degree) to it and joins
the edges by (node, position). So nothing groups a hub's edges to sample it, a step that runs again gives the
same rows, and records are what `weft.samplers.NeighborSampler` draws in epoch 0. Targets are done in parts, a
file a part.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from weft import format
from weft.draw import Stream, draw_positions, fold, row_keys
from weft.errors import FormatError, GraphError, InputError, RecipeError
from weft.pipeline.engines.base import Engine
from weft.pipeline.engines.duckdb import DuckDB, size
from weft.pipeline.records import MANIFEST

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[Any]
# Edges of the records that are made at once, by expectation.
PART_EDGES = 1_000_000
# Targets that are flattened to see how large records get.
PROBE = 100
# Edges that are handed to the engine at once.
CHUNK = 1 << 20
LIMIT = 10 * 2**30


@dataclass(frozen=True, eq=False)
class Folder:
    """What flattening needs of a graph folder."""

    arrays: dict[str, Array]
    meta: dict[str, Any]

    @property
    def by_relation(self) -> bool:
        """Whether a fanout counts for each relation by itself: where types or relations have names."""
        named = [kind[1] for kind in self.meta["edge_types"]]
        numbers = [str(place) for place in range(len(named))]
        plain = named == ["edge"] or (len(named) > 1 and named == numbers)
        return self.meta["node_types"] != ["node"] or not plain

    @property
    def relations(self) -> int:
        """How many relations are drawn from by themselves."""
        return len(self.meta["edge_types"]) if self.by_relation else 1

    def data(self, name: str) -> tuple[str, Array] | None:
        """Return the node type that has this data, and the data; None where none has."""
        for entry in self.meta["node_data"]:
            if entry["name"] == name and "sparse" not in entry:
                return entry["type"], self.arrays[entry["array"]]
        return None

    def first(self, kind: str) -> int:
        """Return the first row of a node type."""
        return int(self.meta["node_offsets"][self.meta["node_types"].index(kind)])


def flatten(
    graph: str | Path,
    out: str | Path,
    *,
    fanout: Sequence[int] = (15, 10),
    targets: str = "train",
    seed: int = 0,
    features: Literal["reference", "value"] = "reference",
    memory: str | int | None = None,
    overwrite: bool = False,
    limit: int | None = LIMIT,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Write the records of all targets as Parquet files, and return how many there are and how large.

    `targets` is a split (train, val, test), "labelled" or "all". More than `limit` bytes, by an estimate of
    the first targets, are refused; None: any.
    """
    arrays, meta = format.read_directory(graph, verify=False)
    if meta.get("kind") != "graph":
        raise FormatError(f"{graph}: not a graph folder")
    folder = Folder(arrays, meta)
    fanouts = _fanouts(fanout, folder.relations)
    chosen = _targets(folder, targets)
    with (
        format.new_directory(out, overwrite, marker=MANIFEST) as partial,
        TemporaryDirectory(prefix="weft-flatten-") as spill,
        DuckDB(spill, memory=memory) as engine,
    ):
        _load_edges(engine, folder)
        work = _Flattener(engine, folder, fanouts, seed, features, graph)
        expected = work.estimate(chosen)
        say(
            f"{len(chosen):,} records of about {expected['nodes']:,.0f} nodes and {expected['edges']:,.0f} "
            f"edges: {size(int(expected['bytes']))}, each node {expected['replication']:.1f} times"
        )
        if limit is not None and expected["bytes"] > limit:
            raise InputError(
                f"records would take about {size(int(expected['bytes']))}, more than {size(limit)}; "
                "give --yes to write them, or a smaller fanout"
            )
        parts = []
        for place, some in enumerate(_parts(chosen, expected["edges"])):
            parts.append(work.write(some, partial / f"part-{place:05d}.parquet"))
            say(f"{sum(part['records'] for part in parts):,} of {len(chosen):,} records")
        made = {
            "fanout": list(map(int, fanout)), "seed": seed, "targets": targets, "features": features,
            "node_types": meta["node_types"], "node_offsets": meta["node_offsets"],
            "edge_types": meta["edge_types"], "parts": parts,
        }  # fmt: skip
        (partial / MANIFEST).write_text(json.dumps(made))
    total = {key: sum(part[key] for part in parts) for key in ("records", "nodes", "edges", "bytes")}
    total["replication"] = total["nodes"] / max(meta["num_nodes"], 1)
    return {"out": str(out), **total, "expected": expected, "parts": len(parts)}


def _fanouts(fanout: Sequence[int], relations: int) -> NDArray[np.int64]:
    if not fanout or any(isinstance(count, bool) or count != int(count) or count < -1 for count in fanout):
        raise RecipeError(f"fanout: expected numbers of edges, -1 for all, such as 15,10; got {list(fanout)}")
    return np.repeat(np.array(fanout, dtype=np.int64)[:, None], relations, axis=1)


def _targets(folder: Folder, wanted: str) -> NDArray[np.int64]:
    """Return the rows of the targets."""
    if wanted == "all":
        return np.arange(folder.meta["num_nodes"], dtype=np.int64)
    name = "y" if wanted == "labelled" else f"{wanted}_mask"
    found = folder.data(name)
    if found is None:
        masks = {entry["name"] for entry in folder.meta["node_data"]}
        held = sorted(mask.removesuffix("_mask") for mask in masks if mask.endswith("_mask"))
        held += ["labelled"] if "y" in masks else []
        known = ", ".join([*held, "all"])
        raise GraphError(f"targets: the graph has no {name}; targets may be: {known}")
    kind, values = found
    if wanted == "labelled":
        values = values >= 0 if values.ndim == 1 else np.ones(len(values), dtype=np.bool_)
    return np.flatnonzero(values).astype(np.int64) + folder.first(kind)


def _load_edges(engine: Engine, folder: Folder) -> None:
    """Hand the edges to the engine, each with its position, and the degrees that positions are drawn by."""
    import pyarrow as pa

    columns = ("dst", "relation", "position", "src", "edge")
    schema = pa.schema([(name, pa.int64()) for name in columns])
    degrees: list[pa.RecordBatch] = []

    def batches() -> Iterator["pa.RecordBatch"]:
        for edges, held in _edge_chunks(folder):
            degrees.append(pa.record_batch(held, names=["node", "relation", "degree"]))
            yield pa.record_batch(edges, names=list(columns))

    engine.arrow("edges", pa.RecordBatchReader.from_batches(schema, batches()))
    fields = [(name, pa.int64()) for name in ("node", "relation", "degree")]
    engine.arrow("degrees", pa.Table.from_batches(degrees, pa.schema(fields)))


def _edge_chunks(folder: Folder) -> Iterator[tuple[list[Array], list[Array]]]:
    """Give the columns of edges and of degrees, for some destinations at a time."""
    indptr, indices = folder.arrays["indptr"], folder.arrays["indices"]
    kinds = folder.arrays.get("edge_type") if folder.by_relation else None
    low, nodes = 0, len(indptr) - 1
    while low < nodes:
        high = max(low + 1, int(np.searchsorted(indptr, indptr[low] + CHUNK, side="right")) - 1)
        high = min(high, nodes)
        first, last = int(indptr[low]), int(indptr[high])
        edge = np.arange(first, last, dtype=np.int64)
        dst = np.repeat(np.arange(low, high, dtype=np.int64), np.diff(indptr[low : high + 1]))
        kind = np.zeros(len(edge), dtype=np.int64) if kinds is None else kinds[first:last].astype(np.int64)
        new = np.ones(len(edge), dtype=np.bool_)
        new[1:] = (dst[1:] != dst[:-1]) | (kind[1:] != kind[:-1])
        starts = np.flatnonzero(new)
        lengths = np.diff(np.append(starts, len(edge)))
        position = np.arange(len(edge)) - np.repeat(starts, lengths)
        yield (
            [dst, kind, position, indices[first:last].astype(np.int64), edge],
            [dst[starts], kind[starts], lengths.astype(np.int64)],
        )
        low = high


def _parts(targets: NDArray[np.int64], edges: float) -> list[NDArray[np.int64]]:
    count = max(1, int(PART_EDGES // max(edges, 1.0)))
    return [targets[start : start + count] for start in range(0, len(targets), count)] or [targets]


@dataclass
class _Flattener:
    """Makes the records of some targets."""

    engine: Engine
    folder: Folder
    fanouts: NDArray[np.int64]
    seed: int
    features: str
    graph: str | Path

    def estimate(self, targets: NDArray[np.int64]) -> dict[str, float]:
        """Return nodes and edges a record, bytes in all and copies a node, as a few targets have them."""
        some = targets[:: max(1, len(targets) // PROBE)][:PROBE]
        with TemporaryDirectory() as folder:
            found = self.write(some, Path(folder) / "probe.parquet")
        each = {key: found[key] / max(len(some), 1) for key in ("nodes", "edges", "bytes")}
        copies = each["nodes"] * len(targets) / max(self.folder.meta["num_nodes"], 1)
        return {**each, "bytes": each["bytes"] * len(targets), "replication": copies}

    def write(self, targets: NDArray[np.int64], path: Path) -> dict[str, Any]:
        """Write the records of some targets to one file, and return what is in it."""
        import pyarrow.parquet as pq

        table = self.records(targets)
        pq.write_table(table, path, compression="zstd")
        counts = {name: len(table.column(name).combine_chunks().flatten()) for name in ("nodes", "edge")}
        shown = {"file": path.name, "records": table.num_rows, "bytes": path.stat().st_size}
        return {**shown, "nodes": counts["nodes"], "edges": counts["edge"]}

    def records(self, targets: NDArray[np.int64]) -> "pa.Table":
        """Return the records of some targets, in their order."""
        import pyarrow as pa

        place = np.arange(len(targets), dtype=np.int64)
        self.engine.arrow("pairs", pa.table({"target": place, "node": targets}))
        edges = [self._hop(number) for number in range(len(self.fanouts))]
        hop = np.repeat(np.arange(len(edges)), [len(part[0]) for part in edges]).astype(np.int64)
        target, dst, order, src, edge = (np.concatenate(parts) for parts in zip(*edges))
        rank = np.lexsort((order, dst, hop, target))
        owner, node = self._columns("SELECT target, node FROM pairs ORDER BY target, node")
        lists = {"hop": hop, "dst": dst, "src": src, "edge": edge}
        columns: dict[str, Any] = {"target": pa.array(targets)}
        columns |= self._about(targets)
        columns["nodes"] = _lists(owner, node, len(targets))
        columns |= {name: _lists(target[rank], values[rank], len(targets)) for name, values in lists.items()}
        degree = np.diff(self.folder.arrays["indptr"])
        columns["degree"] = _lists(owner, degree[node].astype(np.int64), len(targets))
        if self.features == "value":
            columns["x"] = self._values(owner, node, len(targets))
        return pa.table(columns)

    def _hop(self, number: int) -> tuple[Array, Array, Array, Array, Array]:
        """Draw for every (target, node) there is, add the sources to them, and return the edges."""
        import pyarrow as pa

        engine = self.engine
        keys = np.array(
            [self._key(number * self.folder.relations + kind) for kind in range(self.folder.relations)],
            dtype=np.uint64,
        )
        fanouts = self.fanouts[number]

        def draw(batch: "pa.RecordBatch") -> "pa.RecordBatch":
            node, kind, degree = (column.to_numpy() for column in batch.columns)
            counts, positions = draw_positions(row_keys(keys[kind], node), degree, fanouts[kind])
            starts = np.repeat(np.cumsum(counts) - counts, counts)
            drawn = [np.repeat(node, counts), np.repeat(kind, counts), positions]
            return pa.record_batch([*drawn, np.arange(len(positions)) - starts], names=list(schema.names))

        schema = pa.schema([(name, pa.int64()) for name in ("node", "relation", "position", "draw")])
        asked = (
            "SELECT d.node, d.relation, d.degree FROM (SELECT DISTINCT node FROM pairs) p "
            "JOIN degrees d ON p.node = d.node"
        )
        engine.map("draws", asked, draw, schema)
        engine.step(
            "drawn",
            "SELECT e.dst, e.src, e.edge, e.relation, w.draw FROM draws w JOIN edges e "
            "ON w.node = e.dst AND w.relation = e.relation AND w.position = e.position",
        )
        engine.step(
            "found",
            "SELECT p.target, d.dst, d.src, d.edge, d.relation, d.draw FROM pairs p "
            "JOIN drawn d ON p.node = d.dst",
        )
        joined = "SELECT target, node FROM pairs UNION ALL SELECT target, src AS node FROM found"
        engine.step("next_pairs", f"SELECT DISTINCT target, node FROM ({joined})")
        engine.step("pairs", "SELECT target, node FROM next_pairs")
        target, dst, src, edge, kind, place = self._columns(
            "SELECT target, dst, src, edge, relation, draw FROM found"
        )
        several = not self.folder.by_relation and "edge_type" in self.folder.arrays
        order = edge if several else kind * np.int64(1 << 40) + place
        return target, dst, order, src, edge

    def _key(self, layer: int) -> int:
        """Return the key of a hop and relation in epoch 0, as samplers have it."""
        return fold(self.seed, Stream.SAMPLE, 0, 0, layer)

    def _columns(self, query: str) -> list[Array]:
        """Return the columns of a query as arrays."""
        batches = [[column.to_numpy() for column in batch.columns] for batch in self.engine.batches(query)]
        width = query.partition(" FROM ")[0].count(",") + 1
        empty = [np.empty(0, dtype=np.int64)] * width
        return [np.concatenate(parts) for parts in zip(*(batches or [empty]))]

    def _about(self, targets: NDArray[np.int64]) -> dict[str, Any]:
        """Return the user's ids and the labels of the targets, where there are any."""
        import pyarrow as pa

        columns = {} if self.ids is None else {"id": self.ids.take(pa.array(targets))}
        labels = self.folder.data("y")
        if labels is None:
            return columns
        kind, y = labels
        rows = targets - self.folder.first(kind)
        inside = (rows >= 0) & (rows < len(y))
        held = np.asarray(y[np.where(inside, rows, 0)])
        held[~inside] = -1
        return columns | {"y": pa.array(held if y.ndim == 1 else list(held))}

    @cached_property
    def ids(self) -> Any:
        """The user's ids of all nodes, as text where some are; None where there are none."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        named = self.folder.meta["node_ids"]
        if set(named) != set(self.folder.meta["node_types"]):
            return None
        parts = [
            pq.read_table(Path(self.graph) / named[kind]).column("id").combine_chunks()
            for kind in self.folder.meta["node_types"]
        ]
        text = any(pa.types.is_string(part.type) for part in parts)
        return pa.concat_arrays([part.cast(pa.string()) if text else part for part in parts])

    def _values(self, owner: Array, node: Array, count: int) -> Any:
        found = self.folder.data("x")
        if found is None or len(self.folder.meta["node_types"]) > 1:
            raise GraphError(
                "features by value need one node type with dense features; use --features reference"
            )
        x = found[1]
        width = x.shape[1]
        rows = np.asarray(x[node], dtype=np.float32).reshape(-1)
        return _lists(np.repeat(owner, width), rows, count)


def _lists(owner: Array, values: Array, count: int) -> "pa.Array":
    """Return the values of each owner, who are ordered, as a list."""
    import pyarrow as pa

    offsets = np.searchsorted(owner, np.arange(count + 1)).astype(np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))
