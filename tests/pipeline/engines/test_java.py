"""Java is found by its version, or the line says how to get it."""

from pathlib import Path

import pytest

from weft.cli.main import main
from weft.errors import MissingExtra
from weft.pipeline.engines import java


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
