"""DuckDB in the process: no server, no Java; tables larger than memory are spilled to a folder."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import FormatError, InputError
from weft.machine import usable_cores
from weft.pipeline.engines.base import Engine, engines, memory_limit, name, text
from weft.registry import require
from weft.sizes import shown

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of a batch: large enough that Python's share is small, small enough to stay in the cache.
BATCH = 1 << 16
# Bytes that a row takes while tables of a dozen columns are joined and sorted.
ROW = 512
# Seconds between two looks at how far a step is.
LOOK = 0.5


@engines.add("duckdb")
class DuckDB(Engine):
    """Runs steps in DuckDB within its memory; what does not fit is spilled to the folder, if there is one.

    With `keep` its tables are in the file `folder`/work.duckdb, and still there after a crash. `watch` is
    told now and then which share of a step is done.
    """

    keeps_order = True
    reads_text = True
    reads_halves = True
    keeps = True

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        keep: bool = False,
        memory: str | int | None = None,
        threads: int | None = None,
        watch: Callable[[float], None] | None = None,
    ) -> None:
        duckdb = require("duckdb", "data")
        self.duckdb, self.watch = duckdb, watch
        self.memory = memory_limit(memory)
        self.capacity = max(self.memory // ROW, 1 << 20)
        threads = threads or usable_cores()
        database = ":memory:"
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            database = str(Path(folder) / "work.duckdb") if keep else database
        config = {
            "memory_limit": f"{self.memory}B",
            "threads": threads,
            "temp_directory": "" if folder is None else str(Path(folder) / "spill"),
            # Nothing is fetched from anywhere, and no file but those named is read.
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with self._told():
            self.connection = duckdb.connect(database, config=config)
            if watch is not None:
                self.connection.execute("SET enable_progress_bar=true; SET enable_progress_bar_print=false")

    def parquet(self, table: str, files: Sequence[str | Path]) -> None:
        scan = f"read_parquet({file_list(files)}, hive_partitioning=false)"
        self._run(f"CREATE OR REPLACE TEMP VIEW {name(table)} AS SELECT * FROM {scan}")

    def rows_of(self, files: Mapping[Path, int], columns: Sequence[str], place: str) -> str:
        """Return the rows of Parquet files that agree in their columns, as SQL to select from."""
        scan = f"read_parquet({file_list(list(files))}, hive_partitioning=false)"
        starts = f"[{', '.join(map(str, files.values()))}]"
        start = f"{starts}[CAST(file_index AS BIGINT) + 1]" if len(files) > 1 else next(iter(files.values()))
        return numbered(scan, columns, {place: f"file_row_number + {start}"})

    def floats(self, array: str) -> str:
        return f"TRY_CAST({array} AS FLOAT[])"

    def length(self, array: str) -> str:
        return f"len({array})"

    def microseconds(self, time: str) -> str:
        return f"epoch_us(TRY_CAST({time} AS TIMESTAMP))"

    def kept(self) -> list[str]:
        return [row[0] for row in self.rows("SELECT table_name FROM duckdb_tables() WHERE NOT temporary")]

    def arrow(self, table: str, rows: "pa.Table | pa.RecordBatchReader") -> None:
        batches = rows if hasattr(rows, "read_next_batch") else rows.to_batches()
        self._keep(table, iter(batches), rows.schema)

    def step(self, table: str, query: str) -> int:
        return int(self._run(f"CREATE OR REPLACE TABLE {name(table)} AS {query}")[0][0])

    def map(
        self,
        table: str,
        query: str,
        function: "Callable[[pa.RecordBatch], pa.RecordBatch]",
        schema: "pa.Schema",
    ) -> int:
        # The batches come through a cursor of their own: one connection cannot read and write at once.
        return self._keep(table, (function(batch) for batch in self.batches(query)), schema)

    def generate(
        self, table: str, count: int, function: "Callable[[int], pa.RecordBatch]", schema: "pa.Schema"
    ) -> int:
        return self._keep(table, map(function, range(count)), schema)

    def view(self, table: str, query: str) -> None:
        self._run(f"CREATE OR REPLACE TEMP VIEW {name(table)} AS {query}")

    def _keep(self, table: str, batches: "Iterator[pa.RecordBatch]", schema: "pa.Schema") -> int:
        import pyarrow as pa

        failed: list[Exception] = []

        def told() -> "Iterator[pa.RecordBatch]":
            try:
                yield from batches
            except Exception as error:  # DuckDB would tell it as its own, at length
                failed.append(error)
                raise

        made = pa.RecordBatchReader.from_batches(schema, told())
        with self._told():
            self.connection.register("arrow_rows", made)
            try:
                done = self.connection.execute(f"CREATE OR REPLACE TABLE {name(table)} AS FROM arrow_rows")
                return int(done.fetchall()[0][0])
            except self.duckdb.Error:
                if failed:
                    raise failed[0] from None
                raise
            finally:
                self.connection.unregister("arrow_rows")

    def batches(self, query: str) -> "Iterator[pa.RecordBatch]":
        with self._told():
            cursor = self.connection.cursor()
            try:
                yield from cursor.sql(query).to_arrow_reader(BATCH)
            finally:
                cursor.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._run(query)

    def write(self, query: str, path: str | Path) -> None:
        self._run(f"COPY ({query}) TO {text(str(path))} (FORMAT parquet, COMPRESSION zstd)")

    def has(self, table: str) -> bool:
        count = self._run(f"SELECT count(*) FROM duckdb_tables() WHERE table_name = {text(table)}")
        return bool(count[0][0])

    def drop(self, *tables: str) -> None:
        for table in tables:
            self._run(f"DROP TABLE IF EXISTS {name(table)}")

    def rename(self, table: str, to: str) -> None:
        self._run(f"ALTER TABLE {name(table)} RENAME TO {name(to)}")

    def close(self) -> None:
        self.connection.close()

    @contextlib.contextmanager
    def as_written(self) -> Iterator[None]:
        """Run joins as they are written, the right side being held in memory.

        DuckDB takes a text file for some dozens of rows, whatever its size, and would hold all of it.
        """
        self._run("SET disabled_optimizers='join_order,build_side_probe_side'")
        try:
            yield
        finally:
            self._run("RESET disabled_optimizers")

    def _run(self, query: str) -> list[tuple[Any, ...]]:
        with self._told(), self._watched():
            return list(self.connection.execute(query).fetchall())

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        watch, done = self.watch, threading.Event()
        if watch is None:
            yield
            return

        def look() -> None:
            while not done.wait(LOOK):
                share = float(self.connection.query_progress())
                if share >= 0:  # less: DuckDB cannot say
                    watch(share / 100)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what DuckDB says at length into one line that says what to do."""
        try:
            yield
        except self.duckdb.OutOfMemoryException as error:
            raise InputError(
                f"a memory limit of {shown(self.memory)} is too small for this; give more with --memory "
                f"(DuckDB: {first_line(error)})"
            ) from error
        except self.duckdb.InterruptException as error:
            raise KeyboardInterrupt from error
        except RuntimeError as error:  # of a signal that came while it looked for one
            if "interrupted" not in str(error):
                raise
            raise KeyboardInterrupt from error
        except self.duckdb.IOException as error:
            hint = ""
            if "No space left" in str(error) or "max_temp_directory_size" in str(error):
                hint = "; free some space or write elsewhere. No part of it was left behind"
            if "lock on file" in str(error):
                hint = "; another ingest is writing to the same folder"
            raise FormatError(f"{first_line(error)}{hint}") from error
        except self.duckdb.Error as error:
            raise FormatError(first_line(error)) from error


