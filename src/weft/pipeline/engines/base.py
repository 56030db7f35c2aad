"""The relational steps that the data plane is made of; what runs them is an engine.

An algorithm names its tables and says each step as SQL in the part of the language that engines share:
select, where, inner and left joins on equality, union all, group by with count, sum, min and max, having,
distinct, order by, row_number and other aggregates over (partition by … order by …), case, cast and try_cast
(text is STRING), coalesce, floor and ceil (a / b is a fraction everywhere, so whole division is CAST(floor(a
/ b) AS BIGINT)), and the hint /*+ BROADCAST(alias) */ for a small side of a join. Python sees rows only as
Arrow batches, in `map`, `generate` and `groups`; their functions may run in other processes, twice or at the
same time as themselves, so they are pure, carry paths and not arrays, and write files under other names
before renaming them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from weft.errors import RecipeError
from weft.machine import free_memory
from weft.registry import Registry
from weft.sizes import parse_bytes

if TYPE_CHECKING:
    import pyarrow as pa

engines: "Registry[type[Engine]]" = Registry("engine", "weft.pipeline.engines")


class Engine(ABC):
    """Runs steps on tables by name, within a stated memory, spilling to a folder."""

    capacity: int
    """Rows of a table that are handled well at once; algorithms that can work in parts take as many."""
    keeps_order: ClassVar[bool] = False
    """Whether rows of files come in the order of the files where a query asks for none."""
    reads_text: ClassVar[bool] = False
    """Whether tables may be text files."""
    reads_halves: ClassVar[bool] = False
    """Whether columns of Parquet files may be float16."""
    on_cluster: ClassVar[bool] = False
    """Whether it takes `master`, where it runs, and `settings` of its own."""
    keeps: ClassVar[bool] = False
    """Whether tables can be still there after a crash: `keep`, and `watch`, which is told of progress."""

    @abstractmethod
    def parquet(self, table: str, files: Sequence[str | Path]) -> None:
        """Name the rows of Parquet files; nothing is read yet."""

    @abstractmethod
    def rows_of(self, files: Mapping[Path, int], columns: Sequence[str], place: str) -> str:
        """Return the rows of Parquet files that agree in their columns, as SQL to select from.

        Beside the columns there is, as `place`, the row's number in its file, counted from the number that
        the file begins at. Whatever columns are called, they hide nothing.
        """

    @abstractmethod
    def floats(self, array: str) -> str:
        """Return SQL for a list of numbers as float32; null where it is none."""

    @abstractmethod
    def length(self, array: str) -> str:
        """Return SQL for the length of a list; null for null."""

    @abstractmethod
    def microseconds(self, time: str) -> str:
        """Return SQL for a date or time as microseconds since 1970 in UTC; null where it is none."""

    def as_written(self) -> AbstractContextManager[None]:
        """Run joins as they are written, where the engine would not."""
        return nullcontext()

    def rename(self, table: str, to: str) -> None:
        """Give a table another name."""
        self.step(to, f"SELECT * FROM {name(table)}")
        self.drop(table)

    @abstractmethod
    def arrow(self, table: str, rows: "pa.Table | pa.RecordBatchReader") -> None:
        """Keep the rows of an Arrow table or stream."""

    @abstractmethod
    def step(self, table: str, query: str) -> int:
        """Keep the rows of a query as a table, whole or not at all; return how many there are."""

    @abstractmethod
    def map(
        self,
        table: str,
        query: str,
        function: "Callable[[pa.RecordBatch], pa.RecordBatch]",
        schema: "pa.Schema",
    ) -> int:
        """Keep what the function makes of each Arrow batch of a query, and return the number of rows."""

    @abstractmethod
    def generate(
        self, table: str, count: int, function: "Callable[[int], pa.RecordBatch]", schema: "pa.Schema"
    ) -> int:
        """Keep what the function makes of 0 … count - 1, a batch each, and return the number of rows."""

    def groups(
        self,
        table: str,
        query: str,
        key: str,
        count: int,
        function: "Callable[[pa.Table], pa.RecordBatch]",
        schema: "pa.Schema",
    ) -> int:
        """Keep what the function makes of all rows with the same key, given at once; return how many rows.

        Keys are 0 … count - 1 and a group fits in memory: whoever writes the query cuts the work so. Here
        groups are made one after the other; an engine of several workers deals them out.
        """
        import pyarrow as pa

        ordered = f"SELECT * FROM ({query}) AS grouped ORDER BY {name(key)}"
        made = (function(rows) for rows in runs(self.batches(ordered), key))
        self.arrow(table, pa.RecordBatchReader.from_batches(schema, made))
        return int(self.value(f"SELECT count(*) FROM {name(table)}"))

    @abstractmethod
    def view(self, table: str, query: str) -> None:
        """Name a query; it runs as part of the steps that name it."""

    @abstractmethod
    def batches(self, query: str) -> "Iterator[pa.RecordBatch]":
        """Give the rows of a query, in its order, a batch at a time."""

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query that has few."""

    @abstractmethod
    def write(self, query: str, path: str | Path) -> None:
        """Write the rows of a query, in its order, as one Parquet file."""

    @abstractmethod
    def has(self, table: str) -> bool:
        """Return whether there is a table of this name."""

    @abstractmethod
    def drop(self, *tables: str) -> None:
        """Forget tables."""

    @abstractmethod
    def close(self) -> None:
        """End the engine and free what it holds."""

    def kept(self) -> list[str]:
        """Return the names of the tables that are there from before."""
        return []

    def value(self, query: str) -> Any:
        """Return the only value of a query."""
        return self.rows(query)[0][0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def runs(batches: "Iterable[pa.RecordBatch]", key: str) -> "Iterator[pa.Table]":
    """Give the rows of each key as one table; rows of a key come one after the other, maybe in two batches.

    >>> import pyarrow as pa
    >>> parts = [pa.record_batch({"k": [1, 1]}), pa.record_batch({"k": [1, 2]})]
    >>> [rows.column("k").to_pylist() for rows in runs(parts, "k")]
    [[1, 1, 1], [2]]
    """
    import numpy as np
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for batch in batches:
        keys = batch.column(key).to_numpy()
        starts = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist()] if len(keys) else []
        for start, stop in zip(starts, [*starts[1:], len(keys)]):
            if held and held[-1].column(key)[-1].as_py() != keys[start]:
                yield pa.Table.from_batches(held)
                held = []
            held.append(batch.slice(start, stop - start))
    if held:
        yield pa.Table.from_batches(held)


def open_engine(
    engine: str,
    folder: str | Path,
    *,
    memory: str | int | None = None,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Engine:
    """Return an engine by name that keeps its tables in a folder; `master` and `settings` are Spark's."""
    given: dict[str, Any] = {"master": master, "settings": settings}
    given = {key: value for key, value in given.items() if value}
    if given:
        check_on_cluster(engine)
    return engines[engine](folder, memory=memory, **given)  # type: ignore[call-arg]


def check_on_cluster(engine: str) -> None:
    """Refuse where to run, and settings, for an engine that has none of its own."""
    able = [each for each in engines.names() if engines[each].on_cluster]
    if engine not in able:
        raise RecipeError(f"--master and --conf are for --engine {' or '.join(able)}; the engine is {engine}")


def name(identifier: str) -> str:
    """Return a table's or column's name as SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a string as SQL."""
    return "'" + value.replace("'", "''") + "'"


def memory_limit(given: str | int | None = None) -> int:
    """Return a number of bytes: as given ("4GB", "512MiB", bytes), else half of what is free.

    >>> memory_limit("1.5GB"), memory_limit("64 MiB")
    (1500000000, 67108864)
    """
    if given is None:
        return max(free_memory() // 2, 256 * 2**20)
    return parse_bytes(given)
