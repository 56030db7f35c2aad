"""The files of one table as rows: how they are read, and which file and row a position is.

A table may be many files, Parquet or text (CSV, TSV, gz). Columns of text files are read as text and cast
where they are used, so that "007" stays what it is and a wrong value can be shown. The position of a row is
its place in all files of the table, in order.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

from weft.errors import FormatError, RecipeError
from weft.pipeline.engines.base import Engine, name, text
from weft.pipeline.engines.duckdb import file_list, numbered
from weft.pipeline.ingest.files import BOOL, INTEGER, LIST, REAL, TEXT, TIME, File, open_files
from weft.pipeline.ingest.problems import EXAMPLES, Problems

# Rows of text files by which their columns are judged.
_SAMPLE = 20_000


@dataclass
class TableFiles:
    """All files of one table."""

    table: str
    files: list[File]
    engine: Engine
    kinds: dict[str, str] = field(default_factory=dict)
    """What each column holds in all files."""
    mostly_numbers: set[str] = field(default_factory=set)
    """Columns of text files that hold numbers but for a few values, which are likely wrong."""
    likely: dict[str, str] = field(default_factory=dict)
    """What at least half the values of a column of text files are, where the others are something else."""
    fractions: set[str] = field(default_factory=set)
    """Columns of text files that hold a number with a point, not only digits with zeros before them."""

    def __post_init__(self) -> None:
        self.groups = [list(files) for _, files in groupby(self.files, lambda file: file.signature)]
        self._offsets: list[int] | None = None
        if self.files and self.is_text:
            self.kinds = self._look_at_text()
        elif self.files:
            self.kinds = dict(self.files[0].columns)

    @property
    def is_text(self) -> bool:
        """Whether any of the files is text."""
        return any(file.dialect is not None for file in self.files)

    @property
    def unnamed(self) -> bool:
        """Whether no file has names for its columns."""
        return all(file.dialect is not None and not file.dialect.header for file in self.files)

    def is_half(self, column: str) -> bool:
        """Return whether all files have a column's numbers as float16."""
        return all(column in file.halves for file in self.files)

    def number(self, column: str, kind: str) -> str:
        """Return SQL for a column as numbers of a type, null where a value is none."""
        # A bare cast is handed to DuckDB's reader of text, where a wrong value ends the scan.
        value = f"trim(CAST({name(column)} AS STRING))" if self.is_text else name(column)
        return f"TRY_CAST({value} AS {kind})"

    def scan(self, columns: Mapping[str, str], *, position: bool = True, rejects: str | None = None) -> str:
        """Return the query for columns (name: expression) and, as `pos`, the place of each row."""
        wanted = ", ".join(f"{expression} AS {name(alias)}" for alias, expression in columns.items())
        if self.is_text:
            rows = " UNION ALL ".join(
                f"SELECT {wanted} FROM {self._read_text(group, rejects)}" for group in self.groups
            )
            return f"SELECT row_number() OVER () - 1 AS pos, * FROM ({rows})" if position else rows
        place, parts, start = self._unused("pos"), [], 0
        wanted = f"{place} AS pos, {wanted}" if position else wanted
        for group in self.groups:
            starts = [start, *(start + total for total in accumulate(file.rows or 0 for file in group))]
            found = {file.path: first for file, first in zip(group, starts)}
            rows = self.engine.rows_of(found, list(group[0].columns), place)
            parts.append(f"SELECT {wanted} FROM {rows}")
            start = starts[-1]
        return " UNION ALL ".join(parts)

    def scan_in_order(self, columns: Mapping[str, str]) -> str:
        """Return the query for columns whose rows come in the order of the files."""
        if self.engine.keeps_order:
            return self.scan(columns, position=False)
        return f"SELECT * FROM ({self.scan(columns)}) ORDER BY pos"

    def locate(self, position: int) -> tuple[str, int]:
        """Return the file and the row, from 1, of a position."""
        place = min(bisect_right(self.offsets, position), len(self.files)) - 1
        return str(self.files[place].path), position - self.offsets[place] + 1

    @property
    def offsets(self) -> list[int]:
        """The position of the first row of each file, and the number of rows; counted at first use."""
        if self._offsets is None:
            self._offsets = [0, *accumulate(self._counts())]
        return self._offsets

    def look_up(self, columns: Mapping[str, str], positions: Sequence[int]) -> dict[int, tuple[Any, ...]]:
        """Return the values of a few rows, by position."""
        if not positions:
            return {}
        listed = ", ".join(str(position) for position in positions)
        rows = self.engine.rows(f"SELECT * FROM ({self.scan(columns)}) WHERE pos IN ({listed})")
        return {row[0]: row[1:] for row in rows}

    def report(
        self, problems: Problems, level: Any, kind: str, positions: Sequence[int], **fields: Any
    ) -> None:
        """Add a problem at each of a few positions; `told` makes the words of each of the `values`."""
        values, told = fields.pop("values", None), fields.pop("told")
        for index, position in enumerate(positions[:EXAMPLES]):
            file, row = self.locate(position)
            value = None if values is None else values[index]
            problems.add(level, kind, self.table, told(value), file=file, row=row, value=value, **fields)

    def _read_text(
        self, group: Sequence[File], rejects: str | None = None, *, known: Mapping[str, str] | None = None
    ) -> str:
        return numbered(_scan_text(group, rejects), list(group[0].columns), known or {})

    def _unused(self, own: str) -> str:
        """Return a name for ourselves that no column has, in any case."""
        taken = {column.lower() for file in self.files for column in file.columns}
        while own in taken:
            own += "_"
        return own

    def _counts(self) -> list[int]:
        if not self.is_text:
            return [file.rows or 0 for file in self.files]
        counts, path = [], self._unused("path")
        for group in self.groups:
            rows = self._read_text(group, known={path: "filename"})
            query = f"SELECT {path}, count(*) FROM {rows} GROUP BY {path}"
            found = dict(self.engine.rows(query))
            counts += [found.get(str(file.path), 0) for file in group]
        return counts

    def _look_at_text(self) -> dict[str, str]:
        """Return what the columns of text files hold, by their first rows."""
        columns = list(self.files[0].columns)
        tests = []
        for column in columns:
            c = name(column)
            tests += [
                f"count({c})",
                f"count(*) FILTER (TRY_CAST({c} AS BIGINT)::STRING = {c})",
                f"count(*) FILTER (TRY_CAST({c} AS DOUBLE) IS NOT NULL)",
                f"count(*) FILTER (lower({c}) IN ('true', 'false'))",
                f"count(*) FILTER (TRY_CAST({c} AS TIMESTAMP) IS NOT NULL)",
                f"count(*) FILTER ({c} LIKE '[%' AND TRY_CAST({c} AS DOUBLE[]) IS NOT NULL)",
                f"count(*) FILTER ({c} LIKE '%.%' AND TRY_CAST({c} AS DOUBLE) IS NOT NULL)",
            ]
        scan = f"SELECT * FROM {self._read_text(self.groups[0][:EXAMPLES], 'sample_rejects')} LIMIT {_SAMPLE}"
        (counts,) = self.engine.rows(f"SELECT {', '.join(tests)} FROM ({scan})")
        self.engine.drop("sample_rejects", "sample_rejects_scans")
        kinds = {}
        for index, column in enumerate(columns):
            total, *held, with_point = counts[7 * index : 7 * index + 7]
            fits = [kind for kind, count in zip((INTEGER, REAL, BOOL, TIME, LIST), held) if count == total]
            if with_point:
                self.fractions.add(column)
            if not fits and held[1] > total / 2:
                self.mostly_numbers.add(column)
            if not fits and 2 * max(held[1], held[3]) >= total:
                number = INTEGER if held[0] == held[1] else REAL
                self.likely[column] = number if held[1] >= held[3] else TIME
            kinds[column] = fits[0] if fits and total else TEXT
        return kinds


