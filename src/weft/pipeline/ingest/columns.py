"""Columns of tables as arrays of numbers, a batch of rows at a time, and what is wrong with their values."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.pipeline.engines.base import name
from weft.pipeline.ingest.files import BIG, BOOL, INTEGER, LIST, OTHER, REAL, TEXT, TIME
from weft.pipeline.ingest.problems import EXAMPLES, Problems, show
from weft.pipeline.ingest.sources import TableFiles
from weft.pipeline.schema import Feature

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[Any]
# More columns than this from one category are no use to anybody, and a matrix of them is large.
MOST_ONE_HOT = 1000


class WrongRows:
    """How many rows are wrong in some way, and where the first are."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[int] = []

    def add(self, wrong: Array, start: int) -> None:
        """Count the rows that a mask marks."""
        self.count += int(wrong.sum())
        if self.count and len(self.first) < EXAMPLES:
            self.first += (np.flatnonzero(wrong)[: EXAMPLES - len(self.first)] + start).tolist()


class ColumnEncoder:
    """One column of a matrix of features: its expression in SQL and its columns of numbers."""

    width = 1

    def __init__(self, source: TableFiles, column: str) -> None:
        self.source, self.column = source, column
        self.missing = WrongRows()

    @property
    def expression(self) -> str:
        """What is selected."""
        return self.source.number(self.column, "FLOAT")

    @property
    def dtype(self) -> Any:
        """The narrowest type that all its numbers fit."""
        return np.float16 if self.source.is_half(self.column) else np.float32

    def encode(self, values: "pa.Array", start: int) -> Array:
        """Return [rows, width] numbers, NaN where there is none."""
        columns: Array = values.to_numpy(zero_copy_only=False).astype(np.float32, copy=False)[:, None]
        self.missing.add(~np.isfinite(columns[:, 0]), start)
        return columns

    def names(self) -> list[str]:
        """Return the names of the columns it makes."""
        return [self.column]

    def finish(self, problems: Problems) -> None:
        """Tell of what was wrong."""
        self._tell_missing(problems, "not-finite")

    def _tell_missing(self, problems: Problems, kind: str) -> None:
        raw = self.source.look_up({"value": f"CAST({name(self.column)} AS STRING)"}, self.missing.first)
        values = [raw.get(position, (None,))[0] for position in self.missing.first]
        self.source.report(
            problems, "error", kind, self.missing.first, values=values, told=_told_number,
            column=self.column, count=self.missing.count, fix="fill-missing",
        )  # fmt: skip


def _told_number(value: Any) -> str:
    if value is None:
        return "no value where a number is needed"
    if value.strip().lower() in ("nan", "inf", "-inf", "infinity", "-infinity", "+inf"):
        return f"{value.strip()} where a finite number is needed"
    return f"{show(value)} where a number is needed"


class ListEncoder(ColumnEncoder):
    """A column of lists of numbers, all of one length."""

    def __init__(self, source: TableFiles, column: str) -> None:
        super().__init__(source, column)
        self.ragged: dict[int, WrongRows] = {}
        self.empty = WrongRows()
        query = source.scan({"width": source.engine.length(self.expression)}, position=False)
        widths = source.engine.rows(f"SELECT width FROM ({query}) WHERE width IS NOT NULL LIMIT 1")
        self.width = int(widths[0][0]) if widths else 0

    @property
    def expression(self) -> str:
        return self.source.engine.floats(name(self.column))

    def names(self) -> list[str]:
        return [f"{self.column}[{index}]" for index in range(self.width)]

    def encode(self, values: "pa.Array", start: int) -> Array:
        """Return [rows, width] numbers, NaN in rows of another length."""
        import pyarrow.compute as pc

        lengths = pc.fill_null(pc.list_value_length(values), -1).to_numpy(zero_copy_only=False)
        flat = values.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
        right = lengths == self.width
        if right.all():
            rows: Array = flat.reshape(len(values), self.width)
        else:
            rows = np.full((len(values), self.width), np.nan, dtype=np.float32)
            rows[right] = flat[np.repeat(right, lengths.clip(min=0))].reshape(-1, self.width)
            self._count_ragged(lengths, right, start)
        self.missing.add(right & ~np.isfinite(rows).all(axis=1), start)
        return rows

    def _count_ragged(self, lengths: Array, right: Array, start: int) -> None:
        self.empty.add(lengths < 0, start)
        wrong = ~right & (lengths >= 0)
        positions = np.arange(start, start + len(lengths))
        number = np.searchsorted(self.source.offsets, positions, side="right") - 1
        for file in np.unique(number[wrong]).tolist():
            self.ragged.setdefault(file, WrongRows()).add(wrong & (number == file), start)

    def finish(self, problems: Problems) -> None:
        """Tell of missing numbers and of each file whose lists have another length."""
        self.missing, nulls = self.empty, self.missing
        self._tell_missing(problems, "not-finite")
        self.missing = nulls
        self._tell_missing(problems, "not-finite")
        files = [str(file.path) for file in self.source.files]
        for number, places in self.ragged.items():
            lengths = self.source.look_up({"value": self.source.engine.length(self.expression)}, places.first)
            length = lengths[places.first[0]][0]
            which = f"file {number + 1} of {len(files)}, " if len(files) > 1 else ""
            message = f"{which}a list of {length} where lists have {self.width}"
            row = self.source.locate(places.first[0])[1]
            problems.add(
                "error", "ragged-list", self.source.table, message,
                file=files[number], row=row, column=self.column, value=length, count=places.count,
            )  # fmt: skip


