"""Reading arrays and tables of other people's files: one clear line for each way they can be bad."""

import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import FormatError, GraphError

Array = NDArray[Any]


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of a `.npz` file, which may hold numbers and strings but no objects."""
    with _readable(path):
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise FormatError(f"{path}: holds a single array (.npy), expected an archive of arrays (.npz)")
        with loaded:
            return {name: loaded[name] for name in loaded.files}


def read_npy(path: Path) -> Array:
    """Return the array of a `.npy` file, mapped into memory and not yet read; writes stay in memory."""
    with _readable(path):
        loaded = np.load(path, mmap_mode="c", allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            loaded.close()
            raise FormatError(f"{path}: holds an archive of arrays (.npz), expected a single one (.npy)")
        return loaded


def read_json(path: Path) -> Any:
    """Return the value of a JSON file."""
    with _readable(path):
        return json.loads(path.read_bytes())


def read_table(path: Path, *, columns: int | None = None) -> Array:
    """Return the numbers of a csv or csv.gz file without header, [rows, columns]; an empty field is NaN."""
    import pyarrow as pa
    from pyarrow import csv

    with _readable(path):
        try:
            table = csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=True))
        except pa.ArrowInvalid as error:
            raise FormatError(f"{path}: not a table of numbers: {_one_line(error)}") from error
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

    with _readable(path):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
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


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FormatError:
        raise
    except FileNotFoundError as error:
        raise FormatError(f"{path}: no such file") from error
    except (EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise FormatError(f"{path}: truncated or damaged ({_one_line(error)})") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {_one_line(error)}") from error
    except ValueError as error:
        text = _one_line(error)
        if "pickle" in text or "Object arrays" in text or "Python objects" in text:
            text = "holds Python objects (a pickle), which weft never opens"
        raise FormatError(f"{path}: {text}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
