"""Spark: the same steps on a cluster, or on the cores of this machine.

A step is a job whose rows are written as Parquet into a folder that all workers see, and named when all of
them are there: no executor holds anything that another needs, and one that dies costs its running tasks.
Joins and aggregates are Spark's; Python runs only on Arrow batches. The web page of Spark is off and the
driver listens on loopback, unless settings say otherwise.
"""

import contextlib
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from weft.errors import FormatError, InputError, RecipeError
from weft.pipeline.engines.base import Engine, engines, memory_limit, runs
from weft.pipeline.engines.java import require_java
from weft.registry import require

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of a batch that is read from a table.
BATCH = 1 << 16
# Rows of a batch that Spark hands to Python. It counts the bytes of a batch again for each row it adds, and a
# column of lists is counted row by row: the time of a batch grows with the square of its rows.
_HANDED = 512
# Seconds in which a cluster has to give the first executor.
PATIENCE = 120.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@engines.add("spark")
class Spark(Engine):
    """Runs steps in Spark; tables lie in the folder, which every worker has to see under the same path.

    `master` is Spark's (local[*], spark://host:7077, yarn …), `settings` any of Spark's own. `memory` is that
    of the process on this machine, or of each executor of a cluster. A session that is already there is used
    and left alone.
    """

    capacity = 1 << 62
    on_cluster = True

    def __init__(
        self,
        folder: str | Path,
        *,
        memory: str | int | None = None,
        master: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        sql = require("pyspark.sql", "spark")
        self.errors = require("pyspark.errors", "spark").PySparkException
        self.folder = Path(folder).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tables: dict[str, Path | None] = {}
        self._scans: dict[Any, str] = {}
        running = sql.SparkSession.getActiveSession()
        self._stop = None
        if running is None:
            require_java()
            running = _start(
                sql.SparkSession.builder, master or "local[*]", memory, settings or {}, self.folder
            )
            self._stop = running.stop
        elif settings or memory or master not in (None, running.sparkContext.master):
            there = running.sparkContext.master
            raise RecipeError(f"a Spark session on {there} is there already; stop it, or use it as it is")
        self.session = running.newSession()
        held, parallel = running.sparkContext.getConf(), running.sparkContext.defaultParallelism
        for key, value in {**_SQL, "spark.sql.shuffle.partitions": str(max(8, 4 * parallel))}.items():
            if not held.contains(key):
                self.session.conf.set(key, value)
        try:
            self._check_shared(running.sparkContext.master)
        except BaseException:
            self.close()
            raise

    def parquet(self, table: str, files: Sequence[str | Path]) -> None:
        with self._told():
            self._name(table, self.session.read.parquet(*(_plain(path) for path in files)), None)

    def rows_of(self, files: Mapping[Path, int], columns: Sequence[str], place: str) -> str:
        """Return the rows of Parquet files that agree in their columns, as SQL to select from."""
        key = (tuple(files.items()), tuple(columns), place)
        if key not in self._scans:
            self._scans[key] = f"files_{len(self._scans)}"
            with self._told():
                frames = [self._file(path, first, columns, place) for path, first in files.items()]
                self._name(self._scans[key], reduce(lambda one, other: one.unionAll(other), frames), None)
        return self._scans[key]

    def _file(self, path: Path, first: int, columns: Sequence[str], place: str) -> Any:
        from pyspark.sql import functions

        frame = self.session.read.parquet(_plain(path))
        held = [functions.col("`" + column.replace("`", "``") + "`") for column in columns]
        # Not by its name: a column may be called _metadata, too.
        row = frame.metadataColumn("_metadata")["row_index"]
        return frame.select(*held, (row + functions.lit(first)).alias(place))

    def floats(self, array: str) -> str:
        return f"TRY_CAST({array} AS ARRAY<FLOAT>)"

    def length(self, array: str) -> str:
        return f"array_size({array})"

    def microseconds(self, time: str) -> str:
        return f"unix_micros(TRY_CAST({time} AS TIMESTAMP))"

    def arrow(self, table: str, rows: "pa.Table | pa.RecordBatchReader") -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._place(table)
        path.mkdir()
        reader = rows.to_reader() if isinstance(rows, pa.Table) else rows
        with pq.ParquetWriter(path / "rows.parquet", reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
        with self._told():
            self._name(table, self.session.read.parquet(str(path)), path)

    def step(self, table: str, query: str) -> int:
        with self._told():
            return self._keep(table, self.session.sql(query))

    def map(
        self,
        table: str,
        query: str,
        function: "Callable[[pa.RecordBatch], pa.RecordBatch]",
        schema: "pa.Schema",
    ) -> int:

        def each(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return (function(batch) for batch in batches if batch.num_rows)

        with self._told():
            return self._keep(table, self.session.sql(query).mapInArrow(each, _fields(schema)))

    def generate(
        self, table: str, count: int, function: "Callable[[int], pa.RecordBatch]", schema: "pa.Schema"
    ) -> int:

        def each(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return (function(number) for batch in batches for number in batch.column(0).to_pylist())

        with self._told():
            numbers = self.session.range(0, count, 1, max(count, 1))
            return self._keep(table, numbers.mapInArrow(each, _fields(schema)))

    def groups(
        self,
        table: str,
        query: str,
        key: str,
        count: int,
        function: "Callable[[pa.Table], pa.RecordBatch]",
        schema: "pa.Schema",
    ) -> int:
        """Keep what the function makes of all rows with the same key, given at once; return how many rows."""

        def each(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return (function(rows) for rows in runs(batches, key))

        with self._told():
            rows = self.session.sql(query)
            # A task is a group: rows go to the partition that has the number of their key.
            placed = rows.repartitionById(max(count, 1), rows[key].cast("int"))
            return self._keep(table, placed.mapInArrow(each, _fields(schema)))

    def view(self, table: str, query: str) -> None:
        with self._told():
            self._name(table, self.session.sql(query), None)

    def batches(self, query: str) -> "Iterator[pa.RecordBatch]":
        import pyarrow.parquet as pq

        path = self._place("batches")
        try:
            with self._told():
                self.session.sql(query).write.parquet(str(path))
            # A sorted query is written in ranges, numbered in order.
            for file in sorted(path.glob("part-*.parquet")):
                yield from pq.ParquetFile(file).iter_batches(BATCH)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._told():
            return [tuple(row) for row in self.session.sql(query).collect()]

    def write(self, query: str, path: str | Path) -> None:
        import pyarrow.parquet as pq

        path, writer = Path(path), None
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        try:
            for batch in self.batches(query):
                writer = writer or pq.ParquetWriter(partial, batch.schema, compression="zstd")
                writer.write_batch(batch)
            if writer is None:
                with self._told():
                    pq.write_table(self.session.sql(query).toArrow(), partial)
            else:
                writer.close()
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    def has(self, table: str) -> bool:
        return table in self.tables

    def drop(self, *tables: str) -> None:
        for table in tables:
            path = self.tables.pop(table, None)
            self.session.catalog.dropTempView(table)
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        for table in list(self.tables):
            with contextlib.suppress(Exception):  # the cluster may be gone
                self.drop(table)
        if self._stop is not None:
            self._stop()

    def _keep(self, table: str, frame: Any) -> int:
        """Write the rows of a frame and name what was written; Spark shows no file of a task that failed."""
        import pyarrow.parquet as pq

        path = self._place(table)
        try:
            frame.write.parquet(str(path))
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        self._name(table, self.session.read.schema(frame.schema).parquet(str(path)), path)
        return sum(pq.read_metadata(file).num_rows for file in path.glob("part-*.parquet"))

    def _name(self, table: str, frame: Any, path: Path | None) -> None:
        frame.createOrReplaceTempView(table)
        old = self.tables.get(table)
        self.tables[table] = path
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)

    def _place(self, table: str) -> Path:
        return self.folder / f"{table}-{uuid.uuid4().hex}"

    def _check_shared(self, master: str) -> None:
        """Wait for executors, and refuse a folder that they do not see; nobody else does in one process."""
        if master.startswith("local"):
            return
        tracker = self.session.sparkContext.statusTracker()
        end = time.monotonic() + PATIENCE
        while len(tracker._jtracker.getExecutorInfos()) < 2:  # the driver is one
            if time.monotonic() > end:
                raise InputError(
                    f"{master} gave no executor within {PATIENCE:g} s: are workers running and free, and is "
                    "there as much memory as asked for (--memory)?"
                )
            time.sleep(0.2)
        folder, mark = str(self.folder), f"seen-{uuid.uuid4().hex}"
        (self.folder / mark).touch()

        def look(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            for batch in batches:
                if not os.path.exists(os.path.join(folder, mark)):
                    raise FormatError(f"{folder} is not on a file system that all workers share")
                yield batch

        with self._told():
            self.session.range(0, 16, 1, 16).mapInArrow(look, "id long").count()
        (self.folder / mark).unlink()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what Spark says at length into one line."""
        try:
            yield
        except self.errors as error:
            raise _as_input(error) from error
        except Exception as error:
            if type(error).__module__.startswith("py4j"):
                raise _as_input(error) from error
            raise


# For the tables of one engine; a session of the user keeps its own.
_SQL = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_HANDED),
    # Whole numbers of bytes: a table that Spark believes small would be sent to everyone.
    "spark.sql.autoBroadcastJoinThreshold": str(10 * 2**20),
}


def _start(
    builder: Any, master: str, memory: str | int | None, settings: Mapping[str, str], folder: Path
) -> Any:
    """Return a new session; waits of its start are Spark's own, about a minute."""
    local = master.startswith("local")
    given = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "spill"),
        "spark.driver.memory" if local else "spark.executor.memory": f"{memory_limit(memory) >> 20}m",
        **dict(settings),
    }
    if memory is None and not local:
        del given["spark.executor.memory"]  # half of what is free here says nothing of other machines
        given |= {key: value for key, value in settings.items() if key == "spark.executor.memory"}
    if local or urlsplit(master).hostname in _LOOPBACK:
        given = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **given}
    elif "spark.driver.host" not in given:
        raise RecipeError(
            f"--master {master}: executors have to reach this machine, which listens on loopback alone; "
            "give --conf spark.driver.host=ADDRESS"
        )
    # Workers run the Python of this process, not whichever python3 is first in their path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.master(master).appName("weft")
    for key, value in given.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise InputError(f"Spark did not start on {master}: {_line(error)}") from error


def _fields(schema: "pa.Schema") -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _plain(path: str | Path) -> str:
    """Return a path that is taken by its letters and not as a pattern."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", str(path))


def _as_input(error: Exception) -> InputError:
    line = _line(error)
    if "No space left on device" in str(error):
        return FormatError(f"{line}; free some space or write elsewhere. No part of it was left behind")
    if "OutOfMemoryError" in str(error):
        return InputError(
            f"the memory of a Spark process is too small for this; give more with --memory ({line})"
        )
    return FormatError(line)


def _line(error: Exception) -> str:
    """Return the line of a long report that says what happened: the first error of Python or Java in it."""
    told = str(error)
    python = re.findall(r"^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt): .+$", told, re.MULTILINE)
    kept = [line.strip() for line in python if "SparkException" not in line and "Py4J" not in line]
    line = kept[0] if kept else (told.strip().partition("\n")[0])
    return re.sub(r"^(?:[\w.]+\.)?(?:\w*Error|\w*Exception): ", "", line)[:500]
