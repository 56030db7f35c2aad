"""Reading arrays and tables of other people's files: one clear line for each way they can be bad."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.errors import FormatError, GraphError
from weft.reading.arrays import Array
from weft.reading.bounds import CountedStream, expect_room
from weft.reading.damage import one_line, reading

_SMALL = 1 << 20
"""Bytes that a list of types may have."""
_NODE_BYTES = 64
"""What the pointers, labels, masks and ids of a node take."""
_VALUE = 24
"""Bytes that a value of a table takes, beside its text, until the table is an array; measured."""


def read_table(path: Path, *, columns: int | None = None) -> Array:
    """Return the numbers of a csv or csv.gz file without header, [rows, columns]; an empty field is NaN."""
    import pyarrow as pa
    from pyarrow import csv

    with reading(path):
        try:
            with pa.input_stream(str(path)) as stream:
                text = pa.PythonFile(CountedStream(stream, path, value_bytes=_VALUE), "r")
                table = csv.read_csv(text, csv.ReadOptions(autogenerate_column_names=True))
        except pa.ArrowInvalid as error:
            raise FormatError(f"{path}: not a table of numbers: {one_line(error)}") from error
    values = []
    for index, column in enumerate(table.columns):
        array = column.to_numpy()
        if array.dtype.kind not in "iuf":
            raise FormatError(
                f"{path}: column {index} is not numeric; expected a table of numbers, no header"
            )
        values.append(array)
    if columns is not None and len(values) != columns:
        raise FormatError(f"{path}: expected {columns} columns, found {len(values)}")
    return np.stack(values, axis=1) if len(values) > 1 else values[0][:, None]


def read_words(path: Path) -> list[list[str]]:
    """Return the fields of a small csv or csv.gz file, row by row, as text."""
    import gzip

    with reading(path):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            raw = stream.read(_SMALL + 1)
        if len(raw) > _SMALL:
            raise FormatError(f"{path}: expected a list of types and counts, got more than {_SMALL:,} bytes")
        return [line.split(",") for line in raw.decode().splitlines() if line]


def whole_numbers(values: Array, path: Path, what: str) -> NDArray[np.int64]:
    """Return the values as int64, or say which file holds something else."""
    if values.dtype.kind == "f" and not (np.isfinite(values) & (np.trunc(values) == values)).all():
        raise FormatError(f"{path}: expected whole numbers for {what}, found fractions or empty fields")
    return values.astype(np.int64, copy=False)


def expect_rows(values: Array, rows: int, path: Path, of: str) -> None:
    """Raise unless the array has one row for each thing counted."""
    if len(values) != rows:
        raise FormatError(f"{path}: expected {rows:,} rows, one for each {of}, found {len(values):,}")


def expect_nodes(count: int, path: Path, kind: str = "") -> int:
    """Return a number of nodes that a few bytes of a file tell, or raise where no graph of them has room."""
    expect_room(_NODE_BYTES * count, path, f"a graph of {count:,} nodes{kind and f' {kind!r}'}")
    return count


def rows_by_number(numbers: Array, count: int) -> list[NDArray[np.int64]]:
    """Return, for each number below `count`, the rows that have it; in one pass, however many there are."""
    order = numbers.argsort(kind="stable")
    return np.split(order, np.bincount(numbers, minlength=count).cumsum()[:-1])


def mask_of(ids: Array, num_nodes: int, path: Path, what: str = "node ids") -> NDArray[np.bool_]:
    """Return the mask of the listed nodes."""
    ids = whole_numbers(np.asarray(ids).reshape(-1), path, what)
    if ids.size and (ids.min() < 0 or ids.max() >= num_nodes):
        wrong = ids[(ids < 0) | (ids >= num_nodes)][0]
        raise FormatError(f"{path}: {what} must lie in 0 … {num_nodes - 1}, found {wrong}")
    mask = np.zeros(num_nodes, np.bool_)
    mask[ids] = True
    return mask


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name before the message when the graph in it turns out to be wrong."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
