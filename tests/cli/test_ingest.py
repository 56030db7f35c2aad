"""The command weft ingest: what it guessed can be saved and used, and mistakes are one line."""

from pathlib import Path

import pytest
from tables import (
    write_csv,
    write_text,
)

from weft.cli.main import main


def test_the_guess_of_the_command_can_be_saved_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(tmp_path / "n.csv", "id,age\n1,3\n2,4\n")
    write_text(tmp_path / "e.csv", "src,dst\n1,2\n")
    tables = [f"nodes={tmp_path}/n.csv", f"edges={tmp_path}/e.csv"]
    schema = str(tmp_path / "schema.toml")
    assert main(["ingest", *tables, "--out", str(tmp_path / "a"), "--save-schema", schema]) == 0
    assert 'files = ["n.csv"]' in Path(schema).read_text()
    assert main(["ingest", "--schema", schema, "--out", str(tmp_path / "b"), "--json"]) == 0
    assert '"num_edges": 1' in capsys.readouterr().out
    assert main(["ingest", *tables, "--out", str(tmp_path / "a")]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["ingest", "--schema", str(tmp_path / "none.toml"), "--out", "x"]) == 2
    assert "no schema" in capsys.readouterr().err


def test_command_tells_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = write_csv(tmp_path / "n.csv", {"id": ["a", "b"], "city": ["Rome", "Oslo"], "age": [1, 2]})
    edges = write_csv(tmp_path / "e.csv", {"src": ["a"], "dst": ["b"]})
    assert main(["ingest", f"nodes={nodes}", f"edges={edges}", "--out", str(tmp_path / "g")]) == 0
    told = capsys.readouterr().err
    assert "note: nodes node, column 'city': holds text and is left out; name it in features" in told
    assert "'age'" not in told
