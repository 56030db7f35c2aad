"""What weft leaves beside graphs, parts and runs and reads again: files to damage, and their readers."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from foreign_folders import npz, run, shards, small_graph
from plan_machine import machine

import weft
import weft.machine
from weft.cli.elastic import SPAN
from weft.config import make_recipe
from weft.errors import FormatError
from weft.graph.known import Known
from weft.pipeline.flatten.assemble import ABOUT, part_name
from weft.pipeline.flatten.flattening import PLAN, flatten
from weft.plan.machine import keep_machine, read_machine
from weft.strategies.tensor_workers.frames import Frame, decoded, encoded
from weft.tasks.base import Task
from weft.tasks.choose import TaskChoice
from weft.train.launch import run_recipe
from weft.train.trainer import Place
from weft.train.workers.placed import DEAL, dealt_in
from weft.train.workers.run_parts import facts_of

LINKS = {"name": "link_prediction", "width": 3, "negatives": {"exclude": "known"}}
WALKS = {"name": "unsupervised", "width": 3}


@contextmanager
def cache_at(folder: Path) -> Iterator[None]:
    """Let a folder be the user's cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


def measured(path: Path) -> Path:
    """Write the rates of this machine where a user's cache has them."""
    cores = weft.machine.usable_cores()
    with cache_at(path / "cache"):
        keep_machine(replace(machine(), cores=cores, threads=cores))
    return path / "cache"


def read_measured(path: Path) -> None:
    """Read the rates, and reckon with them as a plan does."""
    with cache_at(path):
        found = read_machine()
    if found is not None:
        found.room(2)
        found.base_bytes(2)
        found.dollars(1.0, 2)
        found.taking_turns([found.rate("edges", 2) + found.start_seconds] * 2)


def task_files(path: Path) -> Path:
    """Write what tasks leave beside the parts of a graph, a folder for each."""
    for name, options in (("links", LINKS), ("walks", WALKS)):
        (path / "beside" / name).mkdir(parents=True)
        for file, content in _prepared(options).files().items():
            (path / "beside" / name / file).write_bytes(content)
    return path / "beside"


def read_task_files(path: Path) -> None:
    """Read them as a worker does."""
    for name, options in (("links", LINKS), ("walks", WALKS)):
        task = TaskChoice.of(options).make(small_graph())
        task.read(path / name)
        task.training_pairs()


def _prepared(options: dict[str, object]) -> Task:
    graph = small_graph()
    task = TaskChoice.of(options).make(graph)
    task.hides(False)
    task.prepared(graph)
    return task


def known_links(path: Path) -> Path:
    """Write links that are known."""
    Known.of(small_graph()).save(path / "known.npy")
    return path / "known.npy"


def read_known_links(path: Path) -> None:
    """Look links up."""
    Known.map(path).hits(torch.tensor([0, 1]), torch.tensor([2, 3]))


def dealt_parts(path: Path) -> Path:
    """Write parts with who holds them, and facts of the whole graph."""
    parts = shards(path)
    (parts / DEAL).write_text(json.dumps({"workers": 2, "part_rank": [1, 0]}))
    facts = {"num_nodes": 12, "num_edges": 40, "features": {"node": {"columns": 3}}}
    (parts / "graph.json").write_text(json.dumps(facts))
    return parts


def read_dealt_parts(path: Path) -> None:
    """Read both."""
    dealt_in(path, 2)
    facts_of(path)


def frame(path: Path) -> Path:
    """Write what a tensor worker is sent."""
    rows = [torch.ones(3, 2), torch.zeros(0, 4), torch.arange(5)]
    (path / "frame.bin").write_bytes(encoded(Frame("task", 7, "product", ["w@1"], rows)))
    return path / "frame.bin"


def read_frame(path: Path) -> None:
    """Read it; one that is cut short is a connection that ended."""
    try:
        decoded(path.read_bytes())
    except ConnectionError:
        raise FormatError("the other end is closed") from None


def span(path: Path) -> Path:
    """Write what the folder of an elastic run has, where its launcher was killed."""
    (path / "e").mkdir()
    (path / "e" / SPAN).write_text(json.dumps({"least": 1, "most": 3, "parts": 3}))
    return path / "e"


def told_run(path: Path) -> Path:
    """Train for two epochs, with the notes that plans, links and elastic workers leave in a run's folder."""
    folder = run(path)
    phases = {"forward": 0.1, "backward": 0.2}
    forecast = {
        "bytes_per_epoch": 10,
        "messages_per_epoch": 2,
        "peak_memory_bytes": 5,
        "evaluation_seconds": 1,
    }
    (folder / "forecast.json").write_text(json.dumps({**forecast, "seconds_by_phase": phases}))
    (folder / "links.json").write_text(json.dumps({"bytes_a_second": [[0, 1e9], [1e9, 0]]}))
    move = {"generation": 2, "moved": {"0": 1}, "seconds": 0.1, "workers": 2, "why": "slow", "at": 1.0}
    for name in ("moves.jsonl", "growth.jsonl"):
        (folder / name).write_text(json.dumps(move) + "\n")
    return folder


def bucket_run(path: Path) -> Path:
    """Train learned rows in buckets for two epochs."""
    negatives = {"count": 4}
    strategy = {"name": "buckets", "batch": 20, "chunk": 10, "partitions": 3, "buffer": 2}
    recipe = make_recipe(
        {
            "data": {"path": str(npz(path))},
            "task": {"name": "link_prediction", "width": 2, "score": "distmult", "loss": "softmax"},
            "strategy": {**strategy, "negatives": negatives},
            "train": {"optimizer": "adagrad", "epochs": 2},
        }
    )
    run_recipe(recipe, Place(out=path / "r"))
    return path / "r"


def flattened_halfway(path: Path) -> Path:
    """Write a graph, and beside the records that are not there yet what a killed `weft flatten` had done."""
    (path / "f").mkdir()
    small_graph().save(path / "f" / "g")
    work = path / "f" / ".r.work"
    kept: list[str] = []

    def keep(_: str) -> None:
        if (work / part_name(0)).exists() and not kept:
            kept.extend(sorted(each.name for each in work.iterdir()))
            shutil.copytree(work, path / "killed")

    flatten(path / "f" / "g", path / "f" / "r", fanout=[3, 2], say=keep)
    assert {PLAN, ABOUT, part_name(0)} <= {*kept}
    shutil.rmtree(path / "f" / "r")
    shutil.move(path / "killed", work)
    return path / "f"


def asked_ids(path: Path) -> Path:
    """Write files of ids, as users ask for predictions with them."""
    (path / "q").mkdir()
    ids = {"id": np.arange(4)}
    ends = {"source": np.arange(3), "target": np.arange(3) + 4}
    for name, columns in (("ids", ids), ("pairs", ends)):
        pq.write_table(pa.table(columns), path / "q" / f"{name}.parquet")
        rows = zip(*columns.values())
        text = "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)])
        (path / "q" / f"{name}.csv").write_text(text + "\n")
    return path / "q"


def parquet_tables(path: Path) -> Path:
    """Write tables of nodes and edges in Parquet."""
    (path / "t").mkdir()
    people = {"id": ["ann", "bob", "cec"], "age": [1.5, 0.0, 2.0], "words": [[0.5, 1.0]] * 3}
    pq.write_table(pa.table(people), path / "t" / "people.parquet")
    pq.write_table(pa.table({"src": ["ann", "cec"], "dst": ["cec", "bob"]}), path / "t" / "knows.parquet")
    return path / "t"
