"""Training on a GPU gives the numbers of the CPU, to rounding: draws are counters and know no device."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.errors import RecipeError
from weft.train.launch import train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        os.environ.get("WEFT_TEST_DEVICE") != "cuda", reason="needs a GPU; run by `make test-gpu`"
    ),
]

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
STRATEGIES: list[dict[str, Any]] = [
    {"name": "sampled", "fanout": [4, 3], "batch_size": 50},
    {"name": "sampled", "fanout": [4, 3], "batch_size": 50, "sample_on": "cpu"},
    {"name": "sampled", "fanout": [4, 3], "batch_size": 50, "evaluate": [5, 5], "prepare": 0},
    {"name": "sampled", "fanout": [4, 3], "batch_size": 50, "sampler": "labor"},
    {"name": "sampled", "fanout": [4, 3], "batch_size": 50, "store": {"name": "cached", "capacity": 0.3}},
    {"name": "sampled", "fanout": -1, "batch_size": 70, "sampler": {"resample": "step"}},
    {"name": "clustered", "clusters": 6, "together": 2, "partitioner": "hash"},
    {"name": "saint", "size": 40},
    {"name": "single", "activation": "offload", "memory": "2GiB"},
    {"name": "halo", "parts": 3, "partitioner": "hash"},
    {"name": "sequential", "parts": 3, "partitioner": "hash"},
]


def losses(graph: weft.Graph, folder: Path, device: str, **settings: Any) -> list[float]:
    given = {"hidden": 8, "epochs": 10, "lr": 0.01, **settings}
    train(graph, **given, device=device, out=folder / device)
    return [event["loss"] for event in weft.read_events(folder / device) if event["event"] == "epoch"]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_losses_are_those_of_the_cpu(graph: weft.Graph, tmp_path: Path, settings: dict[str, Any]) -> None:
    ours, theirs = (losses(graph, tmp_path, device, **settings) for device in ("cuda", "cpu"))
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_strategies_give_the_losses_of_the_cpu(
    graph: weft.Graph, tmp_path: Path, strategy: dict[str, Any]
) -> None:
    for model, options in (("sage", {"dropout": 0.3}), ("gat", {"heads": 2, "attention_dropout": 0.3})):
        there, here = (
            losses(
                graph,
                tmp_path / model,
                device,
                model=model,
                strategy=_for(strategy, device),
                epochs=4,
                **options,
            )
            for device in ("cuda", "cpu")
        )
        assert there == pytest.approx(here, rel=2e-3)


def _for(strategy: dict[str, Any], device: str) -> dict[str, Any]:
    only = ("sample_on",) if device == "cpu" else ()
    return {name: value for name, value in strategy.items() if name not in only}


def test_relations_are_sampled_on_the_cpu_for_the_gpu(graph: weft.Graph, tmp_path: Path) -> None:
    masks = {name: getattr(graph, name) for name in ("train_mask", "val_mask", "test_mask")}
    kinds = torch.arange(graph.num_edges) % 3
    typed = weft.Graph.from_edges(graph.edge_index, x=graph.x, y=graph.y, edge_type=kinds, **masks)
    strategy = {"name": "sampled", "fanout": [4, 3], "batch_size": 50}
    there, here = (
        losses(typed, tmp_path, device, model="rgcn", strategy=strategy, epochs=4)
        for device in ("cuda", "cpu")
    )
    assert there == pytest.approx(here, rel=2e-3)
    with pytest.raises(RecipeError, match="several node or edge types are sampled on the CPU"):
        train(typed, "rgcn", device="cuda", strategy={**strategy, "sample_on": "gpu"})


def test_a_sampled_run_on_the_gpu_continues_bit_for_bit(graph: weft.Graph, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": "sage", "hidden": 8, "dropout": 0.4, "epochs": 4, "device": "cuda"}
    settings["strategy"] = {"name": "sampled", "fanout": [4, 3], "batch_size": 30}
    whole = train(graph, **settings, out=tmp_path / "whole")
    count = iter(range(100))
    train(graph, **settings, out=tmp_path / "parts", stop=lambda: next(count) == 7)
    rest = train(graph, **settings, out=tmp_path / "parts", resume=True)
    assert rest.epochs == whole.epochs
    for a, b in zip(whole.model.state_dict().values(), rest.model.state_dict().values()):
        assert torch.equal(a, b)


def test_offload_stays_within_its_memory() -> None:
    data: dict[str, Any] = {"nodes": 40_000, "degree": 20, "classes": 5, "features": 64, "seed": 1}
    graph = weft.datasets.open_dataset(name="community", **data)
    given: dict[str, Any] = {"hidden": 256, "layers": 3, "heads": 4, "epochs": 2, "device": "cuda"}
    limit = 500 << 20
    part = peak_of(graph, **given, strategy={"activation": "offload", "memory": limit})
    whole = peak_of(graph, **given)
    assert part[0] <= limit < whole[0]
    assert part[1] == pytest.approx(whole[1], rel=1e-3)


def peak_of(graph: weft.Graph, **given: Any) -> tuple[int, float]:
    """Return the peak of the GPU's memory in a run, and its loss."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    loss = train(graph, "gat", **given).loss
    return torch.cuda.max_memory_allocated(), loss


def test_too_little_memory_is_told_before_the_run(graph: weft.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.train.needs.free_bytes", lambda device: 10_000)
    with pytest.raises(
        RecipeError, match=r"takes at least .* of GPU memory, .* 'offload' about .*sampled about"
    ):
        train(graph, "sage", hidden=64, device="cuda")


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
