"""From the user's ids to rows: each node type a table (row, id), each relation a table (pos, src, dst)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import FormatError
from weft.pipeline.engines.base import Engine, name
from weft.pipeline.ingest.files import BIG, BOOL, INTEGER, LIST, OTHER, REAL, TEXT, TIME
from weft.pipeline.ingest.problems import EXAMPLES, Problems, show
from weft.pipeline.ingest.sources import TableFiles, tell_damaged
from weft.pipeline.schema import EdgeTable, EdgeType, NodeTable

_NO_ID = (BOOL, TIME, LIST, OTHER)


@dataclass
class LoadedNodes:
    """The nodes of one type, as the table `table` (row, id) of the engine."""

    kind: str
    table: str
    key: str
    """The type of its ids in SQL: BIGINT or STRING."""
    count: int
    keep: NDArray[np.bool_] | None = None
    """Which rows of the files became nodes; None: all."""


@dataclass
class LoadedEdges:
    """The edges of one table, as the table `table` (pos, src, dst) of the engine, with `relation` if many."""

    kind: EdgeType
    table: str
    count: int
    """Edges that are kept."""
    keep: NDArray[np.bool_] | None = None
    relations: list[str] | None = None
    """The names of the relations that `relation` of the table numbers; None: it is one, and has none."""

    @property
    def kinds(self) -> list[EdgeType]:
        """The relations of the graph that it holds."""
        if self.relations is None:
            return [self.kind]
        return [(self.kind[0], relation, self.kind[2]) for relation in self.relations]


def load_nodes(
    engine: Engine, number: int, kind: str, spec: NodeTable, source: TableFiles, problems: Problems
) -> LoadedNodes | None:
    """Return the nodes of a table of nodes; ids that are missing or there twice are problems."""
    column = str(spec.id)
    if not check_id(source, column, problems):
        return None
    table = f"nodes_{number}"
    if not engine.has(table):
        query = source.scan({"id": as_text(source, column)}, rejects="rejects")
        if not _keep_whole(engine, table, f'SELECT pos AS "row", id FROM ({query})', source, problems):
            return None
        if source.is_text and _all_whole(engine, table):
            engine.rows(f"ALTER TABLE {table} ALTER id TYPE BIGINT")
    key = _key_of(engine, table)
    count, nulls, repeated = engine.rows(
        f"SELECT count(*), count(*) - count(id), count(id) - count(DISTINCT id) FROM {table}"
    )[0]
    if count == 0:
        problems.add("warning", "no-rows", source.table, "the table has no rows")
    loaded = LoadedNodes(kind, table, key, count)
    if nulls:
        _tell_null_nodes(engine, table, column, nulls, source, problems)
    if repeated:
        _tell_repeated(engine, table, spec, repeated, source, problems)
    return _without(engine, loaded, count) if nulls or repeated else loaded


def _tell_null_nodes(
    engine: Engine, table: str, column: str, count: int, source: TableFiles, problems: Problems
) -> None:
    rows = engine.rows(f'SELECT "row" FROM {table} WHERE id IS NULL ORDER BY 1 LIMIT {EXAMPLES}')
    source.report(
        problems, "error", "null-id", [row[0] for row in rows], column=column, count=count,
        fix="drop-null-ids", told=lambda _: "the node has no id",
    )  # fmt: skip


def _tell_repeated(
    engine: Engine, table: str, spec: NodeTable, count: int, source: TableFiles, problems: Problems
) -> None:
    rows = engine.rows(
        f'SELECT id, min("row"), max("row") FROM {table} WHERE id IS NOT NULL GROUP BY id '
        f"HAVING count(*) > 1 ORDER BY 2 LIMIT {EXAMPLES}"
    )
    for value, first, last in rows:
        (one, row), (other, again) = source.locate(first), source.locate(last)
        where = f"row {row:,}" if one == other else f"{one}, row {row:,}"
        problems.add(
            "error", "duplicate-id", source.table, f"id {show(value)} is there already, at {where}",
            file=other, row=again, column=spec.id, value=value, count=count, fix="drop-duplicates",
        )  # fmt: skip
    if isinstance(spec.split, str):
        both = {"id": as_text(source, str(spec.id)), "split": f"CAST({name(spec.split)} AS STRING)"}
        leaks = engine.rows(
            f"SELECT id, count(*) OVER () FROM ({source.scan(both)}) WHERE id IS NOT NULL "
            "GROUP BY id HAVING count(DISTINCT split) > 1 LIMIT 1"
        )
        if leaks:
            message = f"id {show(leaks[0][0])} stands in several rows, in different splits"
            shown = {"column": spec.split, "value": leaks[0][0], "count": leaks[0][1]}
            problems.add("error", "split-leak", source.table, message, fix="drop-duplicates", **shown)


def _without(engine: Engine, nodes: LoadedNodes, rows: int) -> LoadedNodes:
    """Return the nodes without those that have no id, and with one row per id: the first."""
    table = f"{nodes.table}_kept"
    first = f'SELECT id, min("row") AS pos FROM {nodes.table} WHERE id IS NOT NULL GROUP BY id'
    order = 'row_number() OVER (ORDER BY pos) - 1 AS "row"'
    count = engine.step(table, f"SELECT {order}, id, pos FROM ({first})")
    return LoadedNodes(nodes.kind, table, nodes.key, count, _mask(engine, f"SELECT pos FROM {table}", rows))


def imply_nodes(
    engine: Engine, number: int, kind: str, ends: Sequence[tuple[TableFiles, str]], problems: Problems
) -> LoadedNodes | None:
    """Return the nodes of a type that has no table: whatever the edges name, in order of ids."""
    table = f"nodes_{number}"
    if not check_ids(ends, problems):
        return None
    if not engine.has(table):
        whole = all(source.kinds[column] == INTEGER and not source.is_text for source, column in ends)
        key = "BIGINT" if whole else "STRING"
        parts = [
            source.scan({"id": f"CAST({name(column)} AS {key})"}, position=False, rejects="rejects")
            for source, column in ends
        ]
        loaded = f"SELECT DISTINCT id FROM ({' UNION ALL '.join(parts)}) WHERE id IS NOT NULL"
        if not _keep_whole(engine, "implied", loaded, ends[0][0], problems):
            return None
        whole = whole or (any(source.is_text for source, _ in ends) and _all_whole(engine, "implied"))
        key = "CAST(id AS BIGINT)" if whole else "id"
        order = f'row_number() OVER (ORDER BY {key}) - 1 AS "row"'
        engine.step(table, f"SELECT {order}, {key} AS id FROM implied")
        engine.drop("implied")
    count = engine.value(f"SELECT count(*) FROM {table}")
    return LoadedNodes(kind, table, _key_of(engine, table), count)


def load_edges(
    engine: Engine,
    number: int,
    kind: EdgeType,
    spec: EdgeTable,
    source: TableFiles,
    nodes: Mapping[str, LoadedNodes],
    problems: Problems,
) -> LoadedEdges | None:
    """Return the edges of a table of edges as rows of nodes; ends that are no node are problems."""
    src, dst = str(spec.src), str(spec.dst)
    if not check_ids([(source, src), (source, dst)], problems):
        return None
    first, last, table = nodes[kind[0]], nodes[kind[2]], f"edges_{number}"
    if not engine.has(table):
        ends = {"src": as_key(source, src, first.key), "dst": as_key(source, dst, last.key)}
        named, joined = "", ""
        if spec.relation is not None:
            _number_relations(engine, number, source, spec.relation)
            ends["relation"] = f"CAST({name(spec.relation)} AS STRING)"
            named = ', CAST(r."row" AS INTEGER) AS relation'
            joined = f" LEFT JOIN relations_{number} r ON e.relation = r.id"
        small = "INTEGER" if max(first.count, last.count) < 2**31 else "BIGINT"
        query = (
            f'SELECT e.pos, CAST(s."row" AS {small}) AS src, CAST(d."row" AS {small}) AS dst{named} '
            f"FROM ({source.scan(ends, rejects='rejects')}) e "
            f"LEFT JOIN {first.table} s ON e.src = s.id LEFT JOIN {last.table} d ON e.dst = d.id{joined}"
        )
        with engine.as_written():
            whole = _keep_whole(engine, table, query, source, problems)
        if not whole:
            return None
    total, bad = engine.rows(f"SELECT count(*), count(*) - count(src + dst) FROM {table}")[0]
    if total == 0:
        problems.add("note", "no-rows", source.table, "the table has no edges")
    if bad:
        _tell_dangling(engine, table, kind, (src, dst), source, problems)
    edges = LoadedEdges(
        kind, table, total, relations=_relations(engine, number, table, spec, source, problems)
    )
    return _kept_edges(engine, edges, total, bad, problems)


def _number_relations(engine: Engine, number: int, source: TableFiles, column: str) -> None:
    """Keep the names of relations, numbered in their order, as the table `relations_PLACE` (row, id)."""
    if engine.has(f"relations_{number}"):
        return
    rows = source.scan({"id": f"CAST({name(column)} AS STRING)"}, position=False, rejects="rejects")
    distinct = f"SELECT DISTINCT id FROM ({rows}) WHERE id IS NOT NULL"
    engine.step(
        f"relations_{number}", f'SELECT row_number() OVER (ORDER BY id) - 1 AS "row", id FROM ({distinct})'
    )


def _relations(
    engine: Engine, number: int, table: str, spec: EdgeTable, source: TableFiles, problems: Problems
) -> list[str] | None:
    """Return the names of a table's relations in the order of their numbers; rows without are problems."""
    if spec.relation is None:
        return None
    lacking = engine.rows(
        f"SELECT pos, count(*) OVER () FROM {table} WHERE relation IS NULL ORDER BY pos LIMIT {EXAMPLES}"
    )
    if lacking:
        source.report(
            problems, "error", "null-relation", [row[0] for row in lacking], column=spec.relation,
            count=lacking[0][1], told=lambda _: "the edge has no relation",
        )  # fmt: skip
    return [row[0] for row in engine.rows(f'SELECT id FROM relations_{number} ORDER BY "row"')]


