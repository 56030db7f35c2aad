"""What a run keeps of its data, so that its model is rebuilt as it was, or the graph refused by name."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from tables import schema_of

from weft.config import make_recipe
from weft.errors import DataNote, InputError
from weft.pipeline.flatten.flattening import flatten
from weft.pipeline.infer.scoring import open_run
from weft.pipeline.ingest.ingestion import ingest
from weft.train.launch import run_recipe
from weft.train.trainer import Place

COLUMNS = {"id": "p{0}", "age": "{1}", "height": "{2}", "job": "{3}", "split": "{4}"}
SPLITS = ["train", "train", "val", "test"]


def tables(
    folder: Path, columns: list[str], jobs: tuple[str, str] = ("cook", "smith"), more: tuple[str, ...] = ()
) -> Path:
    """Return a graph of eight people made from tables with these columns."""
    rows = [",".join(columns)]
    for i in range(8):
        rows.append(
            ",".join(
                COLUMNS[name].format(i, 20 + i, 1.5 + i / 40, jobs[i % 2], SPLITS[i // 2]) for name in columns
            )
        )
    knows = ["src,dst", *(f"p{i},p{(i * 3 + 1) % 8}" for i in range(8)), *more]
    (folder / "people.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "knows.csv").write_text("\n".join(knows) + "\n", encoding="utf-8")
    arguments = [f"nodes={folder}/people.csv", f"edges={folder}/knows.csv"]
    split = {"split": "split"} if "split" in columns else {}
    ingest(
        schema_of(arguments, {"nodes": {"node": {"label": "job", "features": columns[1:3], **split}}}),
        folder / "graph",
        overwrite=True,
    )
    return folder / "graph"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The folder of a run on such a graph, which lies beside it."""
    graph = tables(tmp_path, ["id", "age", "height", "job"])
    recipe = {"data": {"path": str(graph)}, "model": {"hidden": 4}, "train": {"epochs": 1}}
    run_recipe(make_recipe(recipe), Place(out=tmp_path / "run"))
    return tmp_path / "run"


def test_a_split_that_training_drew_is_told_there_and_not_where_nobody_trains(trained: Path) -> None:
    recipe = {"data": {"path": str(trained.parent / "graph")}, "train": {"epochs": 1}}
    with pytest.warns(DataNote, match="no split, so one was drawn"):
        run_recipe(make_recipe(recipe), Place(out=trained.parent / "again"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        open_run(trained)
    assert not [note for note in told if "split" in str(note.message)]


def test_names_of_classes_are_those_of_training(trained: Path) -> None:
    assert open_run(trained).names == ["cook", "smith"]
    graph = tables(trained.parent, ["id", "age", "height", "job"], jobs=("smith", "baker"))
    assert open_run(trained, graph).names == ["cook", "smith"]
    shutil.move(graph, trained.parent / "elsewhere")
    assert open_run(trained, trained.parent / "elsewhere").names == ["cook", "smith"]


def test_a_run_from_records_keeps_the_names_of_their_graph(tmp_path: Path) -> None:
    graph = tables(tmp_path, ["id", "age", "height", "job", "split"])
    flatten(graph, tmp_path / "records", fanout=[2, 2])
    recipe = {"data": {"path": str(tmp_path / "records")}, "model": {"hidden": 4}, "train": {"epochs": 1}}
    run_recipe(make_recipe(recipe), Place(out=tmp_path / "run"))
    assert open_run(tmp_path / "run", graph).names == ["cook", "smith"]
    other = tables(tmp_path, ["id", "height", "age", "job"])
    with pytest.raises(InputError, match="trained on the features age, height"):
        open_run(tmp_path / "run", other)


def test_features_are_compared_by_name_and_order(trained: Path) -> None:
    graph = tables(trained.parent, ["id", "height", "age", "job"])
    with pytest.raises(InputError, match=r"features age, height of .node., this graph has height, age"):
        open_run(trained, graph)


def test_directions_are_added_as_in_training(trained: Path) -> None:
    told = open_run(trained).graph
    graph = tables(trained.parent, ["id", "age", "height", "job"], more=("p1,p0",))  # the reverse of one edge
    assert open_run(trained, graph).graph.num_edges == told.num_edges


def test_class_names_of_an_npz_file_are_those_of_the_run(tmp_path: Path) -> None:
    numbers = np.arange(12)
    arrays = {"edge_index": np.stack([numbers, np.roll(numbers, 1)]), "x": np.eye(12), "y": numbers % 2}
    np.savez(tmp_path / "g.npz", class_names=np.array(["cook", "smith"]), **arrays)
    recipe = {"data": {"path": str(tmp_path / "g.npz")}, "model": {"hidden": 4}, "train": {"epochs": 1}}
    run_recipe(make_recipe(recipe), Place(out=tmp_path / "run"))
    assert open_run(tmp_path / "run").names == ["cook", "smith"]
