"""Learned rows of a run go with the user's ids of nodes, to other graphs and into tables."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from weft.config import make_recipe
from weft.errors import InputError
from weft.graph import Graph
from weft.pipeline.infer.inference import infer_run
from weft.pipeline.infer.scoring import open_run
from weft.train.launch import run_recipe
from weft.train.trainer import Place

NAMES = [f"n{number}" for number in range(24)]


def ring(names: list[str], path: Path) -> Path:
    """Write a ring of nodes in the order of their names, with labels that are theirs; return where."""
    numbers = [int(name[1:]) for name in names]
    links = [[a, b] for a, x in enumerate(numbers) for b, y in enumerate(numbers) if (x - y) % 24 in (1, 23)]
    data: dict[str, Any] = {"y": [number % 3 for number in numbers], "node_ids": names}
    Graph.from_edges(torch.tensor(links).t(), num_nodes=len(names), **data).save(path)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    graph = ring(NAMES, tmp_path / "graph")
    recipe = {
        "data": {"path": str(graph), "train_fraction": 0.6},
        "model": {"name": "sage", "hidden": 4},
        "train": {"epochs": 2},
    }
    run_recipe(make_recipe(recipe), Place(out=tmp_path / "run"))
    return tmp_path / "run"


def predicted(folder: Path) -> dict[str, list[float]]:
    table = pq.read_table(folder / "_embeddings" / "embeddings.parquet")
    return dict(zip(table.column("id").to_pylist(), table.column("embedding").to_pylist()))


def test_rows_follow_the_ids_of_nodes_to_another_graph(run: Path, tmp_path: Path) -> None:
    infer_run(run, tmp_path / "own")
    other = ring(NAMES[::-1], tmp_path / "other")
    infer_run(run, tmp_path / "turned", graph=other)
    own, turned = predicted(tmp_path / "own"), predicted(tmp_path / "turned")
    assert list(turned) == NAMES[::-1]
    for name in NAMES:
        assert turned[name] == pytest.approx(own[name], abs=1e-6)
    some = open_run(run, ring(NAMES[3:9], tmp_path / "some"))
    weight: Any = some.model.encoder.embeddings["type_node"].weight  # type: ignore[union-attr, index]
    whole: Any = open_run(run).model.encoder.embeddings["type_node"].weight  # type: ignore[union-attr, index]
    assert torch.equal(weight, whole[3:9])


def test_learned_rows_are_written_with_the_ids_of_nodes(run: Path, tmp_path: Path) -> None:
    result = infer_run(run, tmp_path / "out")
    assert "_learned/embeddings.parquet" in result["files"]
    table = pq.read_table(tmp_path / "out" / "_learned" / "embeddings.parquet")
    whole: Any = open_run(run).model.encoder.embeddings["type_node"].weight  # type: ignore[union-attr, index]
    assert table.column("id").to_pylist() == NAMES
    assert table.column("embedding").to_pylist() == whole.tolist()


def test_a_node_that_training_did_not_know_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no node has the id 'n30' .*in training, which learned one row per node"
    ):
        open_run(run, ring(["n2", "n3", "n30"], tmp_path / "new"))
