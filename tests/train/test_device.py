"""Training on a GPU gives the numbers of the CPU, to rounding: draws are counters and know no device."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.train.launch import train

pytestmark = pytest.mark.skipif(
    os.environ.get("WEFT_TEST_DEVICE") != "cuda", reason="needs a GPU; run by `make test-gpu`"
)

SETTINGS: list[dict[str, Any]] = [
    {"model": "gcn", "dropout": 0.5},
    {"model": "sage", "dropout": 0.3},
    {"model": "sage", "aggregate": "max"},
    {"model": "gat", "heads": 2, "dropout": 0.4, "attention_dropout": 0.4},
    {"model": "gatv2", "heads": 2, "attention_dropout": 0.2},
    {"model": "gin"},
    {"model": "appnp", "dropout": 0.2},
    {"model": "edgeconv"},
]


@pytest.fixture(autouse=True)
def tensors_on_the_cpu() -> Any:
    """Undo the default device of the kernels' tests, should they run in the same process."""
    with torch.device("cpu"):
        yield


def losses(graph: weft.Graph, folder: Path, device: str, **settings: Any) -> list[float]:
    given = {"hidden": 8, "epochs": 10, "lr": 0.01, **settings}
    train(graph, **given, device=device, out=folder / device)
    return [event["loss"] for event in weft.read_events(folder / device) if event["event"] == "epoch"]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_losses_are_those_of_the_cpu(graph: weft.Graph, tmp_path: Path, settings: dict[str, Any]) -> None:
    ours, theirs = (losses(graph, tmp_path, device, **settings) for device in ("cuda", "cpu"))
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_relations_and_sparse_features(graph: weft.Graph, tmp_path: Path) -> None:
    relation = torch.arange(graph.num_edges) % 3
    x = graph.x.relu().to_sparse_csr()
    masks = {name: getattr(graph, name) for name in ("train_mask", "val_mask", "test_mask")}
    typed = weft.Graph.from_edges(graph.edge_index, x=x, y=graph.y, edge_type=relation, **masks)
    for model in ("rgcn", "gcn"):
        ours, theirs = (
            losses(typed, tmp_path / model, device, model=model, dropout=0.3) for device in ("cuda", "cpu")
        )
        assert ours == pytest.approx(theirs, rel=1e-3)


def test_bfloat16_learns_as_float32_does(graph: weft.Graph) -> None:
    found = [
        train(graph, model, device="cuda", hidden=16, epochs=40, precision=precision).test_accuracy
        for model in ("sage", "gat")
        for precision in ("float32", "bfloat16")
    ]
    assert found[1] == pytest.approx(found[0], abs=0.06)
    assert found[3] == pytest.approx(found[2], abs=0.06)


def test_a_run_on_the_gpu_continues_bit_for_bit(graph: weft.Graph, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": "gat", "heads": 2, "hidden": 8, "dropout": 0.4, "epochs": 8}
    whole = train(graph, **settings, device="cuda", out=tmp_path / "whole")
    count = iter(range(100))
    train(graph, **settings, device="cuda", out=tmp_path / "parts", stop=lambda: next(count) == 3)
    rest = train(graph, **settings, device="cuda", out=tmp_path / "parts", resume=True)
    assert rest.epochs == whole.epochs
    for a, b in zip(whole.model.state_dict().values(), rest.model.state_dict().values()):
        assert torch.equal(a, b)
