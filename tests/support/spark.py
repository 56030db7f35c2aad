"""Spark for tests: one session on two cores for all tests of a process, or the reason why there is none."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.pipeline.engines.java import HOW, LEAST, java_version

# Tests of this group run in the same process, so that there is one Java machine.
GROUP = pytest.mark.xdist_group("spark")


def skip_without_spark() -> None:
    """Skip a test where Spark cannot run."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'weft[spark]'")
    version = java_version()
    if version is None or version < LEAST:
        pytest.skip(f"Spark needs Java {LEAST}: {HOW}")


# Tests run small jobs once each: compiling them costs more than running them.
SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def spark_session(folder: Path) -> Iterator[None]:
    """Hold a session on two cores that starts a failed task once more, which engines of the process use."""
    skip_without_spark()
    from weft.pipeline.engines.spark import Spark

    with Spark(folder, master="local[2,2]", memory="1GB", settings=SETTINGS):
        yield


def kill_python_once(monkeypatch: pytest.MonkeyPatch, marks: Path) -> None:
    """Have the first Python process of Spark's that makes a table be killed at it; a mark says so."""
    from weft.pipeline.engines.spark import Spark

    whole = Spark.map
    marks.mkdir()

    def deadly(engine: Spark, table: str, query: str, function: Callable[[Any], Any], schema: Any) -> int:
        mark = marks / table

        def once(batch: Any) -> Any:
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return function(batch)

        return whole(engine, table, query, once, schema)

    monkeypatch.setattr(Spark, "map", deadly)
