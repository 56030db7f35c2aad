"""A slice of a model on one group of an engine's rows: some nodes, all edges into them, rows of both ends.

Whoever runs it has no graph: degrees of the whole graph travel with the nodes, edge data with the edges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import GraphError
from weft.graph.message.block import Block, Rows
from weft.graph.relations import RelationBlock
from weft.graph.sparse import SparseFeatures
from weft.samplers.core.block import SampledBlock
from weft.tasks.predicted import lists
from weft.train.inference.stages import Stage

if TYPE_CHECKING:
    import pyarrow as pa

DEGREES = (("in", False), ("out", False), ("in", True), ("out", True))
"""The degrees that a node carries, in this order; weighted ones where edges have a weight."""


@dataclass(frozen=True)
class Kind:
    """What a group's rows mean: the types of the graph and the columns of its data."""

    node_types: tuple[str, ...]
    node_offsets: tuple[int, ...]
    num_relations: int
    edge_data: tuple[tuple[str, int | None], ...]
    """Names and widths of edge data; None: one value per edge."""
    features: tuple[tuple[str, int, bool], ...]
    """Node types with features, their columns, and whether they are sparse."""
    dtype: torch.dtype = torch.float32


class PieceBlock(SampledBlock):
    """All edges into the first rows of a group: nothing was drawn, so nothing is scaled."""

    def __init__(self, indptr: Tensor, indices: Tensor, *, carried: Tensor, **parts: Any) -> None:
        super().__init__(indptr, indices, **parts)
        self._carried = carried  # [num_src, degrees]

    @property
    def row_scale(self) -> Tensor | None:
        """None: an edge stands for itself."""
        return None

    def by_relation(self) -> RelationBlock:
        return Block.by_relation(self)

    def only_relation(self, relation: int) -> Block:
        return Block.only_relation(self, relation)

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        count = self.num_dst if rows == "dst" else self.num_src
        if relation is not None and self.edge_type is not None:
            if (direction, rows) != ("in", "dst"):
                raise GraphError("degrees of a relation are known of destinations only; use --engine torch")
            return self.counted_degree("in", relation, weighted)[:count]
        place = DEGREES.index((direction, weighted))
        if place >= self._carried.shape[1]:
            raise GraphError("the graph has no edge weights")
        degree = self._carried[:count, place]
        return degree if weighted else degree.float()


def run_slice(stage: Stage, kind: Kind, group: "pa.Table", *, first: bool) -> "pa.RecordBatch":
    """Return (node, h) of the nodes of a group after one slice; `first`: their rows are features."""
    import pyarrow as pa

    node, blocks, h = read_piece(stage, kind, group, first=first)
    with torch.no_grad():
        made = stage.run(blocks, h)
    return pa.record_batch([pa.array(node), lists(made)], names=["node", "h"])


def read_piece(
    stage: Stage,
    kind: Kind,
    group: "pa.Table",
    *,
    first: bool,
    make: Callable[..., Block] = PieceBlock,
    edges: "pa.Table | None" = None,
) -> tuple[NDArray[np.int64], list[Block], Any]:
    """Return the nodes of a group, the blocks that `make` gives for a slice, and the rows that it reads.

    Edges are those of the group, unless others are given.
    """
    import pyarrow as pa

    part = group.column("part").to_numpy()
    nodes = group.filter(pa.array(part == 0))
    edges = group.filter(pa.array(part == 1)) if edges is None else edges
    hop, node = nodes.column("hop").to_numpy(), nodes.column("node").to_numpy()
    order = np.lexsort((node, hop))
    hop, node, nodes = hop[order], node[order], nodes.take(pa.array(order))
    blocks = _blocks(stage.hops, kind, hop, node, nodes, edges, make)
    h = _features(kind, node, nodes) if first else matrix(nodes, "h", kind.dtype)
    return node[hop == 0], blocks, h


def edge_rows(kind: Kind) -> "pa.Table":
    """Return a table of edges without any."""
    import pyarrow as pa

    value = pa.float64() if kind.dtype == torch.float64 else pa.float32()
    fields = [(name, pa.int64()) for name in ("node", "src", "edge")] + [("relation", pa.int32())]
    fields += [(name, value if width is None else pa.list_(value)) for name, width in kind.edge_data]
    return pa.schema(fields).empty_table()


def matrix(rows: "pa.Table", column: str, dtype: torch.dtype) -> Tensor:
    """Return a column of lists of one length as [n, width]."""
    flat = rows.column(column).combine_chunks().flatten().to_numpy(zero_copy_only=False)
    width = len(flat) // max(len(rows), 1)
    return torch.from_numpy(np.array(flat)).reshape(len(rows), width).to(dtype)


