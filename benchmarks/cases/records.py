"""Training from records: how much of reading and putting together is hidden behind the model."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.graphs import communities, tiny
from benchmarks.measure import Study
from weft.format import checked_bytes
from weft.layers.stack import Stack
from weft.pipeline.flatten.flattening import flatten
from weft.strategies.records.record_loader import RecordFiles
from weft.strategies.records.records import RecordTraining

FANOUT = (15, 10)
EPOCHS = 3
EXPOSED = 0.10


def rows() -> Iterator[str]:
    """Give a row for each number of threads that read ahead."""
    graph = communities(100_000, 1_000_000, features=128)
    counts = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges"
    yield f"| {counts} | epoch | reading | waited | share (< {EXPOSED:.0%}) |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory(prefix="weft-records-") as held:
        folder = Path(held)
        graph.save(folder / "graph")
        flatten(folder / "graph", folder / "records", fanout=FANOUT, limit=None)
        for threads in (0, 1, 2):
            torch.manual_seed(0)
            model = Stack(graph.x.shape[1], graph.num_classes, layer="sage", layers=2, hidden=256)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
            strategy = RecordTraining(
                graph, records=str(folder / "records"), batch_size=1024, prepare=threads, seed=0
            )
            strategy.epoch(model, optimizer)  # warms up, and reads the files once
            told = []
            for _ in range(EPOCHS):
                strategy.epoch(model, optimizer)
                told.append(strategy.batching.epoch_fields()["batches"]["seconds"])
            strategy.close()
            yield _row(threads, told)


def _row(threads: int, told: list[dict[str, float]]) -> str:
    middle = {name: sorted(each[name] for each in told)[len(told) // 2] for name in told[0]}
    epoch = middle["wait"] + middle["compute"]
    name = "read when asked for" if threads == 0 else f"{threads} reading ahead"
    share = f"{middle['wait'] / epoch:.1%}"
    return f"| {name} | {epoch:.2f} s | {middle['prepare']:.2f} s | {middle['wait']:.2f} s | {share} |"


def checksums() -> Iterator[str]:
    """Give a row for records with features by reference and by value: what comparing checksums costs."""
    nodes = 5_000 if tiny() else 100_000
    graph = communities(nodes, 10 * nodes, features=128)
    yield f"| {graph.num_nodes:,} nodes, {graph.num_edges:,} edges | files | read | of it checksums | share |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory(prefix="weft-records-") as held:
        folder = Path(held)
        graph.save(folder / "graph")
        for features in ("reference", "value"):
            flatten(folder / "graph", folder / features, fanout=FANOUT, features=features, limit=None)  # type: ignore[arg-type]
            files = RecordFiles.open(folder / features)
            read, checked = [], []
            for _ in range(1 + EPOCHS):  # the first warms up
                began = time.perf_counter()
                for part, size in enumerate(files.sizes):
                    files.read(part, 0, size)
                between = time.perf_counter()
                for name in files.entries:
                    checked_bytes(files.folder, name, files.entries)
                read.append(between - began)
                checked.append(time.perf_counter() - between)
            whole, part_of_it = statistics.median(read[1:]), statistics.median(checked[1:])
            size = sum(entry["bytes"] for entry in files.entries.values())
            told = f"| features by {features} | {size / 2**20:.1f} MiB | {whole:.3f} s "
            yield f"{told}| {part_of_it:.3f} s | {part_of_it / whole:.1%} |"


CASES = [
    Study(
        "records_checksums",
        "reading all files of records, each compared with its SHA-256",
        checksums,
        note="Median of three, files in the page cache. Checksums: reading the bytes and hashing them, which "
        "is part of the time before.",
    ),
    Study(
        "records_training",
        f"training from records, GraphSAGE of 2 layers, 256 wide, fanout {FANOUT}, batch 1,024",
        rows,
        note="Reading is the time of all threads together: files, joining what records share, features, "
        "labels. Waited is what the model did not hide of it. Median of three epochs after the first.",
    ),
]
