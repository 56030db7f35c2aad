"""The files of one table: what they hold, how they are read, and which file and row a position is.

A table may be many files, Parquet or text (CSV, TSV, gz). Columns of text files are read as text and cast
where they are used, so that "007" stays what it is and a wrong value can be shown. The position of a row is
its place in all files of the table, in order.
"""

import csv
import glob
import gzip
import os
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from weft.errors import FormatError
from weft.pipeline.engines.base import name, text
from weft.pipeline.engines.duckdb import DuckDB, file_list
from weft.pipeline.problems import EXAMPLES, Problems

# What a column holds, as far as ingest cares.
INTEGER, BIG, REAL, TEXT, BOOL, TIME, LIST, OTHER = (
    *("integer", "big integer", "real", "text", "boolean"),
    *("time", "list of numbers", "other"),
)
_DELIMITERS = (",", "\t", ";", "|", " ")
_PARQUET = (".parquet", ".pq", ".parq")
_HEAD = 1 << 18
_SAMPLE = 20_000


@dataclass(frozen=True)
class Text:
    """How a text file is written."""

    delimiter: str = ","
    header: bool = True
    comment: str = ""
    gz: bool = False
    null: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class File:
    """One file of a table."""

    path: Path
    columns: Mapping[str, str]
    """What each column holds, by name; of text files TEXT until the rows were looked at."""
    rows: int | None = None
    dialect: Text | None = None
    """None: Parquet."""

    @property
    def signature(self) -> tuple[Any, ...]:
        """What files that are read together agree on."""
        return (*self.columns.items(), self.dialect)


@dataclass
class Source:
    """All files of one table."""

    table: str
    files: list[File]
    engine: DuckDB
    kinds: dict[str, str] = field(default_factory=dict)
    """What each column holds in all files."""
    mostly_numbers: set[str] = field(default_factory=set)
    """Columns of text files that hold numbers but for a few values, which are likely wrong."""
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

    def scan(self, columns: Mapping[str, str], *, position: bool = True, rejects: str | None = None) -> str:
        """Return the query for columns (name: expression) and, as `pos`, the place of each row."""
        wanted = ", ".join(f"{expression} AS {name(alias)}" for alias, expression in columns.items())
        if not position:
            return " UNION ALL ".join(
                f"SELECT {wanted} FROM {self._read(group, rejects)}" for group in self.groups
            )
        if self.is_text:
            rows = " UNION ALL ".join(
                f"SELECT {wanted} FROM {self._read(group, rejects)}" for group in self.groups
            )
            return f"SELECT row_number() OVER () - 1 AS pos, * FROM ({rows})"
        parts, start, place = [], 0, self._unused("pos")
        for group in self.groups:
            rows = self._read(group, known={place: _position(group, start)})
            parts.append(f"SELECT {place} AS pos, {wanted} FROM {rows}")
            start += sum(file.rows or 0 for file in group)
        return " UNION ALL ".join(parts)

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
        for place, position in enumerate(positions[:EXAMPLES]):
            file, row = self.locate(position)
            value = None if values is None else values[place]
            problems.add(level, kind, self.table, told(value), file=file, row=row, value=value, **fields)

    def _read(
        self, group: Sequence[File], rejects: str | None = None, *, known: Mapping[str, str] | None = None
    ) -> str:
        """Return the rows of files under the names of their columns, and what DuckDB knows of each row.

        `known` holds names that no column has (`_unused`) and expressions of filename, file_index and
        file_row_number. A column of such a name, in any case, would hide DuckDB's: while files are read,
        columns have numbers.
        """
        columns = list(group[0].columns)
        numbers = [f"column_{place}" for place in range(len(columns))]
        held = [f"{number} AS {name(column)}" for number, column in zip(numbers, columns)]
        held += [f"{expression} AS {own}" for own, expression in (known or {}).items()]
        return f"(SELECT {', '.join(held)} FROM {_scan(group, rejects)} AS t({', '.join(numbers)}))"

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
            query = (
                f"SELECT {path}, count(*) FROM {self._read(group, known={path: 'filename'})} GROUP BY {path}"
            )
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
                f"count(*) FILTER (TRY_CAST({c} AS BIGINT)::VARCHAR = {c})",
                f"count(*) FILTER (TRY_CAST({c} AS DOUBLE) IS NOT NULL)",
                f"count(*) FILTER (lower({c}) IN ('true', 'false'))",
                f"count(*) FILTER (TRY_CAST({c} AS TIMESTAMP) IS NOT NULL)",
                f"count(*) FILTER ({c} LIKE '[%' AND TRY_CAST({c} AS DOUBLE[]) IS NOT NULL)",
                f"count(*) FILTER ({c} LIKE '%.%' AND TRY_CAST({c} AS DOUBLE) IS NOT NULL)",
            ]
        scan = f"SELECT * FROM {self._read(self.groups[0][:EXAMPLES], 'sample_rejects')} LIMIT {_SAMPLE}"
        (counts,) = self.engine.rows(f"SELECT {', '.join(tests)} FROM ({scan})")
        self.engine.drop("sample_rejects", "sample_rejects_scans")
        kinds = {}
        for place, column in enumerate(columns):
            total, *held, with_point = counts[7 * place : 7 * place + 7]
            fits = [kind for kind, count in zip((INTEGER, REAL, BOOL, TIME, LIST), held) if count == total]
            if with_point:
                self.fractions.add(column)
            if not fits and held[1] > total / 2:
                self.mostly_numbers.add(column)
            kinds[column] = fits[0] if fits and total else TEXT
        return kinds


