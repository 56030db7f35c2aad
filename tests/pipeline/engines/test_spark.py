"""Spark is started as asked, or one line says why not; the steps themselves are held by the contract."""

from pathlib import Path

import pytest

from weft.cli.main import main
from weft.errors import FormatError, InputError, RecipeError
from weft.pipeline.engines import spark
from weft.pipeline.engines.base import open_engine


def test_a_cluster_elsewhere_needs_the_address_of_this_machine(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"--conf spark.driver.host=ADDRESS"):
        spark._start(None, "spark://head:7077", None, {}, tmp_path)
    with pytest.raises(RecipeError, match="--engine spark; the engine is duckdb"):
        open_engine("duckdb", tmp_path, settings={"spark.speculation": "true"})


def test_long_reports_become_one_line() -> None:
    report = (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times\n"
        'Traceback (most recent call last):\n  File "a.py", line 3\n'
        "weft.errors.GraphError: weight: expected weights of at least 0\n\tat org.apache.spark.Something\n"
    )
    assert str(spark._as_input(ValueError(report))) == "weight: expected weights of at least 0"
    full = spark._as_input(OSError("java.io.IOException: No space left on device"))
    assert isinstance(full, FormatError)
    assert "free some space" in str(full)
    small = spark._as_input(ValueError("java.lang.OutOfMemoryError: Java heap space"))
    assert isinstance(small, InputError)
    assert "--memory" in str(small)


def test_what_spark_cannot_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["validate", "edges=e.parquet", "--engine", "spark"])
    assert ended.value.code == 2
    words = ["ingest", "edges=e.parquet", "--master", "local[2]", "--out", str(tmp_path / "g")]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 2
    assert "--master and --conf are for --engine spark; the engine is duckdb" in told
    assert main(["flatten", "g", "--conf", "speculation", "--out", str(tmp_path / "r")]) == 2
    assert "expected spark.KEY=VALUE" in capsys.readouterr().err
