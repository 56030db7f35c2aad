"""weft algorithm: the ranks of Python, in files of one or several workers, or one line."""

import json
from pathlib import Path

import pyarrow.dataset as pads
import pytest
import torch
from algorithm_jobs import web

from weft.algorithms import label_propagation, pagerank
from weft.cli.main import main
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.partition import write_partition


@pytest.fixture
def parts(tmp_path: Path) -> str:
    """Return the folder of a graph in two parts."""
    graph = web()
    write_partition(tmp_path / "parts", graph, Assignment((torch.arange(graph.num_nodes) % 2).int(), 2))
    return str(tmp_path / "parts")


@pytest.mark.parametrize("workers", [1, 2])
def test_files_hold_the_numbers_of_python(parts: str, workers: int, tmp_path: Path) -> None:
    out = tmp_path / "ranks"
    words = ["algorithm", "pagerank", parts, "--set", "damping=0.7", "--set", "weighted=true"]
    assert main([*words, "--workers", str(workers), "--out", str(out)]) == 0
    found = pads.dataset(out).to_table().sort_by("node")
    assert len(list(out.glob("part-*.parquet"))) == workers
    expected = pagerank(web(), damping=0.7, weighted=True)
    torch.testing.assert_close(torch.tensor(found["pagerank"].to_pylist(), dtype=torch.float64), expected)
    assert json.loads((out / "_algorithm.json").read_text())["workers"] == workers


def test_labels_are_written_with_their_scores(parts: str, tmp_path: Path) -> None:
    words = ["algorithm", "label_propagation", parts, "--set", "iterations=7"]
    assert main([*words, "--out", str(tmp_path / "labels")]) == 0
    found = pads.dataset(tmp_path / "labels").to_table().sort_by("node")
    expected = label_propagation(web(), iterations=7)
    assert found["scores"].to_pylist() == expected.tolist()
    assert found["prediction"].to_pylist() == expected.argmax(1).tolist()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "dampnig=0.7"], "unknown key pagerank.dampnig; did you mean"),
        (["--set", "damping=2"], "damping must lie in [0, 1), got 2"),
        (["--workers", "3"], "--workers 3: expected 1 … 2, the number of parts"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    parts: str, words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["algorithm", "pagerank", parts, *words, "--out", str(tmp_path / "no")]) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.glob("*no*"))


def test_what_is_no_folder_of_parts_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web().save(tmp_path / "graph")
    for name, told in (("absent", "absent: no such folder"), ("graph", "graph --parts N --out PARTS`")):
        words = ["algorithm", "pagerank", str(tmp_path / name), "--out", str(tmp_path / "no")]
        assert main(words) == 2
        assert told in capsys.readouterr().err


def test_what_workers_refuse_is_told_once_and_leaves_nothing(
    parts: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--workers", "2", "--set", "alpha=2.5", "--out", str(tmp_path / "no")]
    assert main(["algorithm", "label_propagation", parts, *words]) == 2
    assert "alpha must lie in [0, 1], got 2.5" in capfd.readouterr().err
    assert not list(tmp_path.glob("*no*"))