def _kept_edges(engine: Engine, edges: LoadedEdges, total: int, bad: int, problems: Problems) -> LoadedEdges:
    """Return the edges that have both ends and, where asked for, each only once; renumbered in order."""
    once = "drop-duplicate-edges" in problems.fixes
    if not bad and not once:
        return edges
    ends = "src, dst" if edges.relations is None else "src, dst, relation"
    rows = f"SELECT pos, {ends} FROM {edges.table} WHERE src IS NOT NULL AND dst IS NOT NULL"
    if once:
        rows = f"SELECT min(pos) AS pos, {ends} FROM ({rows}) GROUP BY {ends}"
    table = f"{edges.table}_kept"
    count = engine.step(
        table, f"SELECT row_number() OVER (ORDER BY pos) - 1 AS pos, {ends}, pos AS old FROM ({rows})"
    )
    keep = _mask(engine, f"SELECT old FROM {table}", total)
    return LoadedEdges(edges.kind, table, count, keep, edges.relations)


def _tell_dangling(
    engine: Engine,
    table: str,
    kind: EdgeType,
    columns: tuple[str, str],
    source: TableFiles,
    problems: Problems,
) -> None:
    for end, column, node_type in (("src", columns[0], kind[0]), ("dst", columns[1], kind[2])):
        c = name(column)
        wrong = f"SELECT t.pos, e.value FROM {table} t JOIN ({source.scan({'value': c})}) e ON t.pos = e.pos"
        wrong = f"{wrong} WHERE t.{end} IS NULL"
        for empty, level_kind, fix in (
            (True, "null-id", "drop-null-ids"),
            (False, "dangling-edge", "drop-dangling"),
        ):
            test = "IS NULL" if empty else "IS NOT NULL"
            rows = engine.rows(
                f"SELECT pos, value, count(*) OVER () FROM ({wrong}) WHERE value {test} "
                f"ORDER BY pos LIMIT {EXAMPLES}"
            )
            if rows:
                source.report(
                    problems, "error", level_kind, [row[0] for row in rows], values=[row[1] for row in rows],
                    column=column, count=rows[0][2], fix=fix, told=_told_end(node_type, empty),
                )  # fmt: skip


