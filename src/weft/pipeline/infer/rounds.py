"""Inference in the steps of an engine: the rounds of GraphInfer as joins, and slices of the model on groups.

Nodes are cut into pieces of so many edges. A round joins the pieces with their edges, finds the distinct
nodes at either end, joins their rows, and hands each piece as one group to the slice. A row travels once a
piece that reads it, not once an edge. The rows that come out are the table of the next round. The edges of a
node come in shards; where a node has more edges than a piece may, each shard is a piece (`infer_hubs`).
"""

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.graph.graph import Graph
from weft.pipeline.engines.base import Engine
from weft.pipeline.engines.base import name as quoted
from weft.pipeline.infer.graph_tables import edge_batches, kind_of, node_batches, stream
from weft.pipeline.infer.hubs import HubDegrees, merge_shards, run_shard
from weft.pipeline.infer.piece import finish_rows, matrix, run_slice
from weft.pipeline.infer.write import Scored
from weft.train.inference.infer import needed_nodes, pieces
from weft.train.inference.stages import Chain

if TYPE_CHECKING:
    import pyarrow as pa

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
    """Runs the stages of a model one after the other in an engine, which the caller closes."""

    def __init__(self, engine: Engine, graph: Graph, chain: Chain, wanted: Tensor, folder: Path) -> None:
        self.engine, self.graph, self.chain, self.wanted, self.folder = engine, graph, chain, wanted, folder
        self.kind = kind_of(graph, chain)
        self.degree = graph.indptr.diff()
        split = [self._budget(number) for number, stage in enumerate(chain.stages) if stage.merges]
        self.most = min(split, default=1 << 62)
        """Edges of a shard."""

    def run(self, tell: Tell) -> Iterator[Scored]:
        """Run the rounds that an earlier attempt has not kept, and return what gives the outputs."""
        stages, engine = self.chain.stages, self.engine
        needed = needed_nodes(self.graph, self.wanted, [stage.hops for stage in stages])
        start = self._found()
        if start < len(stages):
            engine.arrow("nodes", stream(node_batches(self.graph, self.kind)))
            engine.arrow("edges", stream(edge_batches(self.graph, self.kind, self.most)))
        for number in range(start, len(stages)):
            began = time.perf_counter()
            self._round(number, needed[number])
            if worth_keeping(time.perf_counter() - began):
                self._keep(number)
            tell(number, len(stages), len(needed[number]), len(needed[number]))
            if number >= 2 and not self.chain.keep_all:
                engine.drop(f"layer{number - 2}")
                self._file(number - 2).unlink(missing_ok=True)
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
        stage, engine = self.chain.stages[number], self.engine
        budget = self._budget(number)
        hubs = self.degree[nodes] > budget if stage.merges else torch.zeros_like(nodes, dtype=torch.bool)
        cut = list(pieces(self.graph, nodes[~hubs], stage.hops, budget))
        function = partial(run_slice, stage, self.kind, first=number == 0)
        some = bool(hubs.any())
        made = "plain_rows" if some else f"layer{number}"
        self._run_pieces(made, number, self._numbered(cut), function, self._row_schema())
        if some:
            self._run_hubs(number, nodes[hubs])
            rows = "SELECT node, h FROM plain_rows UNION ALL SELECT node, h FROM hub_rows"
            engine.step(f"layer{number}", rows)
            engine.drop("plain_rows", "hub_rows")

    def _run_pieces(
        self, table: str, number: int, numbered: "pa.Table", function: Any, schema: "pa.Schema"
    ) -> None:
        """Hand each piece, a number of some shards of nodes, as one group to a function."""
        engine = self.engine
        count = 1 + int(numbered.column("piece").to_numpy().max(initial=0))
        engine.arrow("pieces", numbered)
        self._find_reads(self.chain.stages[number].hops)
        engine.groups(table, self._group_query(number), "piece", count, function, schema)
        engine.drop("pieces", "reads")

    def _run_hubs(self, number: int, hubs: Tensor) -> None:
        """Run a slice on nodes whose edges are pieces, a shard each, and merge what comes of them."""
        import pyarrow as pa

        stage, engine = self.chain.stages[number], self.engine
        ids, shards = self._shards(hubs)
        given = (stage, self.kind, self._relation_degrees(hubs))
        schema = pa.schema([("node", pa.int64()), ("shard", pa.int64()), ("made", pa.list_(pa.float64()))])
        # A shard is known by the number of its piece from here on.
        pieces = pa.table({"piece": np.arange(len(ids)), "node": ids, "shard": shards})
        self._run_pieces("shards", number, pieces, partial(run_shard, *given, first=number == 0), schema)
        engine.arrow("hubs", pa.table({"piece": np.arange(len(hubs)), "node": hubs.numpy()}))
        rows, join = self._read_rows(number, "u")
        query = (
            f"SELECT u.piece, u.node, s.shard, s.made, n.degrees, {rows} FROM hubs u "
            f"JOIN shards s ON s.node = u.node JOIN nodes n ON n.node = u.node{join}"
        )
        function = partial(merge_shards, *given, first=number == 0)
        engine.groups("hub_rows", query, "piece", len(hubs), function, self._row_schema())
        engine.drop("shards", "hubs")

    def _budget(self, number: int) -> int:
        """Return how many edges and rows a piece of a round may have."""
        width = max([self.chain.stages[number].width, self._width(number), 1])
        return max(1, PIECE // (self.kind.dtype.itemsize * COPIES * width))

    def _shards(self, nodes: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all shards of nodes: the node of each, and its number among them."""
        count = np.maximum(-(-self.degree[nodes].numpy() // self.most), 1)
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return np.repeat(nodes.numpy(), count), place

    def _numbered(self, cut: list[Tensor]) -> "pa.Table":
        """Return the shards of the nodes of all pieces, and the number of the piece of each."""
        import pyarrow as pa

        ids, shards = self._shards(torch.cat(cut))
        ends = np.cumsum([len(part) for part in cut])
        place = np.cumsum(shards == 0) - 1  # of each shard's node among all
        piece = np.searchsorted(ends, place, side="right").astype(np.int64)
        return pa.table({"piece": piece, "node": ids, "shard": shards})

    def _relation_degrees(self, hubs: Tensor) -> HubDegrees:
        kinds = self.graph.edge_type
        if kinds is None:
            return {}
        found = {}
        for hub in hubs.tolist():
            first, last = self.graph.indptr[hub : hub + 2].tolist()
            counts = torch.bincount(kinds[first:last].long(), minlength=self.graph.num_relations)
            found[hub] = tuple(map(float, counts.tolist()))
        return found

    def _row_schema(self) -> "pa.Schema":
        import pyarrow as pa

        value = pa.float64() if self.kind.dtype == torch.float64 else pa.float32()
        return pa.schema([("node", pa.int64()), ("h", pa.list_(value))])

    def _find_reads(self, hops: int) -> None:
        """Make the table of the distinct nodes of each piece, with the hop that each is found in."""
        engine = self.engine
        engine.step("reads", "SELECT DISTINCT piece, node, CAST(0 AS BIGINT) AS hop FROM pieces")
        for hop in range(1, hops + 1):
            near = "pieces r JOIN edges e ON e.dst = r.node AND e.shard = r.shard"
            if hop > 1:
                near = f"reads r JOIN edges e ON e.dst = r.node WHERE r.hop = {hop - 1}"
            found = f"SELECT r.piece, e.src AS node, CAST({hop} AS BIGINT) AS hop FROM {near}"
            both = f"SELECT piece, node, hop FROM reads UNION ALL {found}"
            engine.step(
                "next_reads", f"SELECT piece, node, min(hop) AS hop FROM ({both}) AS b GROUP BY piece, node"
            )
            engine.step("reads", "SELECT piece, node, hop FROM next_reads")
        engine.drop("next_reads")

    def _read_rows(self, number: int, table: str) -> tuple[str, str]:
        """Return the columns of the rows that a round reads, and the join that brings them."""
        if number == 0:
            return "n.h, n.slots", ""
        return "l.h, n.slots", f" JOIN layer{number - 1} l ON l.node = {table}.node"

    def _group_query(self, number: int) -> str:
        """Return the rows of all pieces: nodes as part 0, the edges into all but the outermost as part 1."""
        data = [quoted(name) for name, _ in self.kind.edge_data]
        hops = self.chain.stages[number].hops
        rows, join = self._read_rows(number, "r")
        # Whatever a part has not is taken from a row that never joins, so that its type is right everywhere.
        nodes = (
            f"SELECT r.piece, 0 AS part, r.hop, r.node, e.src, e.edge, e.relation, "
            f"{''.join(f'e.{column}, ' for column in data)}n.degrees, {rows} "
            f"FROM reads r JOIN nodes n ON n.node = r.node{join} "
            "LEFT JOIN (SELECT * FROM edges WHERE edge < 0) e ON e.dst = r.node"
        )
        columns = (
            f"1 AS part, {{}} AS hop, r.node, e.src, e.edge, e.relation, "
            f"{''.join(f'e.{column}, ' for column in data)}n.degrees, n.h, n.slots"
        )
        nothing = "LEFT JOIN (SELECT * FROM nodes WHERE node < 0) n ON n.node = r.node"
        edges = (
            f"SELECT r.piece, {columns.format('CAST(0 AS BIGINT)')} FROM pieces r "
            f"JOIN edges e ON e.dst = r.node AND e.shard = r.shard {nothing}"
        )
        further = (
            f"SELECT r.piece, {columns.format('r.hop')} FROM reads r "
            f"JOIN edges e ON e.dst = r.node {nothing} WHERE r.hop > 0 AND r.hop < {hops}"
        )
        return " UNION ALL ".join([nodes, edges, *([further] if hops > 1 else [])])

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
        output = pa.list_(pa.float64()) if chain.double else value
        schema = pa.schema(
            [("place", pa.int64()), ("node", pa.int64()), ("output", output), ("embedding", value)]
        )
        function = partial(finish_rows, chain.finish, chain.embed, names, self.kind.dtype)
        engine.map("outputs", f"SELECT w.place, w.node{rows} FROM wanted w{joins}", function, schema)
        query = "SELECT place, node, output, embedding FROM outputs ORDER BY place"
        for batch in engine.batches(query):
            yield self._scored(pa.Table.from_batches([batch]))

    def _scored(self, rows: "pa.Table") -> Scored:
        embedding = None if self.chain.embed is None else matrix(rows, "embedding", self.kind.dtype)
        nodes = np.array(rows.column("node").to_numpy())
        output = matrix(rows, "output", torch.float64 if self.chain.double else self.kind.dtype)
        return Scored(nodes, output, embedding)

    def _width(self, number: int) -> int:
        if number:
            return self.chain.stages[number - 1].width
        return max((1 if sparse else width for _, width, sparse in self.kind.features), default=1)
