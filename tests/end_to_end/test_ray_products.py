"""Tensor workers that a real Ray places: one is stopped, one killed, a node is lost, and no bit changes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from weft.comm.elastic.ray_home import children_of
from weft.events import Event, read_events

pytest.importorskip("ray", reason="Ray is not installed: pip install 'weft[ray]'")
import ray_nodes

PATIENCE = 240.0
RECIPE = ["data.name=community", "data.nodes=80", "data.classes=3", "data.features=8", "model.name=sgc"]
RECIPE += [
    "strategy.name=asynchronous",
    "strategy.intervals=2",
    "strategy.staleness=1",
    "train.eval_every=50",
]


def started(out: Path, *words: str, epochs: int) -> "subprocess.Popen[str]":
    given = [f"--set={each}" for each in (*RECIPE, f"train.epochs={epochs}")]
    return subprocess.Popen(
        [sys.executable, "-m", "weft", "train", *given, f"--out={out}", *words],
        env={**os.environ, **ray_nodes.environment(), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(run: "subprocess.Popen[str]") -> str:
    """Return what a run said, which must have ended well."""
    try:
        told, _ = run.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, told
    return told


def epochs_of(out: Path) -> list[Event]:
    return [event for event in read_events(out) if event["event"] == "epoch"]


def losses(out: Path) -> list[float]:
    return [event["loss"] for event in epochs_of(out)]


def tasks(out: Path) -> dict[str, Any]:
    told: dict[str, Any] = epochs_of(out)[-1]["asynchronous"]["workers"][0]["tasks"]
    return told


def actors(below: int) -> list[int]:
    found = []
    for process in children_of(below):
        with suppress(OSError):
            if b"TensorActor" in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(process)
    return found


def until(run: "subprocess.Popen[str]", out: Path, epochs: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while (
        not (out / "events.jsonl").exists()
        or (out / "events.jsonl").read_text().count('"event": "epoch"') < epochs
    ):
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_products_of_nodes_that_come_and_go_have_the_bits_of_processes(tmp_path: Path) -> None:
    expected, out = tmp_path / "processes", tmp_path / "ray"
    ended(started(expected, "--set=strategy.tensor_workers=1", epochs=600))
    with ray_nodes.nodes() as nodes:
        words = (f"--ray-address={nodes.address}", "--engine=ray", "--set=strategy.tensor_workers=2")
        run = started(out, *words, epochs=600)
        until(run, out, 20)
        os.kill(actors(nodes.process.pid)[0], signal.SIGSTOP)
        until(run, out, 60)
        os.kill(actors(nodes.process.pid)[-1], signal.SIGKILL)
        until(run, out, 100)
        nodes.say("kill")
        nodes.say("add")
        ended(run)
    assert losses(out) == losses(expected)
    assert tasks(out)["relaunched"] >= 2
    assert tasks(out)["lost"] >= 2
    assert tasks(out)["joined"] == tasks(expected)["joined"] == 2 * 599


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_worker_has_a_ray_of_its_own_where_none_is_named(tmp_path: Path) -> None:
    expected, out = tmp_path / "processes", tmp_path / "ray"
    ended(started(expected, "--workers=2", "--set=strategy.tensor_workers=1", epochs=300))
    run = started(out, "--workers=2", "--engine=ray", "--set=strategy.tensor_workers=1", epochs=300)
    until(run, out, 1)
    below = children_of(run.pid)
    assert len(actors(run.pid)) == 2
    ended(run)
    assert losses(out) == losses(expected)
    deadline = time.monotonic() + 30
    while (
        left := [each for each in below if Path(f"/proc/{each}").exists()]
    ) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_more_tensor_workers_than_ray_has_room_for_are_refused(tmp_path: Path) -> None:
    with ray_nodes.nodes() as nodes:
        words = (f"--ray-address={nodes.address}", "--engine=ray", "--set=strategy.tensor_workers=3")
        run = started(tmp_path / "run", *words, epochs=5)
        told, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 2, told
    assert "strategy.tensor_workers: 3 for each of 1 workers" in told
    assert "has 2 CPUs" in told
    assert "Traceback" not in told
