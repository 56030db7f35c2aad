"""A folder of parts, as `weft partition` writes it, is data like any other; what does not fit is refused."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import weft
from weft.cli.main import main
from weft.config import make_recipe
from weft.errors import FormatError, InputError, RecipeError
from weft.strategies.base import strategies
from weft.train.launch import run_recipe
from weft.train.resolve import resolve
from weft.train.trainer import Place
from weft.train.workers import run_parts
from weft.train.workers.run_parts import (
    SharedWhole,
    check_partitioner,
    prepare_parts,
    read_parts,
    read_task_files,
)

TRAIN = {"epochs": 3, "precision": "float64"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph on disk, and beside it three parts of it without and with self loops."""
    home = tmp_path_factory.mktemp("graphs")
    graph = weft.datasets.open_dataset(name="community", nodes=120, features=6, classes=3)
    graph.save(home / "graph")
    command = ["partition", str(home / "graph"), "--parts", "3", "--name"]
    assert main([*command, "hash", "--out", str(home / "parts")]) == 0
    loops = ["--set", "data.self_loops=true"]
    assert main([*command, "hash", *loops, "--out", str(home / "loops")]) == 0
    assert main([*command, "libra", "--out", str(home / "edges")]) == 0
    return home


@pytest.mark.parametrize(("model", "folder"), [("sage", "parts"), ("gcn", "loops")])
def test_parts_are_trained_on_as_the_graph_is(saved: Path, tmp_path: Path, model: str, folder: str) -> None:
    section = {"name": model, "hidden": 4}
    whole = make_recipe({"data": {"path": str(saved / "graph")}, "model": section, "train": TRAIN})
    cut = make_recipe({"data": {"path": str(saved / folder)}, "model": section, "train": TRAIN})
    expected = run_recipe(whole, Place())
    found = run_recipe(cut, Place(out=tmp_path / "run"))
    assert found.loss == pytest.approx(expected.loss, rel=1e-10)
    assert found.metrics["test"] == pytest.approx(expected.metrics["test"], rel=1e-10)
    assert found.strategy == "halo"
    assert not (tmp_path / "run" / "partition").exists()
    kept = json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]["graph"]
    assert (kept["parts"], len(kept["partition"])) == (3, 64)
    graph = next(event for event in weft.read_events(tmp_path / "run") if event["event"] == "graph")
    assert graph["in_degree"]["max"] > 0
    assert "self_loop_at_every_node" not in graph


