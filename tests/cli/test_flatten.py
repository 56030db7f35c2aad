"""The command weft flatten."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from flatten_graphs import plain_graph

from weft.cli.main import main
from weft.pipeline.record_hops import read_manifest, read_records


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain_graph().save(tmp_path / "g")
    words = [
        "flatten",
        str(tmp_path / "g"),
        "--hops",
        "2",
        "--fanout",
        "4",
        "--out",
        str(tmp_path / "r"),
        "--json",
    ]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 25
    assert read_manifest(tmp_path / "r")["fanout"] == [4, 4]
    assert isinstance(read_records(tmp_path / "r"), pa.Table)
    assert main([*words, "--overwrite", "--fanout", "4,x"]) == 2
    assert main([*words, "--overwrite", "--fanout", "4,3,2"]) == 2