def _told_end(node_type: str, empty: bool) -> Any:
    return lambda value: "the edge has no id here" if empty else f"no {node_type} has the id {show(value)}"


def check_ids(columns: Sequence[tuple[TableFiles, str]], problems: Problems) -> bool:
    """Return whether all columns can hold ids; else tell why not, of each."""
    right = [check_id(source, column, problems) for source, column in columns]
    return all(right)


def check_id(source: TableFiles, column: str, problems: Problems) -> bool:
    """Return whether a column can hold ids; else tell why not."""
    kind = source.kinds.get(column)
    if kind is None:
        known = ", ".join(source.kinds) or "none"
        problems.add("error", "no-column", source.table, f"no such column; there are: {known}", column=column)
        return False
    if kind in _NO_ID or (kind == REAL and not source.is_text):
        hint = "; pandas makes fractions of whole numbers where a value is missing: cast them back"
        message = f"ids are whole numbers or text, the column holds {kind}{hint if kind == REAL else ''}"
        problems.add("error", "id-type", source.table, message, column=column)
        return False
    if kind == REAL and column in source.fractions:
        message = "ids look like fractions; they are taken as text, so 1.0 and 1 are two ids"
        problems.add("warning", "id-type", source.table, message, column=column)
    return True


def as_text(source: TableFiles, column: str) -> str:
    """Return the expression for an id as it is: a whole number, or text."""
    c = name(column)
    if source.is_text or source.kinds[column] == TEXT:
        return f"CAST({c} AS STRING)"
    return f"CAST({c} AS STRING)" if source.kinds[column] == BIG else f"CAST({c} AS BIGINT)"