@pytest.mark.parametrize(
    ("folder", "changes", "message"),
    [
        ("parts", ["strategy.parts=4"], "holds 3 parts, 4 were asked for; leave out --parts, or cut"),
        ("parts", ["model.name=gcn"], "'gcn' needs a self loop at every node"),
        ("parts", ["data.self_loops=true"], "--set data.self_loops=..."),
        ("parts", ["strategy.partitioner=metis"], "was cut already, by 'hash'; leave the partitioner out"),
        ("parts", ["strategy.name=single"], "'single' needs the whole graph"),
        ("edges", [], "holds parts of edges, the strategy needs parts of nodes"),
        ("parts", ["strategy.name=grid"], "a grid is cut by the run itself, for its rows and columns"),
    ],
)
def test_parts_that_do_not_fit_the_recipe_are_refused(
    saved: Path, tmp_path: Path, folder: str, changes: list[str], message: str
) -> None:
    recipe = make_recipe({"data": {"path": str(saved / folder)}}, overrides=changes)
    with pytest.raises(InputError) as caught:
        run_recipe(recipe, Place(out=tmp_path / "run"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_number_of_parts_is_that_of_the_folder(saved: Path, tmp_path: Path) -> None:
    recipe = make_recipe({"data": {"path": str(saved / "parts")}})
    assert prepare_parts(resolve(recipe, workers=2), tmp_path, workers=2) == saved / "parts"
    with pytest.raises(InputError, match="3 parts cannot occupy 4 workers"):
        prepare_parts(resolve(recipe, workers=4), tmp_path, workers=4)
    assert list(tmp_path.iterdir()) == []


def test_a_partition_that_no_run_made_is_not_replaced(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "parts", tmp_path / "partition")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    recipe = make_recipe({"data": {"name": "community", "nodes": 60}, "strategy": {"partitioner": "hash"}})
    with pytest.raises(InputError, match="holds a partition that no run made; choose another folder"):
        prepare_parts(resolve(recipe, workers=2), tmp_path, workers=2)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_what_cannot_continue_a_run_leaves_its_parts(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = tmp_path / "graph", tmp_path / "run"
    weft.datasets.open_dataset(saved / "graph").save(data)
    recipe = make_recipe({"data": {"path": str(data)}, "strategy": {"name": "halo", "partitioner": "range"}})
    short = make_recipe(recipe.to_dict(), overrides=["train.epochs=1", "model.hidden=4"])
    folder = prepare_parts(resolve(short, workers=2), out, workers=2)
    with monkeypatch.context() as patch:
        patch.setenv("WEFT_ATTEMPT", "1")  # the parts are there, the run is not
        run_recipe(short, Place(out=out, resume=True))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for change in ("strategy.partitioner=hash", "strategy.parts=4", "data.self_loops=true"):
        other = make_recipe(short.to_dict(), overrides=[change])
        with pytest.raises(InputError, match=r"started with other parts .*continue it unchanged") as caught:
            prepare_parts(resolve(other, workers=2), out, workers=2)
        assert change.split(".")[1].split("=")[0] in str(caught.value)
        assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    os.utime(data, ns=(0, 0))  # the same graph, written at another time
    assert prepare_parts(resolve(short, workers=2), out, workers=2) == folder
    longer = make_recipe(short.to_dict(), overrides=["train.epochs=2"])
    assert run_recipe(longer, Place(out=out, resume=True)).epochs == 2


def test_parts_whose_steps_hide_their_pairs_are_no_others(saved: Path, tmp_path: Path) -> None:
    def pairs(strategy: str, share: float = 0.3) -> int:
        told = {"name": strategy, "partitioner": "hash"}
        task = {"name": "link_prediction", "share": share}
        recipe = make_recipe({"data": {"path": str(saved / "graph")}, "task": task, "strategy": told})
        folder = prepare_parts(resolve(recipe, workers=2), tmp_path, workers=2)
        return len(load_file(folder / "pairs.safetensors")["train.src"])

    assert pairs("sampled") > 2 * pairs("halo"), "which keeps a share of them out of messages for good"


def test_a_damaged_part_of_a_run_s_own_tells_to_delete_it(tmp_path: Path) -> None:
    recipe = make_recipe({"data": {"name": "community", "nodes": 60}, "strategy": {"partitioner": "hash"}})
    folder = prepare_parts(resolve(recipe, workers=2), tmp_path, workers=2)
    indices = folder / "part-00001" / "indices.npy"
    indices.write_bytes(indices.read_bytes()[:-4])
    read_parts(folder, rank=0, workers=2, dtype=torch.float32)
    with pytest.raises(FormatError, match=rf"delete {folder}: the run then cuts its graph anew"):
        read_parts(folder, rank=1, workers=2, dtype=torch.float32)


LINKS = {"task": {"name": "link_prediction", "negatives": {"exclude": "known"}}}
CUT_BY_HASH = {"data": {"name": "community", "nodes": 60}, "strategy": {"partitioner": "hash"}}


@pytest.mark.parametrize("name", ["pairs.safetensors", "known.npy"])
def test_a_damaged_file_of_the_task_tells_to_delete_the_parts(tmp_path: Path, name: str) -> None:
    resolved = resolve(make_recipe({**CUT_BY_HASH, **LINKS}), workers=2)
    folder = prepare_parts(resolved, tmp_path, workers=2)
    task = resolved.make_task(resolved.open())
    read_task_files(task, folder)
    flip(folder / name)
    with pytest.raises(FormatError, match=rf"{name}: damaged.* delete {folder}: the run then cuts"):
        read_task_files(task, folder)


def test_sums_that_name_a_file_elsewhere_are_refused(tmp_path: Path) -> None:
    resolved = resolve(make_recipe({**CUT_BY_HASH, **LINKS}), workers=2)
    folder = prepare_parts(resolved, tmp_path, workers=2)
    (folder / "task_files.json").write_text(json.dumps({"../outside": "0"}))
    with pytest.raises(FormatError, match=r"'\.\./outside' lies outside of the folder"):
        read_task_files(resolved.make_task(resolved.open()), folder)


@pytest.mark.slow
def test_workers_do_not_train_on_a_damaged_file_of_the_task(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = ["train", "--workers=2", f"--out={tmp_path / 'run'}", "--set=model.hidden=4"]
    data = ["--set=data.name=community", "--set=data.nodes=60", "--set=task.name=link_prediction"]
    assert main([*run, *data, "--set=train.epochs=1"]) == 0
    flip(tmp_path / "run" / "partition" / "pairs.safetensors")
    assert main([*run, *data, "--set=train.epochs=2", "--resume"]) == 2
    assert "pairs.safetensors: damaged, its checksum differs" in capfd.readouterr().err


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)


def test_a_folder_of_parts_is_no_graph_to_open(saved: Path) -> None:
    with pytest.raises(FormatError, match="a graph in parts; train on it with `weft train"):
        weft.datasets.open_dataset(saved / "parts")


def test_damaged_facts_are_told(saved: Path) -> None:
    recipe = make_recipe({"data": {"path": str(saved / "parts")}, "model": {"name": "gcn"}})
    facts = (saved / "parts" / "graph.json").read_bytes()
    (saved / "parts" / "graph.json").write_text("{")
    try:
        with pytest.raises(FormatError, match=r"graph\.json: damaged"):
            resolve(recipe)
    finally:
        (saved / "parts" / "graph.json").write_bytes(facts)


def test_the_whole_graph_is_read_once_for_all_members_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, place = list[bool](), Path("parts")

    def read(folder: Path, dtype: torch.dtype, features: bool) -> object:
        asked.append(features)
        return object()

    monkeypatch.setattr(run_parts, "read_whole", read)
    whole = SharedWhole()
    bare = whole.read(place, torch.float32, features=False)
    assert whole.read(place, torch.float32, features=False) is bare
    full = whole.read(place, torch.float32, features=True)
    assert whole.read(place, torch.float32, features=False) is full, "what has features will do"
    assert asked == [False, True]


def test_a_recipe_names_nobody_who_watches_a_partitioner() -> None:
    options = {"partitioner": {"name": "hash", "watch": "x"}}
    with pytest.raises(RecipeError, match=r"unknown key strategy\.partitioner\.watch"):
        check_partitioner(strategies["halo"], options)
