"""Ranks that sample for others: a run that loses one, or a trainer, ends everywhere and leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import weft
from weft.cli.main import main
from weft.events import read_events

PATIENCE = 120.0  # for a start on a machine where others work too
DATA = {"name": "community", "nodes": 400, "features": 8, "classes": 3}
SAMPLED = {"name": "sampled", "fanout": [3, 2], "batch_size": 64}


def words(out: Path, *, workers: int, samplers: int) -> list[str]:
    """Return the command of a run that is far too long to end by itself."""
    settings = {f"data.{key}": value for key, value in DATA.items()}
    settings |= {f"strategy.{key}": value for key, value in SAMPLED.items()}
    settings |= {"strategy.samplers": samplers, "model.hidden": 8, "train.epochs": 100_000}
    asked = ["train", f"--out={out}", f"--workers={workers}"]
    return asked + [f"--set={key}={value}" for key, value in settings.items()]


def start(out: Path, *, workers: int, samplers: int) -> "subprocess.Popen[str]":
    """Start the run."""
    command = [sys.executable, "-m", "weft", *words(out, workers=workers, samplers=samplers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "NO_COLOR": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def ranks_of(process: "subprocess.Popen[str]") -> dict[int, int]:
    """Return the process of each rank."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    found = {}
    for pid in children:
        values = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        told = dict(value.split(b"=", 1) for value in values if b"=" in value)
        if b"RANK" in told:
            found[int(told[b"RANK"])] = int(pid)
    return found


def wait_for_epoch(out: Path, process: "subprocess.Popen[str]", epoch: int) -> list[float]:
    """Wait until a run has recorded an epoch, and return the losses so far."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if (out / "events.jsonl").exists():
            losses = [event["loss"] for event in read_events(out) if event["event"] == "epoch"]
            if len(losses) >= epoch:
                return losses
        time.sleep(0.05)
    raise AssertionError(f"epoch {epoch} was not reached in time")


@pytest.mark.parametrize(
    ("workers", "samplers", "guilty"),
    [(2, 1, 1), pytest.param(4, 2, 0, marks=pytest.mark.slow), pytest.param(3, 2, 2, marks=pytest.mark.slow)],
    ids=["the sampler", "a trainer", "one of two samplers"],
)
def test_a_killed_rank_ends_all_and_leaves_nothing(
    tmp_path: Path, workers: int, samplers: int, guilty: int
) -> None:
    before = set(os.listdir("/dev/shm"))
    process = start(tmp_path / "run", workers=workers, samplers=samplers)
    pids: dict[int, int] = {}
    try:
        losses = wait_for_epoch(tmp_path / "run", process, 2)
        pids = ranks_of(process)
        assert sorted(pids) == list(range(workers))
        os.kill(pids[guilty], signal.SIGKILL)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 3, told
        assert f"rank {guilty} was killed by SIGKILL" in told
        assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]
        assert not {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("weft")}
    finally:
        for pid in (process.pid, *pids.values()):
            if Path(f"/proc/{pid}").exists() and process.returncode is None:
                os.kill(pid, signal.SIGKILL)
    graph = weft.datasets.open_dataset(**DATA)
    one = weft.train(graph, "sage", hidden=8, strategy=SAMPLED, epochs=1)
    assert losses[0] == pytest.approx(one.loss, rel=1e-5)


def test_samplers_without_trainers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(tmp_path / "run", workers=2, samplers=2)) == 2
    told = capsys.readouterr().err
    assert "strategy.samplers: 2 of 2 workers would sample and none train" in told