class CategoryEncoder(ColumnEncoder):
    """A column of a few words: a column for each of them, or their numbers."""

    def __init__(self, source: TableFiles, column: str, *, one_hot: bool) -> None:
        import pyarrow as pa

        super().__init__(source, column)
        self.one_hot = one_hot
        self.known = [word for word, _ in categories(source, self.expression)]
        self.width = len(self.known) if one_hot else 1
        self._words = pa.array(self.known, pa.string())

    @property
    def expression(self) -> str:
        return f"CAST({name(self.column)} AS STRING)"

    @property
    def dtype(self) -> Any:
        """The type of ones and zeros, or of numbers of words."""
        return np.float32

    def names(self) -> list[str]:
        return [f"{self.column}={word}" for word in self.known] if self.one_hot else [self.column]

    def encode(self, values: "pa.Array", start: int) -> Array:
        """Return zeros and a one, or a number; what is missing has no one, or the number after the last."""
        import pyarrow.compute as pc

        index = pc.fill_null(pc.index_in(values, self._words), -1).to_numpy(zero_copy_only=False)
        if not self.one_hot:
            return np.where(index < 0, len(self.known), index).astype(np.float32)[:, None]
        columns = np.zeros((len(index), self.width), dtype=np.float32)
        rows = np.flatnonzero(index >= 0)
        columns[rows, index[rows]] = 1
        return columns

    def finish(self, problems: Problems) -> None:
        """Tell of categories that are none."""
        if self.one_hot and len(self.known) > MOST_ONE_HOT:
            message = f'{len(self.known):,} different values make as many columns; use encode = "index"'
            problems.add("error", "too-many-categories", self.source.table, message, column=self.column)


def make_encoder(source: TableFiles, feature: Feature, problems: Problems) -> ColumnEncoder | None:
    """Return what reads a feature, or tell why it cannot be one."""
    kind, encode = source.kinds[feature.column], feature.encode
    if encode is None and kind in (TEXT, TIME, OTHER) and feature.column not in source.mostly_numbers:
        query = source.scan({"v": f"CAST({name(feature.column)} AS STRING)"}, position=False)
        first = source.engine.rows(f"SELECT v FROM ({query}) WHERE v IS NOT NULL LIMIT 1")
        value = first[0][0] if first else None
        message = f"holds {kind}{'' if value is None else f' ({show(value)})'}, which is no feature"
        hint = 'encode = "one-hot" or "index" if it is a category, else turn it into numbers first'
        problems.add(
            "error", "text-feature", source.table, f"{message}; {hint}", column=feature.column, value=value
        )
        return None
    if encode in ("one-hot", "index"):
        return CategoryEncoder(source, feature.column, one_hot=encode == "one-hot")
    if kind == LIST or encode == "list":
        return ListEncoder(source, feature.column)
    return ColumnEncoder(source, feature.column)


