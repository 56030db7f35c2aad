"""What a run of each task writes: predictions in its own columns, equal to what the run evaluated."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

import weft
from weft.cli.main import main
from weft.graph import Graph
from weft.tasks.base import head_of


def ring(nodes: int = 60, **data: Any) -> Graph:
    """A ring, both ways, whose nodes have numbers that two features tell."""
    at = torch.arange(nodes)
    x = torch.randn(nodes, 2, generator=torch.Generator().manual_seed(0))
    given = {"x": x, "y": 1000.0 + 50.0 * x[:, 0] - 20.0 * x[:, 1]}
    given |= {f"{name}_mask": at % 3 == i for i, name in enumerate(("train", "val", "test"))}
    edges = torch.stack([at, (at + 1) % nodes])
    ids = [f"n{row:03d}" for row in range(nodes)]
    return Graph.from_edges(torch.cat([edges, edges.flip(0)], 1), node_ids=ids, **(given | data))


def metrics(run: Path) -> dict[str, dict[str, float]]:
    told: dict[str, dict[str, float]] = json.loads((run / "run.json").read_text())["summary"]["metrics"]
    return told


def rmse(folder: Path, graph: Graph) -> float:
    table = pq.read_table(folder / "predictions.parquet").to_pydict()
    assert table["id"] == graph.node_ids["node"].values.tolist()
    test = graph.test_mask
    assert test is not None
    assert graph.y is not None
    far = torch.tensor(table["value"], dtype=torch.float64) - graph.y.double()
    return float(far[test].square().mean().sqrt())


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_numbers_are_written_in_the_users_units_as_the_run_evaluated_them(
    tmp_path: Path, precision: str
) -> None:
    graph, run = ring(), tmp_path / "run"
    graph.save(tmp_path / "g")
    command = [f"--set=data.path={tmp_path}/g", "--set=train.epochs=20", "--set=model.hidden=8"]
    assert main(["train", *command, f"--set=train.precision={precision}", "--out", str(run)]) == 0
    expected = metrics(run)["test"]["rmse"]
    for how in (["--engine", "torch"], ["--engine", "duckdb"], ["--fanout=-1,-1"]):
        out = tmp_path / how[-1].strip("-")
        assert main(["infer", str(run), "--out", str(out), *how]) == 0
        assert rmse(out, graph) == pytest.approx(expected, rel=1e-5), how
        assert pq.read_table(out / "predictions.parquet").column_names == ["id", "value"]


def test_a_graph_without_labels_is_given_numbers_by_a_run_that_learned_them(tmp_path: Path) -> None:
    whole, bare = ring(), ring(y=None, train_mask=None, val_mask=None, test_mask=None)
    whole.save(tmp_path / "g")
    bare.save(tmp_path / "bare")
    weft.train(whole, "sage", hidden=4, epochs=2, out=tmp_path / "run")
    for name in ("g", "bare"):
        words = ["infer", str(tmp_path / "run"), "--graph", str(tmp_path / name)]
        assert main([*words, "--out", str(tmp_path / f"of-{name}")]) == 0
    a, b = (pq.read_table(tmp_path / f"of-{name}" / "predictions.parquet") for name in ("g", "bare"))
    assert a.equals(b)


class OfPyG(nn.Module):
    """A model of PyG's convolutions, called with the edges."""

    def __init__(self) -> None:
        super().__init__()
        pyg = pytest.importorskip("torch_geometric.nn")
        self.conv1, self.conv2 = pyg.SAGEConv(2, 8), pyg.SAGEConv(8, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return out


@pytest.mark.parametrize("own", [False, True])
def test_the_model_that_training_returns_gives_numbers_in_their_units(own: bool) -> None:
    graph = ring()
    summary = weft.train(graph, OfPyG() if own else "sage", epochs=5, **({} if own else {"hidden": 4}))
    assert head_of(summary.model) is not None
    assert graph.y is not None
    for options in ({},) if own else ({}, {"fanout": [-1, -1]}):
        found = weft.infer(summary.model, graph, **options).tensor()[:, 0]
        error = (found - graph.y)[graph.test_mask].square().mean().sqrt()
        assert float(error) == pytest.approx(summary.metrics["test"]["rmse"], rel=1e-4)


def test_a_run_from_before_tasks_is_read(tmp_path: Path) -> None:
    classes = ring(y=torch.arange(60) % 3)
    classes.save(tmp_path / "g")
    run = tmp_path / "run"
    weft.train(classes, "sage", hidden=4, epochs=2, out=run)
    kept = json.loads((run / "run.json").read_text())
    del kept["recipe"]["task"], kept["summary"]["task"]
    (run / "run.json").write_text(json.dumps(kept))
    assert main(["infer", str(run), "--graph", str(tmp_path / "g"), "--out", str(tmp_path / "o")]) == 0
    table = pq.read_table(tmp_path / "o" / "predictions.parquet")
    assert table.column_names == ["id", "prediction", "probability", "output"]
    assert classes.y is not None
    right = np.array(table["prediction"].to_pylist()) == classes.y.numpy()
    assert right[classes.test_mask].mean() == pytest.approx(metrics(run)["test"]["accuracy"])
