"""From the rows of a part, as engines give them, to the Parquet file of its records."""

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.graph.node_data import TargetCounts
from weft.meaning import meaning_of
from weft.pipeline.flatten.folder import Array, GraphFolder

if TYPE_CHECKING:
    import pyarrow as pa

# The hop of rows that are nodes of a record: dst is the node, src its degree where that depends on time.
NODE = -1
SUMMARY = b"weft"
"""The key of a file's metadata that holds the numbers of its records, nodes and edges."""


@dataclass(frozen=True)
class Assembler:
    """Writes the files of records: rows of a part in any order in, a file out, the same at every attempt.

    Rows are (part, target, hop, dst, src, edge, place, scale); target counts all targets, in the order of
    records.
    """

    folder: GraphFolder
    size: int
    """Targets of a part."""
    out: str
    values: bool
    """Whether features are in the records themselves."""
    scaled: bool
    """Whether edges of a row stand for different numbers of edges."""
    weight: str | None = None
    temporal: bool = False

    def __call__(self, rows: "pa.Table") -> "pa.RecordBatch":
        """Write the file of a part, and return its number and its records."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        part = int(rows.column("part")[0].as_py())
        about = pq.ParquetFile(Path(self.out) / ABOUT).read_row_group(part)
        table = self.records(rows, about, first=part * self.size)
        path = Path(self.out) / part_name(part)
        # Another attempt may be writing the same: each writes a file of its own, and the last to end counts.
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        try:
            with open(partial, "wb") as file:
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        return pa.record_batch({"part": [part], "records": [table.num_rows]})

    def records(self, rows: "pa.Table", about: "pa.Table", *, first: int) -> "pa.Table":
        """Return the records of targets from `first` on; `about` has what is known of each, in order."""
        import pyarrow as pa

        named = ("target", "hop", "dst", "src", "edge", "place")
        target, hop, dst, src, edge, place = (_column(rows, name).astype(np.int64) for name in named)
        target -= first
        count, is_node = about.num_rows, hop == NODE
        order = np.lexsort((dst[is_node], target[is_node]))
        owner, node, degree = (values[is_node][order] for values in (target, dst, src))
        columns = {name: about.column(name) for name in about.column_names}
        columns["nodes"] = _lists(owner, node, count)
        rank = np.flatnonzero(~is_node)
        rank = rank[np.lexsort((place[rank], dst[rank], hop[rank], target[rank]))]
        held = {"hop": hop, "dst": dst, "src": src, "edge": edge}
        columns |= {name: _lists(target[rank], values[rank], count) for name, values in held.items()}
        if not self.temporal:
            indptr = self.folder.arrays["indptr"]
            degree = np.asarray(indptr[node + 1] - indptr[node], dtype=np.int64)
        columns["degree"] = _lists(owner, degree, count)
        if self.scaled:
            scale = self._scale(_column(rows, "scale")[rank], edge[rank])
            columns["scale"] = _lists(target[rank], scale, count)
        if self.values:
            columns |= self._node_values(owner, node, count)
            columns |= self._node_degrees(owner, node, count)
            columns |= self._edge_values(target[rank], edge[rank], count)
        table = pa.table(columns)
        held_counts = {"records": count, "nodes": len(node), "edges": len(rank)}
        return table.replace_schema_metadata({SUMMARY: json.dumps(held_counts)})

    def _scale(self, scale: Array, edge: Array) -> Array:
        """Return how many edges each stands for; of weighted draws `scale` is the first key not taken."""
        if self.weight is None:
            return np.where(np.isnan(scale), 1, scale).astype(np.float32)
        weight = self.folder.edge_data(self.weight)[edge].astype(np.float64)
        return (-1 / np.expm1(-weight * np.where(np.isnan(scale), np.inf, scale))).astype(np.float32)

    def _node_values(self, owner: Array, node: Array, count: int) -> dict[str, "pa.Array"]:
        """Return the features of the nodes, one column per node type, or three where they are sparse."""
        columns = {}
        for entry in value_columns(self.folder):
            start = self.folder.first(entry["type"])
            inside = (node >= start) & (node < start + entry["rows"])
            rows, whose, column = node[inside] - start, owner[inside], entry["column"]
            if not entry["sparse"]:
                values = _numbers(self.folder.arrays[entry["array"]][rows], entry["dtype"])
                columns[column] = _lists(np.repeat(whose, entry["width"]), values.reshape(-1), count)
                continue
            parts = [
                self.folder.arrays[f"{entry['array']}_{part}"] for part in ("indptr", "indices", "values")
            ]
            lengths, slots = _slots(parts[0], rows)
            whose_slot = np.repeat(whose, lengths)
            columns[f"{column}.counts"] = _lists(whose, lengths, count)
            columns[f"{column}.columns"] = _lists(whose_slot, parts[1][slots].astype(np.int64), count)
            columns[f"{column}.values"] = _lists(whose_slot, _numbers(parts[2][slots], entry["dtype"]), count)
        return columns

    def _node_degrees(self, owner: Array, node: Array, count: int) -> dict[str, "pa.Array"]:
        """Return the weighted in-degrees of the nodes, and those in each relation that they have."""
        arrays, columns = self.folder.arrays, {}
        known, place = np.unique(node, return_inverse=True)
        lengths, slots = _slots(arrays["indptr"], known)
        row = np.repeat(np.arange(len(known)), lengths)
        weighted = [entry["array"] for entry in self.folder.meta["edge_data"] if entry["name"] == "weight"]
        if weighted:
            sums = np.bincount(row, arrays[weighted[0]][slots].astype(np.float64), minlength=len(known))
            columns["degree.weight"] = _lists(owner, sums[place], count)
        if "edge_type" in arrays:
            relations = len(self.folder.meta["edge_types"])
            keys, counts = np.unique(row * relations + arrays["edge_type"][slots], return_counts=True)
            starts = np.searchsorted(keys // relations, np.arange(len(known) + 1))
            each, at = _slots(starts, place)
            columns["degree.relations"] = _lists(owner, each, count)
            columns["degree.relation"] = _lists(np.repeat(owner, each), keys[at] % relations, count)
            columns["degree.edges"] = _lists(np.repeat(owner, each), counts[at], count)
        return columns

    def _edge_values(self, owner: Array, edge: Array, count: int) -> dict[str, "pa.Array"]:
        """Return the relation and the data of the edges, a column each."""
        columns = {}
        if "edge_type" in self.folder.arrays:
            kinds = self.folder.arrays["edge_type"][edge].astype(np.int64)
            columns["edge.type"] = _lists(owner, kinds, count)
        for entry in self.folder.meta["edge_data"]:
            values = self.folder.arrays[entry["array"]][edge]
            width = int(np.prod(values.shape[1:], dtype=np.int64))
            exact = entry["name"] == "time"  # times are compared: float32 has too few digits
            numbers = values if exact else _numbers(values, entry["dtype"])
            columns[f"edge.{entry['name']}"] = _lists(np.repeat(owner, width), numbers.reshape(-1), count)
        return columns


ABOUT = ".about.parquet"
"""What is known of targets, a row group a part: lies beside the files until all are there."""


def part_name(part: int) -> str:
    """Return the name of a file of records."""
    return f"part-{part:05d}.parquet"


def value_columns(folder: GraphFolder) -> list[dict[str, Any]]:
    """Return what records with features by value hold of the nodes of each type that has features.

    A column of width numbers a node; sparse features have COLUMN.counts, the numbers that a node has, and
    COLUMN.columns and COLUMN.values, one after the other.
    """
    found = []
    types, offsets = folder.meta["node_types"], folder.meta["node_offsets"]
    for entry in folder.meta["node_data"]:
        if entry["name"] != "x":
            continue
        number = types.index(entry["type"])
        sparse = "sparse" in entry
        width = entry["sparse"][1] if sparse else int(folder.arrays[entry["array"]].shape[1])
        found.append(
            {
                "type": entry["type"],
                "column": "x" if len(types) == 1 else f"x.{entry['type']}",
                "width": width,
                "sparse": sparse,
                "rows": offsets[number + 1] - offsets[number],
                "array": entry["array"],
                "dtype": entry["dtype"],
            }
        )
    return found


def facts(folder: GraphFolder) -> dict[str, Any]:
    """Return what a manifest tells of the graph where the records hold all that training reads of it."""
    named = ("type", "column", "width", "sparse")
    y = dict(folder.each("y")).get(folder.target_type)
    shapes = {
        entry["name"]: list(folder.arrays[entry["array"]].shape[1:]) for entry in folder.meta["edge_data"]
    }
    return {
        "values": [{key: entry[key] for key in named} for entry in value_columns(folder)],
        "target_type": folder.target_type,
        "tell_y": y is not None,
        **TargetCounts.of(y)._asdict(),
        "edge_data": shapes,
        "typed_edges": "edge_type" in folder.arrays,
        "self_loops": folder.looped(),
        "meaning": meaning_of(Path(folder.path)),
    }


def describe(folder: GraphFolder, targets: NDArray[np.int64]) -> "pa.Table":
    """Return what is known of targets: row, the user's id, y."""
    import pyarrow as pa

    ids, y = folder.ids(), folder.of_nodes("y", targets, none=np.nan)
    columns: dict[str, Any] = {"target": pa.array(targets)}
    columns |= {} if ids is None else {"id": ids.take(pa.array(targets))}
    if y is not None:
        columns["y"] = pa.array(y if y.ndim == 1 else list(y))
    return pa.table(columns)


def _numbers(values: Array, dtype: str) -> Array:
    """Return features as float32, also bfloat16, of which files hold the bits."""
    if dtype == "bfloat16":
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.asarray(values, dtype=np.float32)


def _slots(indptr: Array, rows: Array) -> tuple[Array, Array]:
    """Return how many entries each row has, and where they are, one row after the other."""
    lengths = np.asarray(indptr[rows + 1] - indptr[rows], dtype=np.int64)
    return lengths, np.arange(lengths.sum()) + np.repeat(indptr[rows] - np.cumsum(lengths) + lengths, lengths)


def _column(rows: "pa.Table", name: str) -> Array:
    found: Array = rows.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return found


def _lists(owner: Array, values: Array, count: int) -> "pa.Array":
    """Return the values of each owner, who are ordered, as a list."""
    import pyarrow as pa

    offsets = np.searchsorted(owner, np.arange(count + 1)).astype(np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))