def as_key(source: TableFiles, column: str, key: str) -> str:
    """Return the expression for an id that is compared with those of nodes, which are of type `key`."""
    c = name(column)
    if key == "STRING":
        return f"CAST({c} AS STRING)"
    if source.kinds[column] == INTEGER and not source.is_text:
        return f"CAST({c} AS BIGINT)"
    number = f"TRY_CAST({c} AS BIGINT)"  # "007" is not the id 7
    return f"CASE WHEN CAST({number} AS STRING) = CAST({c} AS STRING) THEN {number} END"


def _all_whole(engine: Engine, table: str) -> bool:
    """Return whether all ids are whole numbers written the usual way, so that nothing is lost as numbers."""
    total, other = engine.rows(
        "SELECT count(id), count(*) FILTER (WHERE id IS NOT NULL AND "
        f"CAST(TRY_CAST(id AS BIGINT) AS STRING) IS DISTINCT FROM id) FROM {table}"
    )[0]
    return bool(total) and not other


def _keep_whole(engine: Engine, table: str, query: str, source: TableFiles, problems: Problems) -> bool:
    """Keep a query as a table, unless lines of its text files cannot be read: those are told."""
    if not source.is_text:
        engine.step(table, query)
        return True
    engine.rows("DROP TABLE IF EXISTS rejects")
    engine.rows("DROP TABLE IF EXISTS rejects_scans")
    try:
        engine.step("loading", query)
    except FormatError as error:
        if not tell_damaged(source.table, error, problems):
            raise
        return False
    if source.is_text and _tell_rejects(engine, source, problems):
        engine.drop("loading")
        return False
    engine.rename("loading", table)
    return True


def _tell_rejects(engine: Engine, source: TableFiles, problems: Problems) -> bool:
    if not engine.has("rejects"):
        return False
    rows = engine.rows(
        "SELECT DISTINCT s.file_path, e.line, e.csv_line, e.error_message FROM rejects e "
        "JOIN rejects_scans s ON e.scan_id = s.scan_id AND e.file_id = s.file_id ORDER BY 1, 2"
    )
    headers = {str(file.path): file.dialect is not None and file.dialect.header for file in source.files}
    for file, line, cells, message in rows[:EXAMPLES]:
        text = f"line {line:,} cannot be read: {' '.join(message.split())}"
        row = line - headers.get(file, False)
        problems.add(
            "error", "malformed-line", source.table, text, file=file, row=row, value=cells, count=len(rows)
        )
    return bool(rows)


def _key_of(engine: Engine, table: str) -> str:
    """Return the type of the ids of a table, as SQL has it; of no ids it does not matter."""
    kinds = engine.rows(f"SELECT typeof(id) FROM {table} WHERE id IS NOT NULL LIMIT 1")
    return "BIGINT" if kinds and str(kinds[0][0]).upper() == "BIGINT" else "STRING"


def _mask(engine: Engine, query: str, rows: int) -> NDArray[np.bool_]:
    keep = np.zeros(rows, dtype=np.bool_)
    for batch in engine.batches(query):
        keep[batch.column(0).to_numpy(zero_copy_only=False)] = True
    return keep
