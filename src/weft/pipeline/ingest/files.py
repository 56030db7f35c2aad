"""The files of one table: which there are, what their columns hold, and whether they agree.

A file is Parquet or text (CSV, TSV, gz); which, goes by its content. What cannot be read is a problem of its
file, and the others are still looked at.
"""

import csv
import glob
import gzip
import os
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.pipeline.ingest.problems import Problems

# What a column holds, as far as ingest cares.
INTEGER, BIG, REAL, TEXT, BOOL, TIME, LIST, OTHER = (
    *("integer", "big integer", "real", "text", "boolean"),
    *("time", "list of numbers", "other"),
)
_DELIMITERS = (",", "\t", ";", "|", " ")
_PARQUET = (".parquet", ".pq", ".parq")
_HEAD = 1 << 18


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
    halves: frozenset[str] = frozenset()
    """Columns whose numbers, or lists of them, are float16."""

    @property
    def signature(self) -> tuple[Any, ...]:
        """What files that are read together agree on."""
        return (*self.columns.items(), self.dialect)


def open_files(
    table: str,
    patterns: Sequence[str],
    problems: Problems,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    null: Sequence[str] = ("",),
    words: Sequence[Sequence[str]] = (),
) -> list[File]:
    """Return the files that paths and patterns name; those that cannot be read or disagree are problems.

    With `words` a first line is a header if it has one of each kind of them.
    """
    files = []
    for path in _expand(table, patterns, problems):
        file = _open(table, path, problems, header=header, delimiter=delimiter, null=tuple(null), words=words)
        files += [] if file is None else [file]
    return _agreeing(table, files, problems)


def splits_of(table: str, patterns: Sequence[str], splits: Sequence[str]) -> dict[Path, str]:
    """Return the split of each file, from that of the path or pattern that names it."""
    told = zip(patterns, splits)
    return {path: split for pattern, split in told for path in _expand(table, [pattern], Problems())}


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
            problems.add("error", "no-file", table, what, file=pattern)
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
            held = {part.name: part.type for part in file.schema_arrow}
            rows = file.metadata.num_rows
    except MemoryError:  # Arrow's own is an ArrowException, too
        raise
    except (pa.ArrowException, OSError) as error:
        wrong("damaged", f"damaged Parquet ({str(error).splitlines()[0][:120]})")
        return None
    columns = {column: _kind(kind) for column, kind in held.items()}
    if len({column.lower() for column in columns}) < len(columns):
        wrong("same-name", "two columns have the same name but for upper and lower case; rename one")
        return None
    halves = frozenset(column for column, kind in held.items() if _is_half(kind))
    return File(path, columns, rows, halves=halves)


def _is_list(held: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(held) or types.is_large_list(held) or types.is_fixed_size_list(held))


def _is_half(held: Any) -> bool:
    from pyarrow import types

    return bool(types.is_float16(held.value_type if _is_list(held) else held))


def _kind(held: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(held):
        held = held.value_type
    if _is_list(held):
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
    words: Sequence[Sequence[str]],
) -> File | None:
    lines = _first_lines(path, gz, wrong, note)
    if lines is None:
        return None
    comment = "#" if lines.startswith("#") else ""
    rows = [line for line in lines.splitlines() if not (comment and line.startswith(comment))]
    if not rows or not rows[0].strip():
        wrong("empty-file", "the file is empty: not even a header")
        return None
    tabs = ".tsv" in [suffix.lower() for suffix in path.suffixes]
    try:
        delimiter = delimiter or ("\t" if tabs else max(_DELIMITERS, key=lambda mark: _fields(rows[0], mark)))
        first = [line + "\n" for line in lines[lines.index(rows[0]) :].split("\n")]
        cells = next(csv.reader(first, delimiter=delimiter))
    except csv.Error as error:
        wrong("unreadable", f"the first row is no row of a table ({error}); are quotes closed?")
        return None
    if header is None:
        said = {cell.strip().lower() for cell in cells}
        known = all(not said.isdisjoint(kind) for kind in words)
        header = known if words else not all(_number(cell) for cell in cells)
    names = [cell.strip() or f"column{index}" for index, cell in enumerate(cells)]
    names = names if header else [f"column{index}" for index in range(len(cells))]
    times = Counter(cell.lower() for cell in names)
    repeated = [cell for cell in names if times[cell.lower()] > 1]
    if repeated:
        wrong("same-name", f"two columns are named {repeated[0]!r}; rename one")
        return None
    return File(path, dict.fromkeys(names, TEXT), None, Text(delimiter, header, comment, gz, null))


def _first_lines(path: Path, gz: bool, wrong: Any, note: Any) -> str | None:
    """Return the beginning of a file as text; None where it is none, which is told."""
    try:
        with gzip.open(path) if gz else open(path, "rb") as file:
            head = file.read(_HEAD)
    except (EOFError, zlib.error, OSError) as error:
        wrong("damaged", f"truncated or damaged gz ({error})" if gz else f"cannot be read: {error}")
        return None
    if not gz and path.suffix.lower() == ".gz":
        wrong("wrong-extension", "is named .gz, but is not compressed; rename it")
        return None
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        wrong("encoding", "is UTF-16; save it as UTF-8")
        return None
    if head[:3] == b"\xef\xbb\xbf":
        note("byte-order-mark", "begins with a byte order mark, which is skipped")
    if b"\r\n" in head:
        note("crlf", "lines end in CR LF, as on Windows; they are read as lines")
    # A head that was cut may end within a character, which says nothing of the file.
    return head.decode("utf-8-sig", errors="replace" if len(head) < _HEAD else "ignore")


def _fields(line: str, delimiter: str) -> tuple[int, int]:
    """Return how many fields a delimiter makes of a line; of equals the more usual is taken."""
    try:
        fields = len(next(csv.reader([line], delimiter=delimiter)))
    except csv.Error:  # a line of many columns, taken for one field of more characters than the parser takes
        fields = 0
    return fields, -_DELIMITERS.index(delimiter)


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
            message = (
                "has no such column" if missing else f"holds {file.columns[column]}, the first file {was}"
            )
            shown = {"file": str(file.path), "column": column, "count": len(missing) + len(changed)}
            problems.add(
                "error", "schema-drift", table, f"{place} {message} ({first.path.name} has it)", **shown
            )
        elif added:
            message = f"{place} has a column that the first file has not; it is left out"
            problems.add("warning", "schema-drift", table, message, file=str(file.path), column=added[0])
        if (file.dialect is None) != (first.dialect is None):
            message = f"{place} is {'Parquet' if file.dialect is None else 'text'}, the first file is not"
            problems.add("error", "schema-drift", table, message, file=str(file.path))
        elif not missing and not changed:
            agreeing.append(file)
    return agreeing


def _alike(one: str, other: str) -> bool:
    numbers = {INTEGER, BIG, REAL, BOOL}
    return one == other or (one in numbers and other in numbers)
