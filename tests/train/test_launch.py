"""Arguments and recipes are checked before anything is read or written."""

import copy
import inspect
import warnings
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import weft
from weft.config import make_recipe
from weft.errors import InputError, RecipeError, UnknownName, WeftWarning
from weft.train.launch import run_recipe, train
from weft.train.settings import Settings, choose_device
from weft.train.trainer import Place


def test_keywords_of_train_are_the_settings_with_their_defaults() -> None:
    parameters = inspect.signature(train).parameters
    for item in fields(Settings):
        assert parameters[item.name].default == item.default, item.name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "train.epochs: expected a number >= 1, got 0"),
        ({"lr": "fast"}, "train.lr: expected a number, got 'fast'"),
        ({"optimizer": "adm"}, "did you mean 'adam'"),
        ({"precision": "float8"}, "train.precision: "),
        ({"seed": -1}, "train.seed: expected a number >= 0"),
        ({"hidden": 0}, "model.hidden: expected a number >= 1, got 0"),
        ({"dropout": 1.5}, "model.dropout: expected a number >= 0 and < 1"),
        ({"haeds": 2}, "unknown keyword 'haeds'; did you mean 'heads'"),
        ({"device": "cuda:99"}, "train.device: 'cuda:99' is not there"),
        ({"device": "abacus"}, "train.device: expected auto, cpu"),
        ({"strategy": "singel"}, "did you mean 'single'"),
    ],
)
def test_a_wrong_setting_is_one_line_and_leaves_nothing(
    graph: weft.Graph, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        train(graph, "gat", out=tmp_path / "run", **options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("model", "strategy", "message"),
    [
        ("gat", {"name": "control_variate"}, "control_variate"),
        ("sage", {"name": "sampled", "sampler": {"name": "labor", "iterations": -1}}, "iterations must be"),
    ],
)
def test_what_is_refused_in_the_first_step_leaves_no_run(
    graph: weft.Graph, tmp_path: Path, model: str, strategy: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train(graph, model, strategy=strategy, out=tmp_path / "run", trace=True)
    assert not (tmp_path / "run").exists()


def test_a_number_that_float32_cannot_hold_is_refused_and_float64_holds_it(
    graph: weft.Graph, tmp_path: Path
) -> None:
    x = graph.x.double()
    x[3, 2] = 1e300
    wide = weft.Graph.from_edges(graph.edge_index, x=x, y=graph.y, train_mask=graph.train_mask)
    with pytest.raises(InputError, match=r"holds 1e\+300, which float32 cannot"):
        train(wide, "sage", epochs=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert wide.to(dtype=torch.float64).x[3, 2] == 1e300


def test_a_built_model_takes_no_options(graph: weft.Graph) -> None:
    with pytest.raises(InputError, match="unknown keyword 'hidden'"):
        train(graph, weft.nn.Stack(8, 3), hidden=3)


def test_unknown_layer_is_refused_with_a_suggestion(graph: weft.Graph) -> None:
    with pytest.raises(UnknownName, match="did you mean 'gat'"):
        train(graph, "gatt")


def test_a_recipe_trains_like_the_same_call(tmp_path: Path) -> None:
    recipe = make_recipe(
        {
            "data": {"name": "community", "nodes": 200, "features": 8, "classes": 3},
            "model": {"name": "gcn", "hidden": 8},
            "train": {"epochs": 3, "seed": 2},
        }
    )
    summary = run_recipe(recipe, Place(out=tmp_path / "run"))
    graph = weft.datasets.open_dataset(name="community", nodes=200, features=8, classes=3)
    assert summary.metrics == train(graph, "gcn", hidden=8, epochs=3, seed=2).metrics


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.name=comunity", "did you mean 'community'"),
        ("data.nods=3", "unknown key data.nods; did you mean 'nodes'"),
        ("data.nodes=few", "data.nodes: expected a whole number, got 'few'"),
        ("data.name=3", "data.name: expected a string, got 3"),
        ("data.path=/no/such.npz", "no such file"),
        ("model.name=gatt", "no layer 'gatt'"),
        ("model.heads=0", "model.heads: expected a number >= 1"),
        ("model.name=7", "model.name: expected a string, got 7"),
        ("strategy.name=halo2", "no strategy 'halo2'"),
        ("strategy.part=3", "unknown key strategy.part;"),
        ("train.epoch=3", "did you mean 'epochs'"),
    ],
)
def test_a_wrong_recipe_is_refused_before_anything_is_written(
    tmp_path: Path, override: str, message: str
) -> None:
    data = {} if override.startswith(("data.name", "data.path")) else {"name": "community", "nodes": 50}
    recipe = make_recipe({"data": data, "model": {"name": "gat"}}, overrides=[override])
    with pytest.raises(InputError) as caught:
        run_recipe(recipe, Place(out=tmp_path / "run"))
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_device_is_chosen_or_refused() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in ("cpu", "cuda")
    with pytest.raises(RecipeError, match="use 'cpu' or 'cuda'"):
        choose_device("meta")


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_parts_in_one_process_give_the_numbers_of_the_whole(graph: weft.Graph, model: str) -> None:
    given = {"hidden": 8, "epochs": 3, "precision": "float64"}
    whole = train(graph, model, **given)  # type: ignore[arg-type]
    strategy = {"name": "halo", "partitioner": "hash", "exchange": {"name": "sampled", "p": 1.0}}
    parts = train(graph, model, strategy=strategy, parts=4, **given)  # type: ignore[arg-type]
    assert parts.loss == pytest.approx(whole.loss, rel=1e-10)
    assert parts.metrics["train"] == pytest.approx(whole.metrics["train"], rel=1e-10)
    assert (parts.strategy, parts.workers, parts.bytes_sent) == ("halo", 1, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers: expected a whole number of at least 1, got 0"),
        ({"workers": 2, "strategy": "single"}, "'single' trains in one process; use 'halo'"),
        ({"strategy": "single", "parts": 2}, "unknown key strategy.parts"),
        ({"strategy": "halo", "parts": 0}, "strategy.parts: expected a number >= 1"),
        ({"strategy": {"name": "halo", "exchange": "delayd"}}, "no exchange 'delayd'"),
        ({"strategy": {"name": "halo", "part": 3}}, "did you mean 'parts'"),
        (
            {"strategy": {"name": "sequential", "activation": "auto"}},
            "unknown key strategy.activation; 'sequential' has none, it is for 'halo', 'single'",
        ),
        ({"strategy": 3}, "strategy: expected a name, as 'single', or a table with one"),
        (
            {"strategy": {"name": "halo", "exchange": {"name": "stale", "lag": 0, "smooth_features": 0.9}}},
            "strategy.exchange.smooth_features: lag = 0 is exact and smooths nothing",
        ),
        (
            {"strategy": {"name": "vertex_cut", "exchange": "none", "backward": "local"}},
            "strategy.backward: with the exchange 'none' gradients are not exchanged anyway",
        ),
        ({"momentum": 0.9}, "train.momentum: 'adam' takes none; use optimizer = 'sgd'"),
    ],
)
def test_a_wrong_strategy_is_one_line(graph: weft.Graph, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        train(graph, "sage", **options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "exchange", ["stale", {"name": "sampled", "p": 0.5}, {"name": "quantised", "bits": 8}]
)
def test_an_approximate_exchange_in_one_process_is_told_to_change_nothing(
    graph: weft.Graph, exchange: str | dict[str, object]
) -> None:
    strategy = {"name": "halo", "exchange": exchange}
    with pytest.warns(WeftWarning, match="has nothing to carry in one process, which trains exactly"):
        train(graph, "sage", hidden=4, epochs=1, strategy=strategy)


@pytest.mark.parametrize(
    "exchange", ["exact", {"name": "stale", "lag": 0}, {"name": "quantised", "bits": 32}]
)
def test_an_exact_exchange_in_one_process_is_not_warned_of(
    graph: weft.Graph, exchange: str | dict[str, object]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeftWarning)
        train(graph, "sage", hidden=4, epochs=1, strategy={"name": "halo", "exchange": exchange})


@pytest.mark.parametrize("options", [{"patience": 3}, {"schedule": "plateau"}])
def test_what_goes_by_validation_nodes_is_refused_where_there_are_none(
    graph: weft.Graph, options: dict[str, object]
) -> None:
    with pytest.raises(RecipeError, match="goes by validation targets, and there are none"):
        train(graph.with_data(val_mask=None), "sage", hidden=4, epochs=1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", ["halo", "vertex_cut"])
def test_a_model_keeps_its_own_batch_norm_after_training_on_parts(graph: weft.Graph, strategy: str) -> None:
    model = weft.nn.Stack(graph.x.shape[1], graph.num_classes, layer="sage", hidden=8, norm="batch")
    kinds = [type(module) for module in model.modules()]
    names = list(model.state_dict())
    train(graph, model, epochs=2, strategy=strategy, parts=2)
    assert [type(module) for module in model.modules()] == kinds
    assert list(copy.deepcopy(model).state_dict()) == names
