"""Records that hold all of their graph: trained from and evaluated on without it, the same numbers."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks
from records_jobs import numbered_graph, plain_graph, train_without_graph, typed_graph

import weft
from weft.cli.main import main
from weft.events import read_events
from weft.layers.stack import Stack
from weft.pipeline.flatten.flattening import flatten
from weft.strategies.records.batch_blocks import WholeGraph
from weft.strategies.records.record_graph import RecordGraph
from weft.strategies.records.record_loader import RecordFiles, RecordLoader
from weft.strategies.records.records import RecordTraining
from weft.tasks.base import SPLITS
from weft.train import METRICS

TRAIN = ["train", "--set", "train.epochs=3", "--set", "model.hidden=8", "--set", "strategy.batch_size=6"]
ON_RECORDS = ["--set", "data.path=r", "--set", "strategy.evaluate=records"]


def split_graph(make: Any = plain_graph, **more: Any) -> weft.Graph:
    """Return a graph with validation and test nodes, edge weights and attributes."""
    graph = make()
    n = len(graph.y)
    place = torch.arange(n)
    masks = {"train_mask": place % 2 == 0, "val_mask": place % 4 == 1, "test_mask": place % 4 == 3}
    return graph.with_data(**masks, **more)


def kept(folder: Path) -> None:
    """Save a graph of weighted edges, and flatten all of it."""
    graph = split_graph()
    weight = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(1))
    graph = weft.Graph.from_edges(
        graph.edge_index, num_nodes=60, edge_weight=weight, x=graph.x, y=graph.y,
        train_mask=graph.train_mask, val_mask=graph.val_mask, test_mask=graph.test_mask,
    )  # fmt: skip
    graph.add_self_loops().save(folder / "g")
    flatten(folder / "g", folder / "r", fanout=[3, 2], targets="train,val,test", features="value")


def told(run: str) -> list[dict[str, float]]:
    """Return the losses and scores of every epoch of a run."""
    return [
        {"loss": event["loss"]}
        | {f"{split} {name}": score for split in SPLITS for name, score in event[split].items()}
        for event in read_events(Path(run))
        if event["event"] == "epoch"
    ]


@pytest.mark.parametrize("make", [plain_graph, numbered_graph, typed_graph])
def test_a_batch_has_the_degrees_and_edge_data_of_the_graph(make: Any, tmp_path: Path) -> None:
    graph = split_graph(make)
    graph.save(tmp_path / "g")
    flatten(tmp_path / "g", tmp_path / "r", fanout=[3, 2], targets="train,val", features="value")
    files = RecordFiles.open(tmp_path / "r")
    alone = RecordGraph(files)
    for split in ("train", "val"):
        ours = RecordLoader(files, alone, split=split, batch_size=7, threads=0)
        theirs = RecordLoader(files, WholeGraph(graph), split=split, batch_size=7, threads=0)
        for step in range(len(ours)):
            one, two = ours.batch(0, step), theirs.batch(0, step)
            assert torch.equal(one.y, two.y)  # type: ignore[arg-type]
            for mine, given in zip(one.blocks, two.blocks, strict=True):
                for relation in (None, *range(graph.num_relations)):
                    for rows in ("src", "dst"):
                        assert torch.equal(mine.in_degree(rows, relation), given.in_degree(rows, relation))
                assert (mine.edge_type is None) == (given.edge_type is None)
                assert mine.edge_type is None or torch.equal(mine.edge_type, given.edge_type)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_a_run_without_the_graph_is_the_run_with_it(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept(tmp_path)
    words = [*TRAIN, "--set", f"model.name={model}"]
    assert main([*words, "--set", "data.path=r", "--out", "exact"]) == 0
    assert main([*words, *ON_RECORDS, "--out", "there"]) == 0
    shutil.move("g", "elsewhere")
    assert main([*words, *ON_RECORDS, "--out", "gone"]) == 0
    assert told("gone") == told("there")
    assert {"loss", "val accuracy", "test loss"} <= set(told("gone")[0])
    assert [each["loss"] for each in told("gone")] == [each["loss"] for each in told("exact")]
    weights = [(Path(run) / "model.safetensors").read_bytes() for run in ("exact", "there", "gone")]
    assert weights[1] == weights[2]
    assert main(["infer", "gone", "--graph", "elsewhere", "--out", "p"]) == 0


def test_workers_take_the_same_steps_without_the_graph(tmp_path: Path) -> None:
    kept(tmp_path)
    one = RecordGraph(RecordFiles.open(tmp_path / "r"))
    torch.manual_seed(0)
    model = Stack(3, 3, layer="gcn", hidden=8)
    records = str(tmp_path / "r")
    alone: Any = RecordTraining(one, records=records, batch_size=100, evaluate="records")
    whole = run_ranks(2, train_without_graph, str(tmp_path))
    for held in whole:
        assert held["gone"]["losses"] == held["there"]["losses"]
        assert held["gone"]["scores"].keys() == {"train", "val", "test"}
        assert held["gone"]["scores"] == whole[0]["gone"]["scores"]  # of all records, on both
    weights = {"accuracy": METRICS["accuracy"]}
    assert alone.evaluate(model, weights)["test"]["loss"] > 0  # where no graph is either


@pytest.mark.slow
def test_the_command_starts_workers_without_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept(tmp_path)
    shutil.rmtree("g")
    words = [*TRAIN, *ON_RECORDS, "--set", "model.name=gcn", "--set", "strategy.batch_size=100"]
    assert main([*words, "--out", "one"]) == 0
    assert main([*words, "--out", "two", "--workers", "2"]) == 0
    assert not Path("two/partition").exists()
    for one, two in zip(told("one"), told("two"), strict=True):
        assert one == pytest.approx(two, rel=1e-5)


def test_evaluation_on_records_of_all_edges_is_the_exact_one(tmp_path: Path) -> None:
    graph = split_graph()
    graph.save(tmp_path / "g")
    flatten(tmp_path / "g", tmp_path / "r", fanout=[-1, -1], targets="train,val,test", features="value")
    for evaluate in ("exact", "records"):
        strategy = {"name": "records", "records": str(tmp_path / "r"), "evaluate": evaluate}
        out = str(tmp_path / evaluate)
        weft.train(graph, "sage", hidden=8, epochs=2, strategy=strategy, precision="float64", out=out)
    for one, two in zip(told(str(tmp_path / "exact")), told(str(tmp_path / "records")), strict=True):
        assert one == pytest.approx(two, rel=1e-6)


def test_what_records_do_not_hold_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    split_graph().save("g")
    flatten("g", "r", fanout=[3, 2], targets="train,val", features="value")
    flatten("g", "named", fanout=[3, 2])
    shutil.rmtree("g")
    for more, message in (
        (["data.path=r"], "which is not there; flatten the graph where it lies now, or train without it"),
        (["data.path=named", "strategy.evaluate=records"], "refers to the graph for features; make records"),
        (["data.path=r", "strategy.evaluate=records", "model.name=gcn"], "needs a self loop at every node"),
        (["data.path=r", "strategy.evaluate=records", "strategy.parts=2"], "no graph is read, or cut"),
    ):
        assert main([*TRAIN, *(f"--set={each}" for each in more), "--out", "no"]) == 2
        assert message in capsys.readouterr().err
        assert not Path("no").exists()


def test_numbers_below_zero_are_trained_from_records_without_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = split_graph()
    numbers = -1.5 - plain.x[:, 0].double()
    numbers[torch.nonzero(plain.test_mask)[:2, 0]] = float("nan")
    plain.with_data(y=numbers).save("g")
    flatten("g", "r", fanout=[3, 2], targets="train,val,test", features="value")
    assert RecordFiles.open("r").manifest["num_classes"] == 0
    assert main([*TRAIN, *ON_RECORDS, "--out", "run"]) == 0
    (end,) = [event for event in read_events(Path("run")) if event["event"] == "end"]
    assert end["summary"]["task"] == "node_regression"
    assert set(end["summary"]["metrics"]["test"]) == {"rmse", "mae", "r2", "loss"}
    flatten("g", "known", fanout=[3, 2], targets="labelled")
    assert sum(RecordFiles.open("known").splits.values()) == len(numbers) - 2
