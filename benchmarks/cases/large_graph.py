"""A graph of 28 million nodes and 400 million edges on one small machine: tables to predictions.

A quarter of ogbn-papers100M, with features of the same kind: 128 numbers a node, here in half precision.
Every step is a command as a user gives it, in a process of its own; the memory of that process and of all it
starts is looked at ten times a second.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.graphs import tiny
from benchmarks.measure import Study, load_average
from weft.events import read_events

NODES, EDGES, FEATURES, CLASSES = 28_000_000, 400_000_000, 128, 16
PAPERS = {"nodes": 111_059_956, "edges": 1_615_685_872, "features": 128, "classes": 172}
"""ogbn-papers100M, which the forecast is for."""
PARTS = 16
LIMIT = 6 * 2**30
NEAR = 2_000
"""Most edges join nodes at most so far apart, as papers of one field and year are."""
_NODES_AT_ONCE, _EDGES_AT_ONCE, _FILE = 1 << 18, 1 << 21, 16


@dataclass(frozen=True)
class Size:
    """How large the graph is."""

    nodes: int
    edges: int

    @staticmethod
    def of(share: int) -> "Size":
        """Return the size of so small a share of the graph; far less where inputs are tiny."""
        share = 4_000 if tiny() else share
        return Size(NODES // share, EDGES // share)


# The tables


def write_tables(folder: Path, size: Size, seed: int = 0) -> None:
    """Write nodes and edges as Parquet, some at a time: the same for a seed, whatever the machine."""
    (folder / "nodes").mkdir()
    (folder / "edges").mkdir()
    _write(folder / "nodes", _NODES_AT_ONCE, size.nodes, lambda *some: nodes_between(*some, seed=seed))
    _write(folder / "edges", _EDGES_AT_ONCE, size.edges, lambda *some: edges_between(*some, size, seed=seed))


def nodes_between(first: int, last: int, *, seed: int) -> dict[str, Any]:
    """Return the rows of some nodes: features about the centre of their class, 2 % of them to train on."""
    import pyarrow as pa

    draws = np.random.default_rng([seed, 0, first])
    ids = np.arange(first, last)
    label = ids // NEAR % CLASSES
    centres = np.random.default_rng(seed).standard_normal((CLASSES, FEATURES), dtype=np.float32)
    x = draws.standard_normal((last - first, FEATURES), dtype=np.float32)
    x += centres[label]
    draw = draws.random(last - first)
    split = np.select([draw < 0.02, draw < 0.025, draw < 0.03], ["train", "val", "test"], default="")
    flat = pa.array(x.astype(np.float16).ravel())
    return {
        "id": pa.array(ids),
        "x": pa.FixedSizeListArray.from_arrays(flat, FEATURES),
        "y": pa.array(label),
        "split": pa.array(split, mask=split == ""),
    }


def edges_between(first: int, last: int, size: Size, *, seed: int) -> dict[str, Any]:
    """Return some edges: four of five from a node nearby, the others from nodes of which few are popular."""
    import pyarrow as pa

    draws = np.random.default_rng([seed, 1, first])
    count = last - first
    dst = draws.integers(0, size.nodes, count)
    near = (dst + draws.integers(-NEAR // 2, NEAR // 2, count)) % size.nodes
    popular = (size.nodes * draws.random(count) ** 3).astype(np.int64) * 7919 % size.nodes
    return {"src": pa.array(np.where(draws.random(count) < 0.8, near, popular)), "dst": pa.array(dst)}


def _write(folder: Path, at_once: int, count: int, rows: Callable[[int, int], dict[str, Any]]) -> None:
    """Write rows 0 … count − 1, so many a row group and 16 row groups a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, begin in enumerate(range(0, count, at_once * _FILE)):
        writer = None
        for first in range(begin, min(begin + at_once * _FILE, count), at_once):
            table = pa.table(rows(first, min(first + at_once, count)))
            if writer is None:
                path = folder / f"{number:04d}.parquet"
                writer = pq.ParquetWriter(path, table.schema, compression="snappy", use_dictionary=["split"])
            writer.write_table(table, row_group_size=at_once // 8)
        assert writer is not None, "there is a row group in every file"
        writer.close()


# The steps

RECIPE = """
[data]
path = "{graph}"
symmetrise = false

[model]
name = "sage"
layers = 2
hidden = 64

[strategy]
name = "sampled"
fanout = [10, 5]
batch_size = 1024
evaluate = [10, 5]

[train]
epochs = {epochs}
eval_every = {epochs}
lr = 0.003
"""


@dataclass
class Watched:
    """A command that ended, and what it took."""

    seconds: float = 0.0
    own: int = 0
    """Most bytes that only this program had, of all its processes at one moment."""
    resident: int = 0
    """Most bytes with pages of files among them, which the system takes back where it needs them."""
    output: str = ""
    done: threading.Event = field(default_factory=threading.Event)


def watched(*command: str, temporary: Path) -> Watched:
    """Run `weft` with arguments to its end and return what it took."""
    found = Watched()
    environment = {**os.environ, "TMPDIR": str(temporary), "OMP_WAIT_POLICY": "passive"}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "weft", *command], stdout=output, stderr=said, env=environment
        )
        looker = threading.Thread(target=_look, args=(process.pid, found))
        looker.start()
        process.wait()
        found.seconds = time.perf_counter() - began
        found.done.set()
        looker.join()
        output.seek(0)
        said.seek(0)
        found.output = output.read().decode()
        if process.returncode:
            raise RuntimeError(f"weft {' '.join(command)}: {said.read().decode()[-2000:]}")
    return found


