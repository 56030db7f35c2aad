"""Features in half precision from tables to predictions: the bits of the same numbers in float32."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from tables import write_parquet

import weft
from weft.cli.main import main
from weft.events import read_events
from weft.graph.parts.partition import read_shard
from weft.train.workers.run_parts import read_parts

NODES, EDGES, WIDTH = 300, 2_000, 12
KINDS = ("float16", "float32")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return graphs ingested from tables of the same numbers, in both types."""
    folder = tmp_path_factory.mktemp("half")
    draws = np.random.default_rng(0)
    y = draws.integers(0, 4, NODES)
    x = (draws.standard_normal((NODES, WIDTH)) + 2 * np.eye(4, WIDTH)[y]).astype(np.float16)
    ends = draws.integers(0, NODES, (2, EDGES))
    split = np.array(["train", "val", "test"])[draws.integers(0, 3, NODES)]
    edges = write_parquet(folder / "edges.parquet", {"src": ends[0], "dst": ends[1]})
    made = {}
    for kind in KINDS:
        flat = pa.array(x.astype(kind).ravel())
        lists = pa.FixedSizeListArray.from_arrays(flat, WIDTH)
        columns = {"id": np.arange(NODES), "x": lists, "y": y, "split": split}
        nodes = write_parquet(folder / f"{kind}.parquet", columns)
        made[kind] = folder / kind
        assert main(["ingest", f"nodes={nodes}", f"edges={edges}", "--out", str(made[kind])]) == 0
        assert str(weft.load(made[kind]).x.dtype) == f"torch.{kind}"
    return made


def train(graph: Path, out: Path, **settings: Any) -> dict[str, torch.Tensor]:
    """Train on a graph and return the weights."""
    chosen = {"model.name": "sage", "train.epochs": 3, "data.symmetrise": "false", "data.path": graph}
    told = [f"{key}={value}" for key, value in (chosen | settings).items()]
    assert main(["train", *(part for one in told for part in ("--set", one)), "--out", str(out)]) == 0
    return load_file(out / "model.safetensors")


def predicted(run: Path, out: Path, *options: str) -> list[Any]:
    """Return the outputs of a run for all nodes."""
    assert main(["infer", str(run), "--out", str(out), *options]) == 0
    table = pq.read_table(out / "predictions.parquet")
    return list(table.column("output").to_pylist())


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy.name": "sampled", "strategy.fanout": [5, 5], "strategy.batch_size": 32},
        {"strategy.name": "sampled", "strategy.store": '{name = "cached", capacity = 0.3}'},
        {"strategy.name": "saint"},
        {"strategy.name": "single"},
    ],
    ids=["sampled", "cached", "saint", "single"],
)
def test_training_and_inference_give_the_bits_of_float32(
    folders: dict[str, Path], tmp_path: Path, settings: dict[str, Any]
) -> None:
    halves, wide = (train(folders[kind], tmp_path / kind, **settings) for kind in KINDS)
    assert all(torch.equal(halves[name], wide[name]) for name in wide)
    found = [predicted(tmp_path / kind, tmp_path / f"out-{kind}") for kind in KINDS]
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ["torch", "duckdb"])
def test_every_engine_of_inference_widens_them(folders: dict[str, Path], tmp_path: Path, engine: str) -> None:
    train(folders["float16"], tmp_path / "run", **{"strategy.name": "sampled", "train.epochs": 1})
    options = ("--engine", engine, "--graph")
    made = [predicted(tmp_path / "run", tmp_path / kind, *options, str(folders[kind])) for kind in KINDS]
    assert made[0] == made[1]


def test_batches_of_a_sampled_run_are_read_from_the_file(folders: dict[str, Path], tmp_path: Path) -> None:
    """Not from a copy of all features in float32: the store counts bytes of float16."""
    train(folders["float16"], tmp_path / "run", **{"strategy.name": "sampled", "strategy.fanout": [5, 5]})
    read = [event["batches"]["store"] for event in read_events(tmp_path / "run") if "batches" in event]
    assert read
    assert all(told["bytes"] == 2 * WIDTH * told["rows"] > 0 for told in read)


def test_parts_and_records_hold_the_same_numbers(folders: dict[str, Path], tmp_path: Path) -> None:
    for kind in KINDS:
        graph, parts, records = (
            str(path) for path in (folders[kind], tmp_path / f"parts-{kind}", tmp_path / kind)
        )
        options = ["--parts", "3", "--name", "hash", "--set", "data.symmetrise=false"]
        assert main(["partition", graph, *options, "--out", parts]) == 0
        assert main(["flatten", graph, "--fanout", "3,3", "--out", records]) == 0
    shards = [read_shard(tmp_path / f"parts-{kind}", 1).node_data["node"]["x"] for kind in KINDS]
    assert [str(x.dtype).removeprefix("torch.") for x in shards] == list(KINDS)
    held = [
        read_parts(tmp_path / f"parts-{kind}", rank=0, workers=2, dtype=torch.float32)[0] for kind in KINDS
    ]
    assert held[0].x.dtype == torch.float32
    assert torch.equal(held[0].x, held[1].x)
    files = [sorted((tmp_path / kind).rglob("*.parquet")) for kind in KINDS]
    assert files[0]
    assert all(pq.read_table(one).equals(pq.read_table(other)) for one, other in zip(*files))


def test_a_model_in_python_is_given_them_wide(folders: dict[str, Path]) -> None:
    graphs = [weft.load(folders[kind]) for kind in KINDS]
    model = weft.nn.Stack(WIDTH, 4, layer="sage", layers=2, hidden=8).eval()
    exact = [weft.infer(model, graph).tensor() for graph in graphs]
    torch.testing.assert_close(exact[0], exact[1])  # all at once, or in pieces: sums in another order
    drawn = [weft.infer(model, graph, fanout=[3, 3]).tensor() for graph in graphs]
    assert torch.equal(drawn[0], drawn[1])