def open_source(
    table: str,
    patterns: Sequence[str],
    engine: DuckDB,
    problems: Problems,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    null: Sequence[str] = ("",),
) -> Source:
    """Return the files that paths and patterns name; those that cannot be read are problems."""
    files = []
    for path in _expand(table, patterns, problems):
        file = _open(table, path, problems, header=header, delimiter=delimiter, null=tuple(null))
        files += [] if file is None else [file]
    files = _agreeing(table, files, problems)
    try:
        return Source(table, files, engine)
    except FormatError as error:
        if not tell_damaged(table, error, problems):
            raise
        return Source(table, [], engine)


def tell_damaged(table: str, error: Exception, problems: Problems) -> bool:
    """Tell of a compressed file that ends too early, if that is what an error says."""
    what, _, path = str(error).partition("GZIP stream: ")
    if path:
        problems.add("error", "damaged", table, f"truncated or damaged gz ({what.strip()})", file=path)
    return bool(path)


def _expand(table: str, patterns: Sequence[str], problems: Problems) -> list[Path]:
    paths: list[str] = []
    for pattern in patterns:
        if os.path.isdir(pattern):
            inside = sorted(entry.path for entry in os.scandir(pattern) if entry.is_file())
            found = [path for path in inside if not os.path.basename(path).startswith((".", "_"))]
        elif os.path.exists(pattern):
            found = [pattern]
        else:
            found = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
        if not found:
            what = "matches no file" if glob.has_magic(pattern) else "no such file"
            problems.add("error", "no-file", table, f"{pattern}: {what}", file=pattern)
        paths += found
    return [Path(path) for path in dict.fromkeys(paths)]


def _open(table: str, path: Path, problems: Problems, **options: Any) -> File | None:
    def wrong(kind: str, message: str) -> None:
        problems.add("error", kind, table, message, file=str(path))

    def note(kind: str, message: str) -> None:
        problems.add("note", kind, table, message, file=str(path))

    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        problems.add("error", "file-name", table, "the name of the file is not UTF-8; rename it", file=shown)
        return None
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        wrong("unreadable", f"cannot be read: {error.strerror}")
        return None
    named = path.suffix.lower() in _PARQUET
    if not magic:
        wrong("empty-file", "the file is empty: not even a header")
    elif magic == b"PAR1" and named:
        return _open_parquet(path, wrong)
    elif magic == b"PAR1":
        wrong(
            "wrong-extension", f"holds Parquet, but is named {path.suffix or 'without extension'}; rename it"
        )
    elif named:
        wrong("wrong-extension", "is named as Parquet, but does not hold it; rename or write it again")
    else:
        return _open_text(path, magic[:2] == b"\x1f\x8b", wrong, note, **options)
    return None


def _open_parquet(path: Path, wrong: Any) -> File | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = {part.name: _kind(part.type) for part in file.schema_arrow}
            rows = file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        wrong("damaged", f"damaged Parquet ({str(error).splitlines()[0][:120]})")
        return None
    if len({column.lower() for column in columns}) < len(columns):
        wrong("same-name", "two columns have the same name but for upper and lower case; rename one")
        return None
    return File(path, columns, rows)


