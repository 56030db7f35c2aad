"""Recipes are read, overridden and checked against what they configure."""

from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.config import (
    EVERY_DATA,
    Range,
    bind,
    default_of,
    differences,
    make_recipe,
    read_recipe,
    recipe_hash,
    to_toml,
)
from weft.datasets.prepare import prepare
from weft.errors import RecipeError, WeftWarning


@dataclass
class Options:
    epochs: Annotated[int, Range(least=1)] = 10
    lr: Annotated[float, Range(above=0)] = 0.1
    optimizer: Literal["adam", "sgd"] = "adam"
    patience: Annotated[int, Range(least=1)] | None = None
    fanout: list[int] | None = None
    exchange: dict[str, Any] | str = "exact"
    verbose: bool = False


class Layer:
    def __init__(
        self, in_features: int, out_features: int, *, heads: int = 1, dropout: float = 0.0
    ) -> None: ...


def refusal(target: Any, options: dict[str, Any], **keywords: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        bind(target, options, "train", **keywords)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_options_of_the_right_type_pass_through() -> None:
    given_options = {
        "epochs": 3,
        "lr": 0.5,
        "optimizer": "sgd",
        "patience": 4,
        "fanout": [5, 5],
        "verbose": True,
    }
    assert bind(Options, given_options, "train") == given_options


def test_a_whole_number_is_accepted_as_a_number_and_becomes_one() -> None:
    bound = bind(Options, {"lr": 1}, "train")
    assert bound == {"lr": 1.0}
    assert isinstance(bound["lr"], float)


def test_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    assert refusal(Options, {"epoch": 3}).startswith("unknown key train.epoch; did you mean 'epochs'?")


def test_wrong_type_says_what_was_expected_what_came_and_where() -> None:
    assert refusal(Options, {"lr": "fast"}) == "train.lr: expected a number, got 'fast'"
    assert refusal(Options, {"epochs": 2.5}) == "train.epochs: expected a whole number, got 2.5"
    assert refusal(Options, {"epochs": True}) == "train.epochs: expected a whole number, got true"
    assert refusal(Options, {"verbose": "no"}) == "train.verbose: expected true or false, got 'no'"
    assert refusal(Options, {"patience": "long"}) == "train.patience: expected a whole number, got 'long'"
    assert refusal(Options, {"fanout": 5}) == "train.fanout: expected a list of whole numbers, got 5"
    assert "train.fanout[1]: expected a whole number" in refusal(Options, {"fanout": [5, "x"]})


def test_a_choice_lists_what_is_known_and_suggests() -> None:
    assert refusal(Options, {"optimizer": "adm"}) == (
        "train.optimizer: did you mean 'adam'? expected one of 'adam', 'sgd', got 'adm'"
    )


@pytest.mark.parametrize(("value", "shown"), [(8.0, "8.0"), (True, "true"), ("8", "'8'")])
def test_a_choice_is_of_the_same_type(value: Any, shown: str) -> None:
    def quantised(bits: Literal[1, 8] | None = None) -> None: ...

    assert bind(quantised, {"bits": 8}, "exchange") == {"bits": 8}
    assert refusal(quantised, {"bits": value}) == f"train.bits: expected one of 1, 8, got {shown}"


@pytest.mark.parametrize("value", [0, -3])
def test_number_out_of_range_names_the_range(value: int) -> None:
    assert refusal(Options, {"epochs": value}) == f"train.epochs: expected a number >= 1, got {value}"
    assert refusal(Options, {"patience": value}) == f"train.patience: expected a number >= 1, got {value}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_rate_must_be_positive_and_finite(value: float) -> None:
    assert "train.lr: expected a number > 0" in refusal(Options, {"lr": value})


def test_tables_and_unions_are_accepted_in_each_of_their_forms() -> None:
    assert bind(Options, {"exchange": {"name": "sampled", "p": 0.1}}, "x")["exchange"]["p"] == 0.1
    assert bind(Options, {"exchange": "stale"}, "x") == {"exchange": "stale"}
    assert "expected a table or a string" in refusal(Options, {"exchange": 3})


def test_a_constructor_is_checked_like_a_dataclass_and_known_names_have_ranges() -> None:
    assert bind(Layer, {"heads": 4}, "model", given=("in_features", "out_features")) == {"heads": 4}
    assert "expected a number >= 1, got 0" in refusal(Layer, {"heads": 0})
    assert "expected a number >= 0 and < 1, got 1.0" in refusal(Layer, {"dropout": 1})
    assert "unknown key train.in_features" in refusal(Layer, {"in_features": 4}, given=("in_features",))


def test_a_constructor_that_passes_options_on_has_those_of_the_next() -> None:
    class Above:
        def __init__(self, *, low: Annotated[int, Range(least=1)] = 3) -> None: ...

    class Below(Above):
        def __init__(self, *, high: float = 1.0, **options: Any) -> None:
            super().__init__(**options)

    class Closed(Above):
        def __init__(self, *, high: float = 1.0) -> None:
            super().__init__()

    assert bind(Below, {"low": 2, "high": 1}, "x") == {"low": 2, "high": 1.0}
    assert (default_of(Below, "low"), default_of(Below, "high"), default_of(Below, "other")) == (3, 1.0, None)
    with pytest.raises(RecipeError, match=r"x\.low: expected a number >= 1"):
        bind(Below, {"low": 0}, "x")
    with pytest.raises(RecipeError, match=r"unknown key x\.low"):
        bind(Closed, {"low": 2}, "x")


def test_several_targets_share_one_section() -> None:
    assert bind([Options, Layer], {"epochs": 2, "heads": 3}, "x") == {"epochs": 2, "heads": 3}
    assert "did you mean 'heads'?" in refusal([Options, Layer], {"haeds": 3})


def test_recipe_is_read_and_overridden(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('[data]\nname = "community"\nnodes = 100\n[train]\nlr = 0.1\n')
    recipe = read_recipe(
        path, overrides=["train.lr=0.5", "train.optimizer=sgd", "model.name=gat", "data.seed = 3"]
    )
    assert recipe.train == {"lr": 0.5, "optimizer": "sgd"}
    assert recipe.model == {"name": "gat"}
    assert recipe.data == {"name": "community", "nodes": 100, "seed": 3}


def test_another_file_keeps_what_is_done_to_the_data() -> None:
    held = {"data": {"path": "cora.npz", "normalise_features": True, "standardise": True}}
    recipe = make_recipe(held, overrides=["data.path=../x.npz"])
    assert recipe.data == {"path": "../x.npz", "normalise_features": True, "standardise": True}


@pytest.mark.parametrize("source", ["path=../x.npz", "name=rmat"])
def test_another_kind_of_data_drops_the_settings_of_the_first_and_says_which(source: str) -> None:
    held = {"data": {"name": "community", "nodes": 5, "seed": 1, "self_loops": True}}
    with pytest.warns(WeftWarning, match=r"data\.nodes, data\.seed of the recipe dropped"):
        recipe = make_recipe(held, overrides=[f"data.{source}", "data.seed=2"])
    key, _, value = source.partition("=")
    assert recipe.data == {key: value, "self_loops": True, "seed": 2}


def test_nothing_is_said_where_nothing_is_dropped(recwarn: pytest.WarningsRecorder) -> None:
    assert make_recipe({"data": {"name": "community"}}, overrides=["data.path=x"]).data == {"path": "x"}
    assert make_recipe({"data": {"path": "x"}}, overrides=["data.name=community"]).data == {
        "name": "community"
    }
    assert not recwarn


def test_the_settings_that_every_data_set_has_are_those_of_prepare() -> None:
    assert set(signature(prepare).parameters) - {"graph"} == EVERY_DATA


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 1e-3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ('"3"', "3"),
        ("../shared/cora.npz", "../shared/cora.npz"),
        ("a=b", "a=b"),
        ("2024-01-01", "2024-01-01"),
        ("", ""),
    ],
)
def test_override_values_are_toml_or_else_plain_text(text: str, value: Any) -> None:
    assert make_recipe({}, overrides=[f"train.key={text}"]).train == {"key": value}