def _look(root: int, found: Watched) -> None:
    while not found.done.wait(0.1):
        held = [_memory(process) for process in _family(root)]
        found.own = max(found.own, sum(own for own, _ in held))
        found.resident = max(found.resident, sum(all_of_it for _, all_of_it in held))


def _family(root: int) -> list[int]:
    """Return a process and all that it started, as far as they are there."""
    family = [root]
    for process in family:
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                family += map(int, (task / "children").read_text().split())
        except OSError:  # it has ended
            continue
    return family


def _memory(process: int) -> tuple[int, int]:
    """Return the bytes that a process has for itself, and those with pages of files; zeros once it ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    held = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss")}
    own = held.get("RssAnon", 0) + held.get("RssShmem", 0)
    return own, own + held.get("RssFile", 0)


def steps(folder: Path, size: Size) -> Iterator[tuple[str, str, Watched]]:
    """Give each step by name, with what it does a second, when it has ended."""
    graph, parts, run = (str(folder / name) for name in ("graph", "parts", "run"))
    temporary = folder / "temporary"
    temporary.mkdir()

    def step(*command: str) -> Watched:
        return watched(*command, temporary=temporary)

    tables = [f"nodes={folder}/nodes", f"edges={folder}/edges"]
    made = step("ingest", *tables, "--out", graph, "--memory", "4GiB", "--json")
    assert json.loads(made.output)["num_edges"] == size.edges
    _expect_halves(folder / "graph")
    yield "`weft ingest`, Parquet to a folder", f"{size.edges / made.seconds:,.0f} edges", made
    cut = ("--parts", str(PARTS), "--name", "ldg", "--set", "data.symmetrise=false", "--out", parts)
    made = step("partition", graph, *cut, "--json")
    share = json.loads(made.output)["cut_share"]
    yield (
        f"`weft partition --name ldg`, {PARTS} parts, {share:.0%} of edges cut",
        f"{size.edges / made.seconds:,.0f} edges",
        made,
    )
    epochs = 20 if tiny() else 1
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(graph=graph, epochs=epochs))
    made = step("train", str(recipe), "--out", run, "--json")
    told = json.loads(made.output)
    seeds = _seeds(folder / "run")
    yield (
        f"`weft train`, sampled, {seeds:,} seeds, test accuracy {told['test_accuracy']:.2f}",
        f"{seeds / told['epoch_seconds_median']:,.0f} seeds",
        made,
    )
    answers = str(folder / "predictions")
    made = step("infer", run, "--graph", graph, "--memory", "1GiB", "--out", answers, "--json")
    yield "`weft infer`, every node, all edges", f"{size.nodes / made.seconds:,.0f} nodes", made


def forecast(told: str) -> Iterator[str]:
    """Give the row of training as it is forecast for the full size, by its statistics alone."""
    import weft

    recipe = tomllib.loads(RECIPE.format(graph="", epochs=1))
    size = {key: PAPERS[key] // (4_000 if tiny() else 1) for key in ("nodes", "edges")}
    size |= {key: PAPERS[key] for key in ("features", "classes")}
    options = {name: held for name, held in recipe.items() if name != "data"}
    (found,) = weft.plan(options, workers=(1,), only=("sampled",), **size).configurations
    # A plan of statistics trains on as many of the nodes as the graphs that stand for it do.
    stands_for = weft.datasets.open_dataset(name="community", nodes=4_000)
    share = len(stands_for.seeds()) / stands_for.num_nodes
    rate = share * size["nodes"] / found.epoch_seconds
    yield (
        f"| forecast of {told}, {size['nodes']:,} nodes, {size['edges']:,} edges, features in memory: "
        f"training, sampled | | {rate:,.0f} seeds | {found.peak_memory_bytes / 2**30:.0f} GiB | |"
    )


def _seeds(run: Path) -> int:
    """Return how many nodes a run trained on."""
    told = next(event for event in read_events(run) if event["event"] == "graph")
    return int(told["split"]["train"])


def _expect_halves(graph: Path) -> None:
    """Raise unless the features lie there as they were written."""
    entries = json.loads((graph / "manifest.json").read_text())["meta"]["node_data"]
    (x,) = [entry for entry in entries if entry["name"] == "x"]
    assert x["dtype"] == "float16", x


def rows(share: int) -> Callable[[], Iterator[str]]:
    """Return what gives the rows of a graph of this share."""

    def measured() -> Iterator[str]:
        size = Size.of(share)
        yield (
            f"| {size.nodes:,} nodes, {size.edges:,} edges, {FEATURES} features | seconds | a second "
            f"| own memory, at most | with pages of files |"
        )
        yield "|---|---|---|---|---|"
        with tempfile.TemporaryDirectory(prefix="weft-large-") as held:
            began = time.perf_counter()
            code = f"from benchmarks.cases.large_graph import *; write_tables(Path({held!r}), {size!r})"
            subprocess.run([sys.executable, "-c", code], check=True)
            yield f"| tables written | {time.perf_counter() - began:.0f} | | | |"
            before = load_average()
            for name, rate, made in steps(Path(held), size):
                yield (
                    f"| {name} | {made.seconds:.0f} | {rate} | {made.own / 2**30:.2f} GiB "
                    f"| {made.resident / 2**30:.2f} GiB |"
                )
            yield from forecast("ogbn-papers100M by `weft plan`")
            yield f"| processes that wanted a core | {before:.0f}, at the end {load_average():.0f} | | | |"

    return measured


NOTE = """Each step is a process of its own, run once; seconds are those of the whole command, rates of
training those of an epoch. Own memory is what the command and all it starts have for themselves; pages of
files that they have mapped are beside it, which the system takes back where it needs memory. The forecast is
of a graph of which only statistics are known, whose features lie in memory as float32: what the steps above
bound is not bounded there. Features are
float16 in the tables, in the folder and in the parts, and widened a batch at a time."""

CASES = [
    Study(f"large_graph{name}", f"Tables to predictions, {told} of ogbn-papers100M", rows(share), note=NOTE)
    for name, told, share in (
        ("", "a quarter", 1),
        ("_tenth", "a fortieth", 10),
        ("_fortieth", "a 160th", 40),
    )
]