class MatrixColumns:
    """Several columns as the matrix x of nodes or attr of edges; in float16 where all of them are."""

    def __init__(self, array: str, encoders: Sequence[ColumnEncoder], *, fill: bool) -> None:
        self.array, self.encoders, self.fill = array, list(encoders), fill
        self.expressions = {f"{array}{index}": part.expression for index, part in enumerate(encoders)}
        self.width = sum(part.width for part in encoders)
        self.dtype = np.result_type(*(part.dtype for part in encoders))
        self.outputs: dict[str, tuple[Any, tuple[int, ...]]] = {array: (self.dtype, (self.width,))}

    def read(self, batch: "pa.RecordBatch", start: int) -> dict[str, Array]:
        """Return the rows of a batch."""
        parts = [
            part.encode(batch.column(alias), start) for alias, part in zip(self.expressions, self.encoders)
        ]
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        if self.fill:
            rows = np.where(np.isfinite(rows), rows, np.float32(0))
        return {self.array: rows.astype(self.dtype, copy=False)}

    def finish(self, problems: Problems) -> None:
        """Tell of what was wrong."""
        for part in self.encoders:
            part.finish(problems)

    def names(self) -> list[str]:
        """Return the names of the columns of the matrix."""
        return [column for part in self.encoders for column in part.names()]


class NumberColumn:
    """One number per row: a weight or a time."""

    def __init__(self, array: str, source: TableFiles, column: str, *, fill: bool) -> None:
        self.array, self.fill = array, fill and array == "weight"
        self.encoder = ColumnEncoder(source, column)
        self.dtype: Any = np.float32
        self.expressions = {array: self.encoder.expression}
        if array == "time":
            self.expressions, self.dtype = {array: _time(source, column)}, np.int64
            if source.kinds[column] == REAL:
                self.expressions, self.dtype = {array: source.number(column, "DOUBLE")}, np.float64
        self.outputs: dict[str, tuple[Any, tuple[int, ...]]] = {array: (self.dtype, ())}

    def read(self, batch: "pa.RecordBatch", start: int) -> dict[str, Array]:
        """Return the values of a batch."""
        values = batch.column(self.array)
        if self.dtype == np.int64:
            missing = values.is_null().to_numpy(zero_copy_only=False)
            numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        else:
            numbers = values.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)
            missing = ~np.isfinite(numbers)
        self.encoder.missing.add(missing, start)
        return {self.array: np.where(missing, self.dtype(1), numbers) if self.fill else numbers}

    def finish(self, problems: Problems) -> None:
        """Tell of values that are none."""
        self.encoder.finish(problems)


def categories(source: TableFiles, expression: str) -> list[tuple[str, int]]:
    """Return the different values of a column as text, in order, and how often each is there."""
    query = source.scan({"v": expression}, position=False)
    counts = source.engine.rows(f"SELECT v, count(*) FROM ({query}) WHERE v IS NOT NULL GROUP BY v")
    try:
        return sorted(counts, key=lambda pair: int(pair[0]))
    except ValueError:
        return sorted(counts)


def label_expression(source: TableFiles, column: str) -> str:
    """Return the expression for the class of a row as text: whole numbers without a fraction."""
    c = name(column)
    if source.kinds[column] == REAL:
        number = f"TRY_CAST({c} AS DOUBLE)"
        whole = f"CAST(TRY_CAST({number} AS BIGINT) AS STRING)"
        return (
            f"CASE WHEN isnan({number}) THEN NULL WHEN {number} = floor({number}) AND abs({number}) < 1e15 "
            f"THEN {whole} ELSE CAST({c} AS STRING) END"
        )
    return f"CAST({c} AS STRING)"


def _time(source: TableFiles, column: str) -> str:
    """Return the expression for a time as a whole number: as it is, or microseconds since 1970."""
    if source.kinds[column] in (INTEGER, BIG, BOOL):
        return source.number(column, "BIGINT")
    return source.engine.microseconds(name(column))


def imbalance(counts: Mapping[str, int]) -> str | None:
    """Return what is worth saying of the sizes of classes."""
    if not counts:
        return None
    (most, large), (least, small) = (pick(counts.items(), key=lambda pair: pair[1]) for pick in (max, min))
    if len(counts) == 1:
        return f"only one class, {most!r}: there is nothing to learn"
    if large >= 100 * max(small, 1):
        share = math.floor(1000 * large / sum(counts.values())) / 10
        return f"classes differ much in size: {most!r} has {large:,} ({share:g} %), {least!r} {small:,}"
    return None
