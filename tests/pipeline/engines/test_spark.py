"""Spark is started as asked, or one line says why not; the steps themselves are held by the contract."""

from pathlib import Path

import pytest

from weft.cli.main import main
from weft.errors import FormatError, InputError, MissingExtra, RecipeError
from weft.pipeline.engines import java, spark
from weft.pipeline.engines.base import open_engine


def fake_java(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Put a Java in place that tells its version and does nothing else."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_java_is_found_by_its_version(
    version: str, major: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, monkeypatch, version)
    assert java.java_version() == major
    if major < java.LEAST:
        with pytest.raises(MissingExtra, match="Spark needs Java 17 and this is 8: apt install openjdk-17"):
            java.require_java()


def test_without_java_the_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(MissingExtra, match="Spark needs Java 17 and there is none: apt install"):
        java.require_java()
    assert main(["doctor"]) == 0
    assert "openjdk-17-jre-headless" in capsys.readouterr().out


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
