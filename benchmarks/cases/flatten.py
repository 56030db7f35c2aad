"""Flattening: targets a second, and how often each node is copied, against the fanout."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import weft
from benchmarks.graphs import real, tiny
from benchmarks.measure import Study

TARGETS = 20_000
FANOUTS = ([5], [15], [5, 5], [15, 10], [15, 10, 5])
WIDTH = 128


def graphs() -> Iterator[tuple[str, weft.Graph]]:
    """Give the graphs, with labels on the nodes that are targets."""
    draw = np.random.default_rng(0)
    for name in ("pubmed", "wordnet30", "web_google"):
        if tiny() and name != "pubmed":
            continue
        graph = real(name)
        count = 200 if tiny() else min(TARGETS, graph.num_nodes)
        mask = np.zeros(graph.num_nodes, dtype=bool)
        mask[draw.choice(graph.num_nodes, count, replace=False)] = True
        drop: dict[str, Any] = {"x": None, "val_mask": None, "test_mask": None}
        y = np.zeros(graph.num_nodes, dtype=np.int64)
        yield name, graph.with_data(y=y, train_mask=mask, **drop)


def rows() -> Iterator[str]:
    """Give a row for each graph and fanout."""
    from weft.pipeline.flatten.flattening import flatten

    yield (
        "| graph | fanout | targets | nodes a record | edges a record | targets/s | times each node is "
        f"copied, all nodes as targets | bytes a record | with {WIDTH} features by value |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory(prefix="weft-flatten-") as held:
        folder = Path(held)
        for name, graph in graphs():
            graph.save(folder / name)
            for fanout in FANOUTS:
                start = time.perf_counter()
                made = flatten(
                    folder / name, folder / "records", fanout=fanout, memory="4GB", limit=None, overwrite=True
                )
                seconds = time.perf_counter() - start
                each = {key: made[key] / made["records"] for key in ("nodes", "edges", "bytes")}
                yield (
                    f"| {name} | {', '.join(map(str, fanout))} | {made['records']:,} | {each['nodes']:.1f} "
                    f"| {each['edges']:.1f} | {made['records'] / seconds:,.0f} | {each['nodes']:.1f} "
                    f"| {each['bytes']:,.0f} | {each['bytes'] + 4 * WIDTH * each['nodes']:,.0f} |"
                )


CASES = [
    Study(
        "flatten",
        "weft flatten: records of sampled neighbourhoods, against the fanout",
        rows,
        note="DuckDB, all steps from reading the graph folder to the renamed folder of records. With every "
        "node as a target, a node is copied as often as a record has nodes. By value: float32, as it is.",
    )
]
