"""Spark for real: executors that are killed, tasks that hang, a driver that dies; equal records or none."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from spark import GROUP, skip_without_spark
from spark_cluster import Cluster, cluster, command, descendants, kill_group, wait_for

import weft
from weft.pipeline.flatten.flattening import flatten
from weft.pipeline.record_hops import read_records

pytestmark = [pytest.mark.slow, GROUP, pytest.mark.timeout(900)]
OPTIONS = ["--fanout", "8,6", "--targets", "labelled", "--weight", "weight", "--hub", "300"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with hubs, and its records as DuckDB makes them beside it."""
    folder = tmp_path_factory.mktemp("graph")
    draw = np.random.default_rng(0)
    src = draw.integers(0, 4_000, 40_000)
    dst = (draw.random(40_000) ** 4 * 4_000).astype(np.int64)
    y = np.where(np.arange(4_000) < 1_500, np.arange(4_000) % 3, -1)
    weft.Graph.from_edges(
        np.stack([src, dst]), num_nodes=4_000, y=y, edge_weight=draw.random(40_000).astype(np.float32)
    ).save(folder / "graph")
    flatten(folder / "graph", folder / "wanted", fanout=[8, 6], targets="labelled", weight="weight")
    return folder


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    skip_without_spark()
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def start(running: Cluster, graph: Path, out: Path, *words: str) -> "subprocess.Popen[str]":
    """Start a flatten on the cluster."""
    line = [sys.executable, "-m", "weft", "flatten", str(graph / "graph"), *OPTIONS, "--out", str(out)]
    line += ["--engine", "spark", "--master", running.url, "--memory", "512MB", *words]
    running.drivers.append(subprocess.Popen(line, stderr=subprocess.PIPE, text=True, start_new_session=True))
    return running.drivers[-1]


def lines_of(process: "subprocess.Popen[str]") -> list[str]:
    """Return a list that fills with what a process tells."""
    lines: list[str] = []
    told = process.stderr
    assert told is not None
    threading.Thread(target=lambda: lines.extend(iter(told.readline, "")), daemon=True).start()
    return lines


def work_of(out: Path) -> Path:
    return out.parent / f".{out.name}.work"


def check_same(graph: Path, out: Path) -> None:
    assert read_records(out).equals(read_records(graph / "wanted"))
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def tables(out: Path) -> set[str]:
    """Return the tables that steps are writing or have written."""
    return {path.name.rpartition("-")[0] for path in (work_of(out) / "engine").glob("*-*")}


def test_executors_killed_in_every_stage_change_nothing(
    running: Cluster, graph: Path, tmp_path: Path
) -> None:
    out = tmp_path / "records"
    process = start(running, graph, out)
    lines = lines_of(process)
    killed: set[str] = set()
    end = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < end:
        new = tables(out) - killed
        executors = running.executors()
        if new and len(executors) > 1:  # each step begins with a new table; the other executor is left
            killed |= new
            os.kill(executors[0], signal.SIGKILL)
        time.sleep(0.02)
    assert process.wait(10) == 0, "".join(lines)[-3000:]
    assert {"edges", "shards", "numbered", "found_0", "pairs", "written"} <= killed
    check_same(graph, out)


def test_a_task_that_hangs_is_run_again_elsewhere_and_counts_once(
    running: Cluster, graph: Path, tmp_path: Path
) -> None:
    out = tmp_path / "records"
    speculation = (
        "spark.speculation=true",
        "spark.speculation.quantile=0.1",
        "spark.speculation.interval=50ms",
        "spark.speculation.task.duration.threshold=2s",  # of stages with too few tasks to compare them
    )
    before = running.logs()
    process = start(running, graph, out, *(word for one in speculation for word in ("--conf", one)))
    lines = lines_of(process)
    wait_for(lambda: "found_0" in tables(out) or process.poll() is not None, "the first hop")
    slow = running.executors()[0]
    os.kill(slow, signal.SIGSTOP)
    try:
        # nothing failed: only a task that takes too long is run again
        wait_for(lambda: running.ran_twice(before), "a task that hangs is started a second time", 90)
    finally:
        os.kill(slow, signal.SIGCONT)
    assert process.wait(600) == 0, "".join(lines)[-3000:]
    check_same(graph, out)


def test_a_driver_that_dies_leaves_nothing_visible_and_the_next_continues(
    running: Cluster, graph: Path, tmp_path: Path
) -> None:
    out = tmp_path / "records"
    process = start(running, graph, out)
    lines_of(process)
    wait_for(lambda: any(work_of(out).glob("part-*.parquet")) or process.poll() is not None, "a file", 600)
    java = [pid for pid in descendants(process.pid) if "java" in command(pid)]
    kill_group(process)
    assert not out.exists()
    wait_for(lambda: not running.executors(), "executors end with their driver")
    assert not any(os.path.exists(f"/proc/{pid}") and "java" in command(pid) for pid in java)
    again = start(running, graph, out)
    lines = lines_of(again)
    assert again.wait(600) == 0, "".join(lines)[-3000:]
    check_same(graph, out)
