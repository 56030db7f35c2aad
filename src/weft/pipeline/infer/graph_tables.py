"""A graph as the tables that the rounds of inference join: rows of nodes with their degrees, and edges."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.source import RowSource
from weft.graph.sparse import SparseFeatures
from weft.pipeline.infer.piece import DEGREES, Kind
from weft.tasks.predicted import lists
from weft.train.inference.stages import Chain

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of nodes or edges that are handed to the engine at once.
CHUNK = 1 << 16


def kind_of(graph: Graph, chain: Chain) -> Kind:
    """Return what the rows of a graph's pieces mean."""
    dtype = next((p.dtype for p in chain.model.parameters() if p.is_floating_point()), torch.float32)
    features = []
    for kind in graph.node_types:
        x: Any = graph.node_data[kind].get("x")
        if x is not None:
            features.append((kind, int(x.shape[1]), isinstance(x, SparseFeatures)))
    for name, value in graph.edge_data.items():
        if value.dim() > 2:
            raise GraphError(f"edge data {name!r} of shape {list(value.shape)}: engines pass on vectors only")
    data = tuple(
        (name, None if value.dim() == 1 else int(value.shape[1])) for name, value in graph.edge_data.items()
    )
    types = (tuple(graph.node_types), tuple(graph.node_offsets), graph.num_relations)
    return Kind(*types, data, tuple(features), dtype)


def node_batches(graph: Graph, kind: Kind) -> "Iterator[pa.RecordBatch]":
    """Give (node, degrees, h, slots) of all nodes: h are features, in those columns where they are sparse."""
    import pyarrow as pa

    weighted = "weight" in graph.edge_data
    columns = [graph.degree(way, None, by) for way, by in DEGREES if weighted or not by]  # type: ignore[arg-type]
    degrees = torch.stack([column.double() for column in columns], dim=1)
    value = pa.float64() if kind.dtype == torch.float64 else pa.float32()
    for index, name in enumerate(graph.node_types):
        first, last = graph.node_offsets[index : index + 2]
        for start in range(first, last, CHUNK):
            stop = min(start + CHUNK, last)
            h, at = _feature_lists(graph.node_data[name].get("x"), start - first, stop - first, kind.dtype)
            yield pa.record_batch(
                [
                    pa.array(np.arange(start, stop, dtype=np.int64)),
                    lists(degrees[start:stop]),
                    h.cast(pa.list_(value)),
                    at.cast(pa.list_(pa.int32())),
                ],
                names=["node", "degrees", "h", "slots"],
            )


def _feature_lists(x: Any, start: int, stop: int, dtype: torch.dtype) -> tuple[Any, Any]:
    import pyarrow as pa

    empty = lists(torch.zeros(stop - start, 0))
    if x is None:
        return empty, empty
    rows = torch.arange(start, stop)
    if isinstance(x, SparseFeatures):
        held = x.rows(rows)
        ends = pa.array(held.indptr.numpy().astype(np.int32))
        values = pa.ListArray.from_arrays(ends, pa.array(held.values.to(dtype).numpy()))
        return values, pa.ListArray.from_arrays(ends, pa.array(held.indices.numpy()))
    dense = x.gather(rows) if isinstance(x, RowSource) else x[start:stop]
    return lists(dense.to(dtype)), empty


def edge_batches(graph: Graph, kind: Kind, most: int) -> "Iterator[pa.RecordBatch]":
    """Give (dst, shard, src, edge, relation) of all edges, and their data; a shard has `most` edges."""
    import pyarrow as pa

    indptr = graph.indptr.numpy()
    for start in range(0, max(graph.num_edges, 1), CHUNK):
        stop = min(start + CHUNK, graph.num_edges)
        edge = np.arange(start, stop, dtype=np.int64)
        dst = np.searchsorted(indptr, edge, side="right") - 1
        kinds = graph.edge_type
        relation = np.zeros(len(edge), np.int32) if kinds is None else kinds[start:stop].numpy()
        columns: dict[str, Any] = {
            "dst": dst.astype(np.int64),
            "shard": (edge - indptr[dst]) // most,
            "src": graph.indices[start:stop].numpy().astype(np.int64),
            "edge": edge,
            "relation": relation.astype(np.int32),
        }
        for name, width in kind.edge_data:
            value = graph.edge_data[name][start:stop].to(kind.dtype)
            columns[name] = value.numpy() if width is None else lists(value)
        yield pa.record_batch(columns)


def stream(batches: "Iterator[pa.RecordBatch]") -> "pa.RecordBatchReader":
    import pyarrow as pa

    first = next(batches)

    def all_of_them() -> "Iterator[pa.RecordBatch]":
        yield first
        yield from batches

    return pa.RecordBatchReader.from_batches(first.schema, all_of_them())
