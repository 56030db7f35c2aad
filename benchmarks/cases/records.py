"""Training from records: how much of reading and putting together is hidden behind the model."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.graphs import communities
from benchmarks.measure import Study
from weft.layers.stack import Stack
from weft.pipeline.flatten import flatten
from weft.strategies.records import RecordTraining

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
                told.append(strategy.epoch_fields()["batches"]["seconds"])
            strategy.close()
            yield _row(threads, told)


def _row(threads: int, told: list[dict[str, float]]) -> str:
    middle = {name: sorted(each[name] for each in told)[len(told) // 2] for name in told[0]}
    epoch = middle["wait"] + middle["compute"]
    name = "read when asked for" if threads == 0 else f"{threads} reading ahead"
    share = f"{middle['wait'] / epoch:.1%}"
    return f"| {name} | {epoch:.2f} s | {middle['prepare']:.2f} s | {middle['wait']:.2f} s | {share} |"


CASES = [
    Study(
        "records_training",
        f"training from records, GraphSAGE of 2 layers, 256 wide, fanout {FANOUT}, batch 1,024",
        rows,
        note="Reading is the time of all threads together: files, joining what records share, features, "
        "labels. Waited is what the model did not hide of it. Median of three epochs after the first.",
    )
]