def numbered(scan: str, columns: Sequence[str], known: Mapping[str, str]) -> str:
    """Return a scan of files under the names of their columns, and what DuckDB knows of each row.

    `known` holds names that no column has and expressions of filename, file_index and file_row_number. A
    column of such a name, in any case, would hide DuckDB's: while files are read, columns have numbers.
    """
    numbers = [f"column_{index}" for index in range(len(columns))]
    columns_in_order = [f"{number} AS {name(column)}" for number, column in zip(numbers, columns)]
    columns_in_order += [f"{expression} AS {own}" for own, expression in known.items()]
    return f"(SELECT {', '.join(columns_in_order)} FROM {scan} AS t({', '.join(numbers)}))"


def file_list(files: Sequence[str | Path]) -> str:
    """Return paths as a list in SQL, each taken by its letters and not as a pattern."""
    return "[" + ", ".join(text(_plain(str(path))) for path in files) + "]"


def first_line(error: Exception) -> str:
    """Return what a DuckDB error says, without its suggestions; of a text file, which one and where."""
    lines = str(error).strip().split("\n")
    said = lines[0].partition("Error: ")[2] or lines[0]
    file = next((line.partition("=")[2].strip() for line in lines if line.strip().startswith("file =")), "")
    if not file:
        return said
    place = said.removeprefix("CSV Error on Line: ")
    where = f"line {place}" if place.isdigit() else said
    if "not utf-8" in str(error):
        return f"{file}: {where} is not UTF-8; save the file as UTF-8"
    return f"{file}: {where} cannot be read as a table; is the delimiter right, are quotes closed?"


def _plain(path: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)
