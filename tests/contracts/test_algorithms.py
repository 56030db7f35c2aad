"""What every algorithm must do: the numbers of a whole graph on its parts, and be named by a command."""

from pathlib import Path

import pyarrow.dataset as pads
import pytest
import torch
from algorithm_jobs import web

import weft.algorithms
from weft.algorithms.base import GraphParts, algorithms
from weft.cli.main import main
from weft.comm.group import Group
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.partition import write_partition

NAMES = algorithms.names()
DOCS = Path(__file__).resolve().parents[2] / "docs"
OWN = """
from weft.algorithms.base import spread
import torch

def reached(graph, *, hops: int = 1, start: torch.Tensor | None = None):
    rows = torch.ones(len(graph.degree("in", None, False)), 1, dtype=torch.float64)
    for _ in range(hops):
        rows = spread(graph, rows)
    return rows[:, 0]
"""


@pytest.fixture
def parts(tmp_path: Path) -> str:
    graph = web()
    write_partition(tmp_path / "parts", graph, Assignment((torch.arange(graph.num_nodes) % 2).int(), 2))
    return str(tmp_path / "parts")


@pytest.mark.parametrize("name", NAMES)
def test_parts_give_what_the_whole_graph_does(name: str, parts: str) -> None:
    found = algorithms[name](GraphParts.open(parts, Group.alone()))
    torch.testing.assert_close(found, algorithms[name](web()))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_named_in_the_package_the_docs_and_the_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (algorithms[name].__doc__ or "").startswith("Return ")
    assert getattr(weft.algorithms, name) is algorithms[name]
    assert f"weft algorithm {name}" in (DOCS / "running-on-a-cluster.md").read_text()
    with pytest.raises(SystemExit):
        main(["algorithm", "--help"])
    assert name in capsys.readouterr().out


def test_one_of_the_users_own_runs_on_workers(
    parts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    words = ["algorithm", f"{tmp_path / 'own.py'}:reached", parts, "--workers", "2", "--set", "hops=2"]
    assert main([*words, "--out", str(tmp_path / "found")]) == 0
    found = pads.dataset(tmp_path / "found").to_table().sort_by("node")
    graph = web()
    once = graph.block().aggregate(torch.ones(graph.num_nodes, 1, dtype=torch.float64), "sum")
    assert found["reached"].to_pylist() == graph.block().aggregate(once, "sum")[:, 0].tolist()
    for name, told in (("pagerang", "did you mean 'pagerank'"), (f"{tmp_path / 'own.py'}:DAMPING", "has no")):
        assert main(["algorithm", name, parts, "--out", str(tmp_path / "none")]) == 2
        assert told in capsys.readouterr().err
    assert main([*words, "--set", "start=1", "--out", str(tmp_path / "none")]) == 2
    assert "unknown key" in capsys.readouterr().err
