"""Inference in the steps of an engine: the rounds of GraphInfer as joins, and slices of the model on groups.

Nodes are cut into pieces of so many edges. A round joins the pieces with their edges, finds the distinct
nodes at either end, joins their rows, and hands each piece as one group to the slice. A row travels once a
piece that reads it, not once an edge. The rows that come out are the table of the next round.
"""

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.source import RowSource
from weft.graph.sparse import SparseFeatures
from weft.pipeline.engines.base import Engine
from weft.pipeline.engines.base import name as quoted
from weft.pipeline.infer_piece import DEGREES, Kind, finish_rows, lists, matrix, run_slice
from weft.pipeline.infer_write import Scored
from weft.train.inference import needed_nodes, pieces
from weft.train.stages import Chain

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of nodes or edges that are handed to the engine at once.
CHUNK = 1 << 16
# Bytes of a piece; its rows are gathered, transformed, aggregated and given, and are there as Arrow, too.
PIECE = 1 << 28
COPIES = 8
# Seconds of a round whose rows are worth the time to write them down.
LONG = 20.0


class Tell(Protocol):
    """Is told how far a round is."""

    def __call__(self, round: int, rounds: int, rows: int, num_rows: int) -> None: ...


def worth_keeping(seconds: float) -> bool:
    """Return whether the rows of a round that took so long are written down, for an attempt after this."""
    return seconds >= LONG


