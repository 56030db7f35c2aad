"""Reading a user's tables, with every check: what `ingest` writes and `validate` only looks at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.pipeline.engines.base import Engine
from weft.pipeline.ingest.columns import ColumnEncoder, MatrixColumns, NumberColumn, make_encoder
from weft.pipeline.ingest.edge_targets import EdgeTargetArrays, FileSplits
from weft.pipeline.ingest.files import splits_of
from weft.pipeline.ingest.guess import HEADER, complete_edges, complete_nodes
from weft.pipeline.ingest.problems import Problems
from weft.pipeline.ingest.sources import TableFiles, open_source
from weft.pipeline.ingest.tables import LoadedEdges, LoadedNodes, imply_nodes, load_edges, load_nodes
from weft.pipeline.ingest.targets import TargetArrays
from weft.pipeline.schema import EdgeTable, EdgeType, NodeTable, Schema, Table, features_of

Reader = MatrixColumns | NumberColumn | TargetArrays | EdgeTargetArrays | FileSplits
Say = Callable[[str], None]
Rows = dict[str, NDArray[Any]]


@dataclass
class Intake:
    """The tables of one graph: their files, what their columns mean, their nodes and edges by row."""

    schema: Schema
    engine: Engine
    problems: Problems
    say: Say = lambda _: None
    node_sources: dict[str, TableFiles] = field(default_factory=dict)
    edge_sources: dict[EdgeType, TableFiles] = field(default_factory=dict)
    nodes: dict[str, LoadedNodes] = field(default_factory=dict)
    edges: dict[EdgeType, LoadedEdges] = field(default_factory=dict)

    def survey(self) -> None:
        """Look at all files and complete the schema."""
        for kind, nodes in list(self.schema.nodes.items()):
            source = self._open(f"nodes {kind}", nodes)
            if source is not None:
                self.node_sources[kind] = source
                nodes = complete_nodes(kind, nodes, source, self.problems)
                self.schema.nodes[kind] = nodes
        for edge_kind, edges in list(self.schema.edges.items()):
            source = self._open(f"edges {'.'.join(edge_kind)}", edges)
            if source is not None:
                self.edge_sources[edge_kind] = source
                edges = complete_edges(edges, source, self.problems)
                self.schema.edges[edge_kind] = edges
        ends = [end for kind in self.schema.edges for end in (kind[0], kind[2])]
        for kind in ends:
            if kind not in self.schema.nodes:
                message = "there is no such table: its nodes are the ids that edges name"
                self.problems.add("note", "implied-nodes", f"nodes {kind}", message)
                self.schema.nodes[kind] = NodeTable()

    def load(self, *, strict: bool) -> None:
        """Turn ids into rows; `strict` stops at the first table with errors."""
        for index, (kind, nodes) in enumerate(self.schema.nodes.items()):
            found = self._load_nodes(index, kind, nodes)
            if found is not None:
                self.nodes[kind] = found
                self.say(f"nodes {kind}: {found.count:,}")
            if strict:
                self.problems.check()
        for index, (edge_kind, edges) in enumerate(self.schema.edges.items()):
            source = self.edge_sources.get(edge_kind)
            if source is None or not self._whole(edge_kind):
                continue
            held = load_edges(self.engine, index, edge_kind, edges, source, self.nodes, self.problems)
            if held is not None:
                self.edges[edge_kind] = held
                self.say(f"edges {'.'.join(edge_kind)}: {held.count:,}")
            if strict:
                self.problems.check()
        if not self.problems.errors and not sum(nodes.count for nodes in self.nodes.values()):
            self.problems.add("error", "empty-graph", "nodes", "there is no node at all")

    def node_readers(self, kind: str) -> list[Reader]:
        """Return what reads the columns of a node table."""
        source, spec = self.node_sources.get(kind), self.schema.nodes[kind]
        if source is None or kind not in self.nodes:
            return []
        readers: list[Reader] = self._matrix("x", source, spec)
        named = [column for column in (spec.label, *_columns(spec.split)) if column is not None]
        if named and self._all_known(source, named):
            readers.append(TargetArrays(source, spec.label, spec.split or None))
        return readers + self._values("time", source, spec.time)

    def edge_readers(self, kind: EdgeType) -> list[Reader]:
        """Return what reads the columns of an edge table."""
        source, spec = self.edge_sources.get(kind), self.schema.edges[kind]
        if source is None or kind not in self.edges:
            return []
        weight = self._values("weight", source, spec.weight)
        readers = weight + self._matrix("attr", source, spec) + self._values("time", source, spec.time)
        label = spec.label_feature(source.table)
        named = ([] if label is None else [label.column]) + _columns(spec.split)
        if named and self._all_known(source, named):
            readers.append(EdgeTargetArrays(source, label, spec.split or None))
        if spec.file_splits is not None:
            readers.append(FileSplits(source, splits_of(source.table, spec.files, spec.file_splits)))
        return readers

    def read(
        self, source: TableFiles, readers: list[Reader], keep: NDArray[np.bool_] | None
    ) -> Iterator[Rows]:
        """Give the arrays of a table, some rows at a time, and tell at the end what was wrong."""
        expressions = {key: value for reader in readers for key, value in reader.expressions.items()}
        start = 0
        for batch in self.engine.batches(source.scan_in_order(expressions)):
            rows: Rows = {}
            for reader in readers:
                rows |= reader.read(batch, start)
            kept = None if keep is None else keep[start : start + batch.num_rows]
            yield rows if kept is None else {key: value[kept] for key, value in rows.items()}
            start += batch.num_rows
        for reader in readers:
            reader.finish(self.problems)

    def _whole(self, kind: EdgeType) -> bool:
        """Return whether all nodes of both ends are known; else edges would seem to dangle."""
        torn = {"no-file", "unreadable", "damaged", "empty-file", "wrong-extension", "encoding", "file-name"}
        torn |= {"same-name", "schema-drift"}
        for end in (kind[0], kind[2]):
            broken = [p for p in self.problems.errors if p.table == f"nodes {end}" and p.kind in torn]
            if broken or end not in self.nodes:
                message = f"edges were not compared with nodes {end}, which could not all be read"
                self.problems.add("note", "not-checked", f"edges {'.'.join(kind)}", message)
                return False
        return True

    def _open(self, name: str, table: Table) -> TableFiles | None:
        options: dict[str, Any] = {"header": table.header, "delimiter": table.delimiter, "null": table.null}
        if isinstance(table, EdgeTable) and table.guess and table.relation is not None:
            options["words"] = HEADER  # else the first triple of names looks like names of columns
        source = open_source(name, table.files, self.engine, self.problems, **options)
        return source if source.files else None

    def _load_nodes(self, place: int, kind: str, nodes: NodeTable) -> LoadedNodes | None:
        if kind in self.node_sources:
            return load_nodes(self.engine, place, kind, nodes, self.node_sources[kind], self.problems)
        if nodes.files:
            return None
        ends = [
            (self.edge_sources[edge_kind], str(column))
            for edge_kind, edges in self.schema.edges.items()
            for end, column in ((edge_kind[0], edges.src), (edge_kind[2], edges.dst))
            if end == kind and edge_kind in self.edge_sources
        ]
        return imply_nodes(self.engine, place, kind, ends, self.problems) if ends else None

    def _matrix(self, array: str, source: TableFiles, spec: Table) -> list[Reader]:
        encoders: list[ColumnEncoder] = []
        for feature in features_of(spec, source.table):
            if self._known(source, feature.column):
                found = make_encoder(source, feature, self.problems)
                encoders += [] if found is None else [found]
        fill = "fill-missing" in self.problems.fixes
        return [MatrixColumns(array, encoders, fill=fill)] if sum(part.width for part in encoders) else []

    def _values(self, array: str, source: TableFiles, column: str | None) -> list[Reader]:
        if column is None or not self._known(source, column):
            return []
        return [NumberColumn(array, source, column, fill="fill-missing" in self.problems.fixes)]

    def _all_known(self, source: TableFiles, columns: list[str]) -> bool:
        known = [self._known(source, column) for column in columns]  # each of them is told
        return all(known)

    def _known(self, source: TableFiles, column: str) -> bool:
        if column in source.kinds:
            return True
        known = ", ".join(source.kinds) or "none"
        message = f"no such column; there are: {known}"
        self.problems.add("error", "no-column", source.table, message, column=column)
        return False


def _columns(split: str | dict[str, str] | None) -> list[str]:
    return [split] if isinstance(split, str) else list((split or {}).values())
