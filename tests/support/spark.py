"""Spark for tests: one session on two cores for all tests of a process, or the reason why there is none."""

from collections.abc import Iterator
from pathlib import Path

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