def _kind(held: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(held):
        held = held.value_type
    if types.is_list(held) or types.is_large_list(held) or types.is_fixed_size_list(held):
        return LIST if _kind(held.value_type) in (INTEGER, BIG, REAL, BOOL) else OTHER
    tests = [
        (BIG, types.is_uint64(held) or (types.is_decimal(held) and held.scale == 0)),
        (INTEGER, types.is_integer(held)),
        (REAL, types.is_floating(held) or types.is_decimal(held)),
        (TEXT, types.is_string(held) or types.is_large_string(held)),
        (BOOL, types.is_boolean(held)),
        (TIME, types.is_timestamp(held) or types.is_date(held)),
    ]
    return next((kind for kind, holds in tests if holds), OTHER)


def _open_text(
    path: Path,
    gz: bool,
    wrong: Any,
    note: Any,
    *,
    header: bool | None,
    delimiter: str | None,
    null: tuple[str, ...],
) -> File | None:
    try:
        with gzip.open(path) if gz else open(path, "rb") as file:
            head = file.read(_HEAD)
        if not gz and path.suffix.lower() == ".gz":
            wrong("wrong-extension", "is named .gz, but is not compressed; rename it")
            return None
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            wrong("encoding", "is UTF-16; save it as UTF-8")
            return None
        lines = head.decode("utf-8-sig", errors="replace" if len(head) < _HEAD else "ignore")
    except (EOFError, zlib.error, OSError) as error:
        wrong("damaged", f"truncated or damaged gz ({error})" if gz else f"cannot be read: {error}")
        return None
    if head[:3] == b"\xef\xbb\xbf":
        note("byte-order-mark", "begins with a byte order mark, which is skipped")
    if b"\r\n" in head:
        note("crlf", "lines end in CR LF, as on Windows; they are read as lines")
    comment = "#" if lines.startswith("#") else ""
    rows = [line for line in lines.splitlines() if not (comment and line.startswith(comment))]
    if not rows or not rows[0].strip():
        wrong("empty-file", "the file is empty: not even a header")
        return None
    tabs = ".tsv" in [suffix.lower() for suffix in path.suffixes]
    delimiter = delimiter or ("\t" if tabs else max(_DELIMITERS, key=lambda mark: _fields(rows[0], mark)))
    cells = next(
        csv.reader([line + "\n" for line in lines[lines.index(rows[0]) :].split("\n")], delimiter=delimiter)
    )
    if header is None:
        header = not all(_number(cell) for cell in cells)
    names = [cell.strip() or f"column{place}" for place, cell in enumerate(cells)]
    names = names if header else [f"column{place}" for place in range(len(cells))]
    repeated = [cell for cell in names if [other.lower() for other in names].count(cell.lower()) > 1]
    if repeated:
        wrong("same-name", f"two columns are named {repeated[0]!r}; rename one")
        return None
    return File(path, dict.fromkeys(names, TEXT), None, Text(delimiter, header, comment, gz, null))


def _fields(line: str, delimiter: str) -> tuple[int, int]:
    """Return how many fields a delimiter makes of a line; of equals the more usual is taken."""
    fields = next(csv.reader([line], delimiter=delimiter))
    return len(fields), -_DELIMITERS.index(delimiter)


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _agreeing(table: str, files: Sequence[File], problems: Problems) -> list[File]:
    """Return the files whose columns agree with those of the first, and tell of the others."""
    if not files:
        return []
    first, agreeing = files[0], [files[0]]
    for number, file in enumerate(files[1:], 2):
        place = f"file {number} of {len(files)}"
        missing = [column for column in first.columns if column not in file.columns]
        added = [column for column in file.columns if column not in first.columns]
        changed = [
            column
            for column, kind in file.columns.items()
            if column in first.columns and not _alike(kind, first.columns[column])
        ]
        if missing or changed:
            column = (missing or changed)[0]
            was = first.columns[column]
            told = "has no such column" if missing else f"holds {file.columns[column]}, the first file {was}"
            shown = {"file": str(file.path), "column": column, "count": len(missing) + len(changed)}
            problems.add(
                "error", "schema-drift", table, f"{place} {told} ({first.path.name} has it)", **shown
            )
        elif added:
            told = f"{place} has a column that the first file has not; it is left out"
            problems.add("warning", "schema-drift", table, told, file=str(file.path), column=added[0])
        if (file.dialect is None) != (first.dialect is None):
            told = f"{place} is {'Parquet' if file.dialect is None else 'text'}, the first file is not"
            problems.add("error", "schema-drift", table, told, file=str(file.path))
        elif not missing and not changed:
            agreeing.append(file)
    return agreeing


def _alike(one: str, other: str) -> bool:
    numbers = {INTEGER, BIG, REAL, BOOL}
    return one == other or (one in numbers and other in numbers)


def _scan(group: Sequence[File], rejects: str | None) -> str:
    """Return the table function that reads files which agree."""
    paths = file_list([file.path for file in group])
    dialect = group[0].dialect
    if dialect is None:
        return f"read_parquet({paths}, hive_partitioning=false)"
    columns = ", ".join(f"{text(column)}: 'VARCHAR'" for column in group[0].columns)
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


def _position(group: Sequence[File], start: int) -> str:
    """Return the expression for the place of a row of Parquet files that are read together."""
    if len(group) == 1:
        return f"file_row_number + {start}"
    starts = [start, *(start + total for total in accumulate(file.rows or 0 for file in group))][:-1]
    return f"file_row_number + [{', '.join(map(str, starts))}][CAST(file_index AS BIGINT) + 1]"