def _blocks(
    hops: int,
    kind: Kind,
    hop: NDArray[np.int64],
    node: NDArray[np.int64],
    nodes: "pa.Table",
    edges: "pa.Table",
    make: Callable[..., Block],
) -> list[Block]:
    """Return one block per hop, outermost first; rows are sorted by hop: each begins as the one before."""
    by_id = np.argsort(node)

    def local(name: str) -> NDArray[np.int64]:
        found: NDArray[np.int64] = by_id[
            np.searchsorted(node, edges.column(name).to_numpy(), sorter=by_id)
        ].astype(np.int64)
        return found

    dst, src, edge = local("node"), local("src"), edges.column("edge").to_numpy()
    order = np.lexsort((edge, dst))
    indptr = np.zeros(len(node) + 1, dtype=np.int64)
    np.cumsum(np.bincount(dst, minlength=len(node)), out=indptr[1:])
    edges = edges.take(order)
    relation = torch.from_numpy(np.array(edges.column("relation").to_numpy())).to(torch.int32)
    rows = np.searchsorted(hop, np.arange(hops + 1), side="right")
    whole = {
        "indptr": torch.from_numpy(indptr),
        "indices": torch.from_numpy(src[order]),
        "edge_type": relation if kind.num_relations > 1 else None,
        "ids": torch.from_numpy(np.array(node)),
        "carried": matrix(nodes, "degrees", torch.float64),
        "data": _edge_data(kind, edges),
    }
    sizes = [(int(rows[index - 1]), int(rows[index])) for index in range(hops, 0, -1)]
    return [_block(kind, whole, *size, make) for size in sizes]


def _edge_data(kind: Kind, edges: "pa.Table") -> dict[str, Tensor]:
    """Return what is known of edges, by name, in their order."""
    return {
        name: (
            torch.from_numpy(np.array(edges.column(name).to_numpy())).to(kind.dtype)
            if width is None
            else matrix(edges, name, kind.dtype).reshape(len(edges), width)
        )
        for name, width in kind.edge_data
    }


def _block(
    kind: Kind, whole: dict[str, Any], num_dst: int, num_src: int, make: Callable[..., Block]
) -> Block:
    count = int(whole["indptr"][num_dst])
    types = whole["edge_type"]
    return make(
        whole["indptr"][: num_dst + 1],
        whole["indices"][:count],
        num_src=num_src,
        carried=whole["carried"][:num_src],
        node_types=kind.node_types,
        node_offsets=kind.node_offsets,
        src_ids=whole["ids"][:num_src],
        # Edge data are looked up by these: their places in the group.
        edge_ids=torch.arange(count),
        edge_type=None if types is None else types[:count],
        num_relations=kind.num_relations,
        edge_data=whole["data"],
    )


def _features(kind: Kind, node: NDArray[np.int64], nodes: "pa.Table") -> Any:
    """Return x as a model is given it: a matrix, or one for each node type that has features."""
    import pyarrow as pa

    place = np.searchsorted(np.array(kind.node_offsets[1:-1]), node, side="right")
    found = {}
    for name, width, sparse in kind.features:
        rows = nodes.filter(pa.array(place == kind.node_types.index(name)))
        found[name] = _sparse(rows, width, kind.dtype) if sparse else _dense(rows, width, kind.dtype)
    if len(kind.node_types) > 1:
        return found
    return next(iter(found.values()), None)


def _dense(rows: "pa.Table", width: int, dtype: torch.dtype) -> Tensor:
    return matrix(rows, "h", dtype).reshape(len(rows), width)


def _sparse(rows: "pa.Table", width: int, dtype: torch.dtype) -> SparseFeatures:
    columns, values = rows.column("slots").combine_chunks(), rows.column("h").combine_chunks()
    lengths = columns.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
    flat = [part.flatten().to_numpy(zero_copy_only=False) for part in (columns, values)]
    places, held = torch.from_numpy(np.array(flat[0], dtype=np.int32)), torch.from_numpy(np.array(flat[1]))
    return SparseFeatures(indptr, places, held.to(dtype), (len(rows), width))


def finish_rows(
    finish: Any, embed: Any, names: Sequence[str], dtype: torch.dtype, batch: "pa.RecordBatch"
) -> "pa.RecordBatch":
    """Return (place, node, output, embedding) of a batch of (place, node, rows after the stages)."""
    import pyarrow as pa

    table = pa.Table.from_batches([batch])
    rows = [matrix(table, name, dtype) for name in names]
    with torch.no_grad():
        output = finish(rows)
        embedding = embed(rows) if embed is not None else rows[0][:, :0]
    columns = [table.column("place").combine_chunks(), table.column("node").combine_chunks()]
    return pa.record_batch(
        [*columns, lists(output), lists(embedding)], names=["place", "node", "output", "embedding"]
    )