@given(st.text(max_size=30))
def test_no_override_text_can_break_out_of_its_key(text: str) -> None:
    recipe = make_recipe({}, overrides=[f"train.key={text}"])
    assert list(recipe.train) == ["key"]
    assert not recipe.data


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epochs=3", "expected section.key=value"),
        ("train.epochs", "expected section.key=value"),
        ("trian.epochs=3", "did you mean 'train'?"),
    ],
)
def test_bad_override_is_refused(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message.replace(".", r"\.").replace("?", r"\?")):
        make_recipe({}, overrides=[override])


def test_bad_files_are_refused_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[train\n")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    unknown = tmp_path / "unknown.toml"
    unknown.write_text("[trian]\nlr = 1\n")
    loose = tmp_path / "loose.toml"
    loose.write_text("train = 3\n")
    for path, message in [
        (tmp_path / "absent.toml", "no recipe"),
        (broken, "not valid TOML"),
        (binary, "not valid TOML"),
        (unknown, "did you mean 'train'?"),
        (loose, "expected a section"),
        (tmp_path, "is a folder; name the .toml file"),
    ]:
        with pytest.raises(RecipeError) as caught:
            read_recipe(path)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_differences_name_each_setting_that_changed() -> None:
    old = {"train": {"lr": 0.1, "epochs": 3}, "model": {"name": "gcn"}}
    new = {"train": {"lr": 0.2, "epochs": 3}, "model": {"name": "gcn", "heads": 2}}
    assert differences(old, new) == ["model.heads: None → 2", "train.lr: 0.1 → 0.2"]
    assert recipe_hash(old) != recipe_hash(new)
    assert recipe_hash({"a": 1, "b": 2}) == recipe_hash({"b": 2, "a": 1})


def test_a_recipe_written_as_toml_reads_back_equal(tmp_path: Path) -> None:
    sections = {
        "data": {"path": 'a "quoted" \\ path', "seed": None},
        "model": {"heads": 4, "residual": True, "shape": [1, 2.5]},
        "strategy": {"exchange": {"name": "sampled", "p": 0.1}, "fanout": {"a to b": [1, 2]}},
        "train": {"lr": 1e-5},
    }
    path = tmp_path / "r.toml"
    path.write_text(to_toml(sections))
    del sections["data"]["seed"]
    sections["task"] = {}
    assert read_recipe(path).to_dict() == sections
