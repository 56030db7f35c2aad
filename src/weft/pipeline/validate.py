"""All that is wrong with the tables of a graph, told at once; nothing is written."""

import tempfile
from collections.abc import Callable, Iterable

from weft.pipeline.engines.duckdb import DuckDB
from weft.pipeline.ingest.intake import Intake
from weft.pipeline.ingest.problems import Problems
from weft.pipeline.schema import Schema


def validate(
    schema: Schema,
    *,
    fixes: Iterable[str] = (),
    memory: str | int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Problems, Schema]:
    """Return every problem of the tables, and the schema with what was guessed."""
    problems = Problems(frozenset(fixes))
    with (
        tempfile.TemporaryDirectory(prefix="weft-validate-") as folder,
        DuckDB(folder, memory=memory) as engine,
    ):
        intake = Intake(schema, engine, problems, say)
        intake.survey()
        intake.load(strict=False)
        for kind in intake.nodes:
            readers = intake.node_readers(kind)
            if readers:
                for _ in intake.read(intake.node_sources[kind], readers, None):
                    pass
        for edge_kind, edges in intake.edges.items():
            edge_readers = intake.edge_readers(edge_kind)
            if edge_readers:
                for _ in intake.read(intake.edge_sources[edge_kind], edge_readers, None):
                    pass
            _tell_repeated_edges(engine, edges.table, f"edges {'.'.join(edge_kind)}", problems)
    return problems, intake.schema


def _tell_repeated_edges(engine: DuckDB, table: str, told: str, problems: Problems) -> None:
    repeated = engine.value(
        f"SELECT sum(c - 1) FROM (SELECT count(*) AS c FROM {table} "
        "WHERE src IS NOT NULL AND dst IS NOT NULL GROUP BY src, dst HAVING count(*) > 1)"
    )
    if repeated:
        problems.add(
            "note", "duplicate-edge", told, f"{repeated:,} edges are there already", count=int(repeated),
            fix="drop-duplicate-edges",
        )  # fmt: skip