def open_source(
    table: str, patterns: Sequence[str], engine: Engine, problems: Problems, **options: Any
) -> TableFiles:
    """Return the files that paths and patterns name; those that cannot be read are problems."""
    files = open_files(table, patterns, problems, **options)
    written = next((file for file in files if file.dialect is not None), None)
    if written is not None and not engine.reads_text:
        raise RecipeError(
            f"{written.path} is text, which this engine does not read; write Parquet, or use --engine duckdb"
        )
    half = next((file for file in files if file.halves), None)
    if half is not None and not engine.reads_halves:
        raise RecipeError(
            f"{half.path}: {min(half.halves)!r} is float16, which this engine does not read; use --engine "
            "duckdb, or write float32"
        )
    try:
        return TableFiles(table, files, engine)
    except FormatError as error:
        if not tell_damaged(table, error, problems):
            raise
        return TableFiles(table, [], engine)


def tell_damaged(table: str, error: Exception, problems: Problems) -> bool:
    """Tell of a compressed file that ends too early, if that is what an error says."""
    what, _, path = str(error).partition("GZIP stream: ")
    if path:
        problems.add("error", "damaged", table, f"truncated or damaged gz ({what.strip()})", file=path)
    return bool(path)


def _scan_text(group: Sequence[File], rejects: str | None) -> str:
    """Return DuckDB's table function for text files that agree."""
    paths = file_list([file.path for file in group])
    dialect = group[0].dialect
    assert dialect is not None
    columns = ", ".join(f"{text(column)}: 'STRING'" for column in group[0].columns)
    options = [
        f"auto_detect=false, columns={{{columns}}}, delim={text(dialect.delimiter)}",
        f"quote='\"', escape='\"', header={str(dialect.header).lower()}, hive_partitioning=false",
        f"nullstr=[{', '.join(text(null) for null in dialect.null)}]",
        f"compression={text('gzip' if dialect.gz else 'none')}",
    ]
    options += [f"comment={text(dialect.comment)}"] if dialect.comment else []
    if rejects is not None:
        options.append(
            f"store_rejects=true, rejects_table={text(rejects)}, rejects_scan={text(rejects + '_scans')}"
        )
    return f"read_csv({paths}, {', '.join(options)})"
