"""A model, a loss and metrics of the user's own, by their names in a recipe or as objects in Python."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from own_code import Looped, Net, confidence, focal, focal_mean

import weft
from weft.cli.main import main
from weft.config import make_recipe
from weft.errors import InputError
from weft.train.launch import run_recipe, train
from weft.train.trainer import Place

DATA = {"name": "community", "nodes": 120, "degree": 6, "classes": 3, "features": 8, "seed": 1}


def recipe(**sections: dict[str, Any]) -> Any:
    held = {"data": DATA, "model": {"class": "own_code:Net"}, "train": {"epochs": 3, "precision": "float64"}}
    return make_recipe(
        {name: {**held.get(name, {}), **sections.get(name, {})} for name in (*held, "strategy")}
    )


def test_a_class_is_named_in_a_recipe_with_its_options_as_keys(tmp_path: Path) -> None:
    summary = run_recipe(recipe(model={"hidden": 5, "gated": True}), Place(out=tmp_path / "run"))
    assert isinstance(summary.model, Net)
    assert summary.model.first.out_features == 5
    assert summary.model.gate is not None
    kept = weft.train.saved.run_folder.read_run(tmp_path / "run")["recipe"]["model"]  # type: ignore[attr-defined]
    assert kept == {"class": "own_code:Net", "hidden": 5, "gated": True}


def test_a_class_is_found_by_name_in_python(graph: weft.Graph) -> None:
    named = train(graph, "own_code:Net", epochs=2, hidden=4)
    more = train(graph, "own_code:Net", epochs=2, options={"hidden": 4})
    assert named.loss == more.loss
    assert train(graph, Net, epochs=2, options={"hidden": 4}).loss == named.loss


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"class": "own_code:Nett"}, "model.class: own_code has no 'Nett'; did you mean 'Net'"),
        ({"class": "no_such_module:Net"}, "model.class: cannot import 'no_such_module'"),
        ({"class": "no/such/file.py:Net"}, "model.class: cannot import 'no/such/file.py'"),
        ({"class": "own_code:NOT_A_CLASS"}, "own_code:NOT_A_CLASS is no torch.nn.Module"),
        ({"class": "Net"}, "model.class: expected 'module:name'"),
        ({"class": "own_code:Net", "name": "gcn"}, "name a layer or a class, not both"),
        ({"class": "own_code:Net", "hiden": 3}, "unknown key model.hiden; did you mean 'hidden'"),
        ({"class": "own_code:Net", "hidden": "wide"}, "model.hidden: expected a whole number"),
        (
            {"class": "own_code:focal"},
            "model.class: own_code:focal is no torch.nn.Module class, but a function",
        ),
        ({"class": "own_code:focal", "hidden": 3}, "model.class: own_code:focal is no torch.nn.Module class"),
        ({"class": "torch.nn:Linear"}, None),
        ({"class": "torch.nn:Embedding"}, "model.num_embeddings: torch.nn:Embedding needs it"),
    ],
)
def test_a_wrong_class_or_option_is_one_line(model: dict[str, Any], message: str | None) -> None:
    held = recipe()
    with pytest.raises(InputError if message else TypeError) as caught:
        run_recipe(make_recipe({**held.to_dict(), "model": model}), Place())
    if message:
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_module_that_fails_is_told_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(InputError, match="'broken_module' cannot be imported, it raises RuntimeError: no"):
        run_recipe(recipe(model={"class": "broken_module:Net"}), Place())


def test_self_loops_are_added_where_layers_of_the_class_ask_for_them(graph: weft.Graph) -> None:
    alone = train(graph, "own_code:Looped", epochs=2, precision="float64")
    ready = train(graph.add_self_loops(), "own_code:Looped", epochs=2, precision="float64")
    assert alone.loss == ready.loss


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "halo", "partitioner": "hash"},
        {"name": "sequential", "partitioner": "hash"},
        {"name": "grid"},
        {"name": "vertex_cut"},
        {"name": "sampled", "fanout": [-1, -1], "partitioner": "hash"},
        {"name": "clustered", "clusters": 4, "together": "all", "partitioner": "range"},
        {"name": "control_variate", "fanout": -1, "partitioner": "hash"},
    ],
)
def test_own_models_and_losses_train_with_every_strategy_at_its_exact_point(
    graph: weft.Graph, strategy: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"epochs": 3, "precision": "float64", "loss": focal_mean, "hidden": 4}
    given["metrics"] = {"confidence": confidence}
    whole = train(graph, "own_code:Net", **given)
    parts = {} if strategy["name"] in ("clustered",) else {"parts": 2}
    other = train(graph, "own_code:Net", strategy=strategy, **parts, **given)
    assert other.loss == pytest.approx(whole.loss, rel=1e-9)
    assert other.metrics["test"] == pytest.approx(whole.metrics["test"], rel=1e-9)


def test_a_loss_of_rows_and_their_mean_train_alike_and_saint_weighs_them(graph: weft.Graph) -> None:
    given: dict[str, Any] = {"epochs": 3, "precision": "float64", "hidden": 4}
    rows, mean = (train(graph, "own_code:Net", loss=each, **given).loss for each in (focal, focal_mean))
    assert rows == pytest.approx(mean, rel=1e-9)
    assert rows != pytest.approx(train(graph, "own_code:Net", **given).loss, rel=1e-3)
    saint: dict[str, Any] = {"strategy": {"name": "saint", "size": 40}, **given, "epochs": 1}
    rows, mean = (train(graph, "own_code:Net", loss=each, **saint).loss for each in (focal, focal_mean))
    assert rows == pytest.approx(mean, rel=1e-9)


def test_a_metric_of_ones_own_is_told_and_judges_the_best_epoch(graph: weft.Graph, tmp_path: Path) -> None:
    given: dict[str, Any] = {"epochs": 4, "out": tmp_path / "run", "metric": "sure"}
    summary = weft.train(graph, "own_code:Net", metrics={"sure": confidence}, **given)
    assert summary.metric == "sure"
    assert set(summary.metrics["val"]) == {"accuracy", "micro_f1", "macro_f1", "roc_auc", "sure", "loss"}
    told = [event for event in weft.read_events(tmp_path / "run") if event["event"] == "epoch"]
    assert max(told, key=lambda event: event["val"]["sure"])["epoch"] == summary.best_epoch
    assert summary.metrics["val"]["sure"] == max(event["val"]["sure"] for event in told)
    assert "<small>sure</small>" in (tmp_path / "run" / "report.html").read_text()


def test_functions_are_named_in_a_recipe(graph: weft.Graph, tmp_path: Path) -> None:
    named = {"loss": "own_code:focal", "metrics": {"sure": "own_code:confidence"}, "metric": "sure"}
    summary = run_recipe(recipe(train=named), Place(out=tmp_path / "run"))
    assert "sure" in summary.metrics["test"]
    kept = weft.train.saved.run_folder.read_run(tmp_path / "run")["recipe"]["train"]  # type: ignore[attr-defined]
    assert kept["loss"] == "own_code:focal"
    again = run_recipe(recipe(train={"loss": "own_code:focal_mean"}), Place())
    assert again.loss == pytest.approx(summary.loss, rel=1e-9)
    torch_loss = run_recipe(recipe(train={"loss": "torch.nn:CrossEntropyLoss"}), Place())
    assert torch_loss.loss == pytest.approx(run_recipe(recipe(), Place()).loss, rel=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "crossentropy"}, "train.loss: did you mean 'cross_entropy'"),
        ({"loss": "own_code:nothing"}, "train.loss: own_code has no 'nothing'"),
        ({"loss": 3}, "loss: expected a name or a function loss(outputs, y), got 3"),
        ({"metrics": {"f1": 3}}, "metrics: 'f1' is no function metric(outputs, y), but 3"),
        ({"metrics": {"f1": "f1"}}, "train.metrics.f1: expected a function as 'module:function', got 'f1'"),
        ({"metrics": {"accuracy": confidence}}, "train.metrics.accuracy: weft has that name already"),
        ({"metrics": [confidence]}, "metrics: expected names and functions"),
        ({"metric": "sure"}, "train.metric: expected one of 'auto', 'accuracy'"),
        ({"metrics": {"odd": "own_code:no_number"}}, "train.metrics.odd: expected one number, got a Tensor"),
        ({"loss": lambda o, y: o.sum()}, "train.loss: "),
    ],
)
def test_a_wrong_loss_or_metric_is_one_line(graph: weft.Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        train(graph, "sage", hidden=4, epochs=1, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_that_was_trained_by_its_class_infers_from_its_run(tmp_path: Path) -> None:
    from weft.pipeline.infer.scoring import open_run

    summary = run_recipe(recipe(), Place(out=tmp_path / "run"))
    held = open_run(tmp_path / "run")
    assert isinstance(held.model, Net)
    for name, value in summary.model.state_dict().items():
        torch.testing.assert_close(held.model.state_dict()[name], value)


def test_an_object_that_keeps_its_arguments_is_made_again_from_its_run(
    graph: weft.Graph, tmp_path: Path
) -> None:
    from weft.pipeline.infer.scoring import open_run

    graph.save(tmp_path / "graph")
    train(graph, Looped(8, 3, scale=2.0), epochs=1, out=tmp_path / "kept")
    held = open_run(tmp_path / "kept", tmp_path / "graph")
    assert isinstance(held.model, Looped)
    assert held.model.scale == 2.0
    train(graph, Net(8, 3, hidden=5), epochs=1, out=tmp_path / "not")
    with pytest.raises(InputError, match=r"(?s)does not fit the model of .*first.lin_l.weight"):
        open_run(tmp_path / "not", tmp_path / "graph")


def test_code_in_the_folder_of_a_run_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from weft.pipeline.infer.scoring import open_run

    run = tmp_path / "run"
    run_recipe(recipe(), Place(out=run))
    (run / "planted.py").write_text("raise SystemExit('imported')\n")
    held = json.loads((run / "run.json").read_text())
    for name in (f"{run}/planted.py:Net", "planted:Net"):
        held["recipe"]["model"]["class"] = name
        (run / "run.json").write_text(json.dumps(held))
        monkeypatch.chdir(run)
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(InputError, match=r"would be imported from .*planted.py, in the folder that"):
            open_run(run)


def test_an_error_in_code_of_ones_own_ends_with_a_line_that_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steep_loss.py"
    path.write_text("def steep(outputs, y):\n    raise IndexError('Target 7 is out of bounds')\n")
    given = [f"train.loss={path}:steep", "data.nodes=60", "train.epochs=1", "model.hidden=4"]
    settings = [f"--set={setting}" for setting in given]
    assert main(["train", *settings, "--out", str(tmp_path / "run")]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback (most recent call last):" in lines
    told = f"weft: error: your code, {path}:2 in steep, raised IndexError: Target 7 is out of bounds"
    assert lines[-1] == told
