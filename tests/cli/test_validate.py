"""The command weft validate."""

import json
from pathlib import Path

import numpy as np
import pytest
from tables import write_parquet

from weft.cli.main import main


def test_the_command_shows_a_table_and_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = write_parquet(tmp_path / "n.parquet", {"id": np.arange(3)})
    edges = write_parquet(tmp_path / "e.parquet", {"src": [0], "dst": [9]})
    assert main(["validate", f"nodes={nodes}", f"edges={edges}"]) == 2
    shown = capsys.readouterr()
    assert "dangling-edge" in shown.out
    assert "--fix drop-dangling" in shown.out
    assert shown.err.endswith("1 errors, 0 warnings\n")
    assert main(["validate", f"nodes={nodes}", f"edges={edges}", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["errors"] == 1
    assert found["problems"][-1]["value"] == "9"
    assert main(["validate", f"nodes={nodes}", f"edges={edges}", "--fix", "drop-dangling"]) == 0