class Rounds:
    """Runs the stages of a model one after the other in an engine."""

    def __init__(self, engine: Engine, graph: Graph, chain: Chain, wanted: Tensor, folder: Path) -> None:
        self.engine, self.graph, self.chain, self.wanted, self.folder = engine, graph, chain, wanted, folder
        self.kind = kind_of(graph, chain)

    def run(self, tell: Tell) -> Iterator[Scored]:
        """Run the rounds that an earlier attempt has not kept, and return what gives the outputs."""
        stages, engine = self.chain.stages, self.engine
        needed = needed_nodes(self.graph, self.wanted, [stage.hops for stage in stages])
        try:
            start = self._found()
            if start < len(stages):
                engine.arrow("nodes", _stream(node_batches(self.graph, self.kind)))
                engine.arrow("edges", _stream(edge_batches(self.graph, self.kind)))
            for number in range(start, len(stages)):
                began = time.perf_counter()
                self._round(number, needed[number])
                if worth_keeping(time.perf_counter() - began):
                    self._keep(number)
                tell(number, len(stages), len(needed[number]), len(needed[number]))
                if number >= 2 and not self.chain.keep_all:
                    engine.drop(f"layer{number - 2}")
                    self._file(number - 2).unlink(missing_ok=True)
        except BaseException:
            engine.close()
            raise
        return self._finish()

    def _file(self, number: int) -> Path:
        return self.folder / f"layer{number}.parquet"

    def _keep(self, number: int) -> None:
        """Write the rows of a round where another attempt finds them."""
        partial = self._file(number).with_suffix(".partial")
        self.engine.write(f"SELECT node, h FROM layer{number}", partial)
        os.replace(partial, self._file(number))

    def _found(self) -> int:
        """Name the rows that an earlier attempt kept, and return the first round that is left to do."""
        count = len(self.chain.stages)
        there = [self._file(number).is_file() for number in range(count)]
        # The end reads two rounds, or all: what lacks the round before is no place to go on from.
        for last in range(count - 1, -1, -1):
            read = range(last + 1) if self.chain.keep_all else range(max(0, last - 1), last + 1)
            if all(there[number] for number in read):
                for number in read:
                    self.engine.parquet("kept", [self._file(number)])
                    self.engine.step(f"layer{number}", "SELECT node, h FROM kept")
                return last + 1
        return 0

    def _round(self, number: int, nodes: Tensor) -> None:
        import pyarrow as pa

        stage, engine = self.chain.stages[number], self.engine
        width = max([stage.width, self._width(number), 1])
        budget = max(1, PIECE // (self.kind.dtype.itemsize * COPIES * width))
        cut = list(pieces(self.graph, nodes, stage.hops, budget))
        engine.arrow("pieces", _numbered(cut))
        self._find_reads(stage.hops)
        function = partial(run_slice, stage, self.kind, first=number == 0)
        value = pa.float64() if self.kind.dtype == torch.float64 else pa.float32()
        schema = pa.schema([("node", pa.int64()), ("h", pa.list_(value))])
        engine.groups(f"layer{number}", self._group_query(number), "piece", len(cut), function, schema)
        engine.drop("pieces", "reads")

    def _find_reads(self, hops: int) -> None:
        """Make the table of the distinct nodes of each piece, with the hop that each is found in."""
        engine = self.engine
        engine.step("reads", "SELECT piece, node, CAST(0 AS BIGINT) AS hop FROM pieces")
        for hop in range(1, hops + 1):
            found = (
                f"SELECT r.piece, e.src AS node, CAST({hop} AS BIGINT) AS hop FROM reads r "
                f"JOIN edges e ON e.dst = r.node WHERE r.hop = {hop - 1}"
            )
            both = f"SELECT piece, node, hop FROM reads UNION ALL {found}"
            engine.step(
                "next_reads", f"SELECT piece, node, min(hop) AS hop FROM ({both}) AS b GROUP BY piece, node"
            )
            engine.step("reads", "SELECT piece, node, hop FROM next_reads")
        engine.drop("next_reads")

    def _group_query(self, number: int) -> str:
        """Return the rows of all pieces: nodes as part 0, the edges into all but the outermost as part 1."""
        data = [quoted(name) for name, _ in self.kind.edge_data]
        hops = self.chain.stages[number].hops
        rows = "n.h, n.slots" if number == 0 else "l.h, n.slots"
        join = "" if number == 0 else f" JOIN layer{number - 1} l ON l.node = r.node"
        # Whatever a part has not is taken from a row that never joins, so that its type is right everywhere.
        nodes = (
            f"SELECT r.piece, 0 AS part, r.hop, r.node, e.src, e.edge, e.relation, "
            f"{''.join(f'e.{column}, ' for column in data)}n.degrees, {rows} "
            f"FROM reads r JOIN nodes n ON n.node = r.node{join} "
            "LEFT JOIN (SELECT * FROM edges WHERE edge < 0) e ON e.dst = r.node"
        )
        edges = (
            f"SELECT r.piece, 1 AS part, r.hop, r.node, e.src, e.edge, e.relation, "
            f"{''.join(f'e.{column}, ' for column in data)}n.degrees, n.h, n.slots "
            f"FROM reads r JOIN edges e ON e.dst = r.node "
            f"LEFT JOIN (SELECT * FROM nodes WHERE node < 0) n ON n.node = r.node WHERE r.hop < {hops}"
        )
        return f"{nodes} UNION ALL {edges}"

    def _finish(self) -> Iterator[Scored]:
        """Run the slice of the output on the wanted nodes, and give what came of it in their order."""
        import pyarrow as pa

        engine, chain, count = self.engine, self.chain, len(self.chain.stages)
        places = np.arange(self.wanted.numel(), dtype=np.int64)
        engine.arrow("wanted", pa.table({"place": places, "node": self.wanted.numpy()}))
        held = range(count) if chain.keep_all else range(max(0, count - 2), count)
        joins = "".join(f" JOIN layer{number} l{number} ON l{number}.node = w.node" for number in held)
        rows = "".join(f", l{number}.h AS h{number}" for number in held)
        names = [f"h{number}" for number in held]
        value = pa.list_(pa.float64() if self.kind.dtype == torch.float64 else pa.float32())
        schema = pa.schema(
            [("place", pa.int64()), ("node", pa.int64()), ("output", value), ("embedding", value)]
        )
        function = partial(finish_rows, chain.finish, chain.embed, names, self.kind.dtype)
        engine.map("outputs", f"SELECT w.place, w.node{rows} FROM wanted w{joins}", function, schema)
        query = "SELECT place, node, output, embedding FROM outputs ORDER BY place"
        with engine:
            for batch in engine.batches(query):
                yield self._scored(pa.Table.from_batches([batch]))

    def _scored(self, rows: "pa.Table") -> Scored:
        embedding = None if self.chain.embed is None else matrix(rows, "embedding", self.kind.dtype)
        nodes = np.array(rows.column("node").to_numpy())
        return Scored(nodes, matrix(rows, "output", self.kind.dtype), embedding)

    def _width(self, number: int) -> int:
        if number:
            return self.chain.stages[number - 1].width
        return max((1 if sparse else width for _, width, sparse in self.kind.features), default=1)


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
    for place, name in enumerate(graph.node_types):
        first, last = graph.node_offsets[place : place + 2]
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


def edge_batches(graph: Graph, kind: Kind) -> "Iterator[pa.RecordBatch]":
    """Give (dst, src, edge, relation) of all edges, and their data."""
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
            "src": graph.indices[start:stop].numpy().astype(np.int64),
            "edge": edge,
            "relation": relation.astype(np.int32),
        }
        for name, width in kind.edge_data:
            value = graph.edge_data[name][start:stop].to(kind.dtype)
            columns[name] = value.numpy() if width is None else lists(value)
        yield pa.record_batch(columns)


def _stream(batches: "Iterator[pa.RecordBatch]") -> "pa.RecordBatchReader":
    import pyarrow as pa

    first = next(batches)

    def all_of_them() -> "Iterator[pa.RecordBatch]":
        yield first
        yield from batches

    return pa.RecordBatchReader.from_batches(first.schema, all_of_them())


def _numbered(cut: list[Tensor]) -> "pa.Table":
    import pyarrow as pa

    numbers = np.repeat(np.arange(len(cut), dtype=np.int64), [len(part) for part in cut])
    return pa.table({"piece": numbers, "node": torch.cat(cut).numpy()})
