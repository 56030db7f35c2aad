"""Run folders made by hand, in the shape that training writes them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_run(
    folder: Path, meta: Mapping[str, Any] | None, events: Iterable[Mapping[str, Any]] | None
) -> Path:
    """Write run.json and events.jsonl; None leaves that file out."""
    folder.mkdir(parents=True, exist_ok=True)
    if meta is not None:
        (folder / "run.json").write_text(json.dumps(meta))
    if events is not None:
        (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def meta(**changes: Any) -> dict[str, Any]:
    """A run.json of a finished run."""
    held: dict[str, Any] = {
        "status": "done",
        "command": "weft train --set data.path=cora.npz --set model.name=gcn",
        "recipe": {
            "data": {"path": "../shared/data/cora.npz"},
            "model": {"name": "gcn", "layers": 2, "hidden": 16, "dropout": 0.5, "norm": None},
            "strategy": {"name": "single"},
            "train": {
                "epochs": 200,
                "lr": 0.01,
                "weight_decay": 5e-4,
                "seed": 0,
                "device": "cpu",
                "optimizer": "adam",
            },
        },
        "versions": {"weft": "0.1.0", "torch": "2.13.0", "numpy": "2.3.1", "python": "3.11.2"},
        "machine": {"processor": "x86_64", "cpus": 2, "native_core": True, "cpu_features": "avx2"},
        "summary": {
            "test_accuracy": 0.8154,
            "val_accuracy": 0.7932,
            "loss": 0.3312,
            "epochs": 200,
            "best_epoch": 120,
            "epoch_seconds_median": 0.0123,
            "seconds": 3.456,
            "peak_memory_bytes": 345 * 2**20,
            "strategy": "single",
            "workers": 1,
        },
    }
    return {**held, **changes}


def graph_event(**changes: Any) -> dict[str, Any]:
    """A graph event of a plain graph."""
    degree = {"mean": 3.898, "median": 3, "p90": 7, "p99": 18, "max": 168, "zero": 3}
    histogram = [[0, 3], [1, 485], [2, 1136], [4, 781], [8, 219], [16, 60], [32, 18], [64, 5], [128, 1]]
    held: dict[str, Any] = {
        "time": 0.02,
        "event": "graph",
        "num_nodes": 2708,
        "num_edges": 10556,
        "node_types": {"node": 2708},
        "edge_types": {"node/edge/node": 10556},
        "features": {"node": {"columns": 1433, "sparse": True, "stored_values": 49216, "dtype": "float32"}},
        "edge_data": {},
        "num_classes": 7,
        "multilabel": False,
        "split": {"train": 140, "val": 500, "test": 1000},
        "class_counts": [351, 217, 418, 818, 426, 298, 180],
        "isolated_nodes": 3,
        "self_loops": 0,
        "in_degree": {**degree, "histogram": histogram},
        "out_degree": {**degree, "histogram": histogram},
    }
    return {**held, **changes}


def epoch_event(
    epoch: int, *, num_epochs: int = 200, metrics: Iterable[str] = ("accuracy",), test: bool = True
) -> dict[str, Any]:
    """One epoch of a curve that looks like training."""
    noise = random.Random(epoch)
    done = epoch / max(1, num_epochs)
    reached = 1 - math.exp(-7 * done)
    limits = {"train": 0.985, "val": 0.793, "test": 0.815} if test else {"train": 0.985, "val": 0.793}
    scores = {
        split: {
            name: min(1.0, 0.14 + (limit - 0.14 - 0.05 * i) * reached + noise.gauss(0, 0.006))
            for i, name in enumerate(metrics)
        }
        for split, limit in limits.items()
    }
    slow = 9.0 if epoch == 1 else 1.0
    seconds = {"forward": 0.0041, "backward": 0.0062, "optimizer": 0.0008, "evaluate": 0.0029}
    return {
        "time": 0.1 + 0.0140 * epoch,
        "event": "epoch",
        "epoch": epoch,
        "loss": 1.62 * math.exp(-4 * done) + 0.32 + abs(noise.gauss(0, 0.02)),
        **scores,
        "lr": 0.01,
        "seconds": {name: slow * value * noise.uniform(0.9, 1.15) for name, value in seconds.items()},
        "memory_bytes": int((290 + 50 * reached) * 2**20),
    }


def facts(**changes: Any) -> dict[str, Any]:
    """What a task of classes tells of its targets."""
    sizes = [351, 217, 418, 818, 426, 298, 180]
    balance = {"title": "Class balance", "of": ["class", "classes"], "sizes": sizes}
    return {"tag": [7, "class", "classes"], "size": ["Classes", 7], "balance": balance, **changes}


def events(num_epochs: int = 200, **options: Any) -> list[dict[str, Any]]:
    """All events of a run."""
    begun = {"epochs": num_epochs, "strategy": "single", "workers": 1, "device": "cpu", "parameters": 23063}
    begun |= {"task": "node_classification", "facts": facts()}
    start = [graph_event(), {"time": 0.02, "event": "start", **begun}]
    spans = [{"time": 0.02, "event": "span", "name": "load", "start": 0.001, "seconds": 0.019}]
    epochs = [epoch_event(number, num_epochs=num_epochs, **options) for number in range(1, num_epochs + 1)]
    return [*start, *spans, *epochs, {"time": 0.2 + 0.014 * num_epochs, "event": "end", "summary": {}}]


def traffic_event(epoch: int, rank: int, workers: int) -> dict[str, Any]:
    """What a rank tells of an epoch: halo rows to every other rank, features in the first one."""
    labels = [("halo", 0, "forward", 1000), ("halo", 0, "backward", 1000), ("evaluate", -1, "forward", 300)]
    labels += [("features", -1, "forward", 4096)] if epoch == 1 else []
    peers = [peer for peer in range(workers) if peer != rank]
    names = ("kind", "slot", "direction")
    phases = [["forward", 0.0, 0.03], ["backward", 0.03, 0.05], ["optimizer", 0.08, 0.01]]
    phases += [["evaluate", 0.09, 0.03]]
    held: dict[str, Any] = {
        "time": 0.1 + 0.014 * epoch,
        "event": "traffic",
        "epoch": epoch,
        "rank": rank,
        "seconds_of_phases": {name: seconds for name, _, seconds in phases},
        "peak_memory_bytes": (rank + 1) * 2**20,
        "bytes_sent": sum(size for *_, size in labels) * len(peers),
        "messages": len(labels) * len(peers),
        "exposed_seconds": 0.002 * len(labels),
        "hidden_seconds": 0.001 * len(labels),
        "volumes": [
            {**dict(zip(names, label)), "peer": peer, "bytes_sent": size, "messages_sent": 1}
            for *label, size in labels
            for peer in peers
        ],
        "seconds": [{**dict(zip(names, label)), "exposed": 0.002, "hidden": 0.001} for *label, _ in labels],
        "staleness": {},
        "skipped": 0,
        "made": 0,
    }
    if epoch % 6 < 3:
        held["timeline"] = {"phases": phases, "waits": [["halo", 0.01 + 0.001 * rank, 0.01]]}
    return held


def traffic(num_epochs: int, *, workers: int) -> list[dict[str, Any]]:
    """The traffic of all ranks."""
    return [
        traffic_event(epoch, rank, workers) for epoch in range(1, num_epochs + 1) for rank in range(workers)
    ]


def write_workers(folder: Path, num_epochs: int = 30, *, workers: int = 2, **changes: Any) -> Path:
    """Write the folder of a run with several workers, each of which tells its own traffic."""
    told = traffic(num_epochs, workers=workers)
    held = meta(**changes)
    held["summary"] |= {"workers": workers, "strategy": "halo"}
    write_run(folder, held, [*events(num_epochs), *(event for event in told if event["rank"] == 0)])
    for rank in range(1, workers):
        lines = [json.dumps(event) + "\n" for event in told if event["rank"] == rank]
        (folder / f"events-rank{rank}.jsonl").write_text("".join(lines))
    return folder
