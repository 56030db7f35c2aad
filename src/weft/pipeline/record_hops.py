"""Records of flattened neighbourhoods: what lies in their files, and how a batch of them becomes hops again.

A row of a file is one target: its id, row and label, the nodes of its neighbourhood and the edges that were
drawn, hop by hop. Edges are ordered by hop, destination and order of drawing, so a batch of records gives the
rows and edges of the sampler's batch of the same seeds, in the same order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft import format

if TYPE_CHECKING:
    import pyarrow as pa

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RecordHop:
    """The edges drawn in one hop, by row of their destination."""

    indptr: Ints
    indices: Ints
    """Source rows."""
    edge_ids: Ints
    """Canonical edges of the graph."""
    num_rows: int
    """Rows found until the end of the hop."""
    scale: NDArray[np.float32] | None = None
    """Edges that each stands for, where the degrees of rows do not tell."""


@dataclass(frozen=True, eq=False)
class Merged:
    """A batch of records: rows are targets, then what each hop found, by type; the first hop comes first."""

    nodes: Ints
    hops: tuple[RecordHop, ...]
    seed_of: Ints | None = None
    """The place of the target that a row belongs to, where targets see different edges of a node."""


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Return how the records of a folder were made."""
    return dict(format.read_manifest(Path(folder), format.RECORDS)["meta"])


def read_records(folder: str | Path) -> "pa.Table":
    """Return all records of a folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    entries = format.read_manifest(Path(folder), format.RECORDS)["files"]
    held = [pa.BufferReader(format.checked_bytes(Path(folder), name, entries)) for name in entries]
    return pa.concat_tables([pq.read_table(each) for each in held])


def merge(
    records: "pa.Table", *, num_hops: int, node_offsets: Sequence[int], temporal: bool = False
) -> Merged:
    """Return the rows and hops of a batch of records; a node that several have is there once.

    They are those that the sampler gives for the targets, in their order, as seeds. Rows of temporal records
    are (target, node): nothing is shared.
    """
    from weft.samplers.core.reference import find_rows  # brings torch, which making records does without

    rows: Ints = records.column("target").to_numpy().astype(np.int64)
    hop, dst, src, edge = (_flat(records, name).astype(np.int64) for name in ("hop", "dst", "src", "edge"))
    scale = _flat(records, "scale") if "scale" in records.column_names else None
    nodes = int(node_offsets[-1])
    if temporal:  # one number for (target, node)
        rows = rows + np.arange(len(rows)) * nodes
        first = np.repeat(np.arange(len(rows)) * nodes, _lengths(records, "hop"))
        dst, src = dst + first, src + first
    order = np.lexsort((np.arange(len(edge)), dst, hop))  # stable: the order of drawing stays
    # Several records have a node's draws; each as often. The first copy of an edge stands for all of them.
    keys = np.stack([hop[order], dst[order], edge[order]])
    kept = order[np.sort(np.unique(keys, axis=1, return_index=True)[1])] if len(edge) else order
    hop, dst, src, edge = hop[kept], dst[kept], src[kept], edge[kept]
    scale = None if scale is None else scale[kept].astype(np.float32)
    hops = []
    for number in range(num_hops):
        low, high = np.searchsorted(hop, [number, number + 1])
        starts = low + np.searchsorted(dst[low:high], rows)
        counts = low + np.searchsorted(dst[low:high], rows, side="right") - starts
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
        rows, local = find_rows(rows, src[places], node_offsets)
        held = None if scale is None else scale[places]
        hops.append(RecordHop(np.concatenate([[0], ends]), local, edge[places], len(rows), held))
    return Merged(rows % nodes, tuple(hops), rows // nodes if temporal else None)


def _flat(records: "pa.Table", name: str) -> NDArray[Any]:
    values: NDArray[Any] = records.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return values


def _lengths(records: "pa.Table", name: str) -> Ints:
    import pyarrow.compute as pc

    lengths: Ints = pc.list_value_length(records.column(name)).to_numpy()
    return lengths
