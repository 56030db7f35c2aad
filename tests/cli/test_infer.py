"""The command weft infer: from tables to predictions, and one line for each mistake."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from infer_cases import (
    EDGES,
    X,
    forward,
    near,
    outputs,
    plain,
    stack,
)

import weft
from weft.cli.main import main
from weft.graph import Graph


def write_tables(folder: Path, *, people: int = 40) -> None:
    draw = np.random.default_rng(5)
    kinds = draw.integers(0, 2, people)
    lines = ["id,age,height,group"]
    for person, kind in enumerate(kinds):
        age, height = 20 + 30 * kind + draw.integers(9), draw.random()
        lines.append(f"p{person:03d},{age},{height:.2f},{('red', 'blue')[kind]}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    ends = [(draw.integers(people), draw.integers(people)) for _ in range(160)]
    (folder / "knows.csv").write_text("src,dst\n" + "".join(f"p{a:03d},p{b:03d}\n" for a, b in ends))


def test_from_tables_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    schema = (
        '[nodes.node]\nfiles = ["people.csv"]\nid = "id"\nfeatures = ["age", "height"]\nlabel = "group"\n'
    )
    schema += (
        '[edges.edge]\nsource = "node"\ntarget = "node"\nfiles = ["knows.csv"]\nsrc = "src"\ndst = "dst"\n'
    )
    Path("schema.toml").write_text(schema)
    assert main(["ingest", "--schema", "schema.toml", "--out", "graph"]) == 0
    settings = ["data.path=graph", "data.normalise_features=true", "model.name=gcn", "train.epochs=3"]
    assert main(["train", *(f"--set={each}" for each in settings), "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["infer", "run", "--graph", "graph", "--out", "predictions", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["nodes"] == 40
    assert "layer 2 of 2: 40 nodes" in told.err
    table = pq.read_table("predictions/predictions.parquet")
    assert table.column("id").to_pylist() == [f"p{v:03d}" for v in range(40)]
    assert set(table.column("prediction").to_pylist()) <= {"red", "blue"}
    graph = weft.datasets.open_dataset("graph", normalise_features=True)
    model = stack(graph, "gcn", hidden=64)
    weft.train.load_weights("run/model.safetensors", model)
    assert near(outputs(Path("predictions")), forward(model, graph))
    assert main(["infer", "run", "--out", "again", "--engine", "duckdb"]) == 0  # the run's own data
    assert near(outputs(Path("again")), outputs(Path("predictions")))


def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plain(train_mask=torch.arange(61) < 40).save("g")
    Graph.from_edges(EDGES, num_nodes=61, x=X[:, :4]).save("narrow")
    plain(edge_attr=torch.rand(500, 2)).save("attr")
    weft.train(weft.load("g"), "sage", epochs=1, out="run")
    Path("taken").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    for words, message in (
        (["absent", "--graph", "g", "--out", "o"], "absent holds no run"),
        (["run", "--out", "o"], "names no data; give the graph: --graph GRAPH"),
        (["run", "--graph", "nowhere", "--out", "o"], "nowhere: no such file or folder"),
        (["run", "--graph", "narrow", "--out", "o"], "trained on features node 6, this graph has node 4"),
        (["run", "--graph", "attr", "--out", "o"], "trained on edge data none, this graph has attr [2]"),
        (["run", "--graph", "g", "--out", "taken"], "taken already exists"),
        (["run", "--graph", "g", "--out", "taken", "--overwrite"], "not a folder written by weft"),
        (
            ["run", "--graph", "g", "--out", "o", "--nodes", "none.parquet"],
            "not a Parquet or CSV file of ids",
        ),
        (["run", "--graph", "g", "--out", "o", "--memory", "much"], "memory: expected a size"),
        (["run", "--graph", "g", "--out", "o", "--master", "local[2]"], "are for --engine spark"),
        (["run", "--graph", "g", "--out", "o", "--conf", "a"], "expected spark.KEY=VALUE"),
        (["run", "--graph", "g", "--out", "o", "--engine", "spark", "--conf", "x=y"], "got 'x=y'"),
        (["run", "--graph", "g", "--out", "o", "--fanout", "5"], "fanout: the model takes 2 hops, [5] are 1"),
        (["run", "--graph", "g", "--out", "o", "--fanout", "a,b"], "--fanout: expected whole numbers"),
        (
            ["run", "--graph", "g", "--out", "o", "--fanout", "2,2", "--engine", "duckdb"],
            "for --engine torch",
        ),
        (["run", "--graph", "g", "--out", "o", "--seed", "3"], "--seed is that of sampled neighbours"),
        (["run", "--graph", "g", "--out", "o", "--fanout", "2,2", "--memory", "1G"], "leave it out with"),
        (["run", "--graph", "g", "--out", "o", "--device", "abacus"], "abacus"),
    ):
        assert main(["infer", *words]) == 2, words
        told = capsys.readouterr().err
        assert message in told, told
        assert told.count("\n") == 1
        assert {path.name for path in tmp_path.iterdir()} == before
    run = json.loads(Path("run/run.json").read_text())
    Path("run/evil.py").write_text("raise SystemExit(7)")
    store = {"name": str(Path("run/evil.py").resolve()) + ":Store"}
    told = {**run, "recipe": {**run["recipe"], "strategy": {"name": "sampled", "store": store}}}
    Path("run/run.json").write_text(json.dumps(told))
    assert main(["infer", "run", "--graph", "g", "--out", "o"]) == 2
    assert "in the folder that names it" in capsys.readouterr().err
    run["recipe"]["model"] = {"class": "Net"}
    Path("run/run.json").write_text(json.dumps(run))
    assert main(["infer", "run", "--graph", "g", "--out", "o"]) == 2
    assert "trained Net, a model of its own that its recipe cannot rebuild" in capsys.readouterr().err
