"""Several workers through the command, as users start them: equal numbers, resumed, restarted, torchrun."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weft.cli.main import main
from weft.datasets import open_dataset
from weft.events import read_events
from weft.graph.parts.partition import write_partition
from weft.partitioners import partition
from weft.pipeline.infer.scoring import open_run
from weft.train.inference.infer import infer
from weft.train.saved.run_folder import read_run

EPOCHS = 30
RECIPE = ["data.name=community", "data.nodes=300", "data.classes=4", "model.hidden=8"]
RECIPE += ["train.precision=float64", "train.checkpoint_every=5"]
STALE = 'strategy.exchange={name="stale", smooth_features=0.5, bits=8}'  # with a state on every worker


def command(out: Path, *arguments: str, epochs: int = EPOCHS, settings: tuple[str, ...] = ()) -> list[str]:
    """Return the command that trains on a small community graph."""
    given = [*RECIPE, f"train.epochs={epochs}", *settings]
    return ["-m", "weft", "train", *(f"--set={each}" for each in given), f"--out={out}", "--json", *arguments]


def on_parts(out: Path, folder: Path, *, epochs: int) -> list[str]:
    """Return the same command on four parts of the same graph, which are made first."""
    graph = open_dataset(name="community", nodes=300, classes=4)
    write_partition(folder, graph, partition(graph, 4, name="hash"))
    given = [*RECIPE[3:], f"train.epochs={epochs}", f"data.path={folder}"]
    return ["-m", "weft", "train", *(f"--set={each}" for each in given), f"--out={out}", "--json"]


def environment() -> dict[str, str]:
    """Return an environment in which processes share the cores politely."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def run(arguments: list[str]) -> dict[str, Any]:
    """Run a command to its good end and return the object that it prints."""
    done = subprocess.run(
        [sys.executable, *arguments], env=environment(), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def run_here(arguments: list[str]) -> dict[str, Any]:
    """Run the command in this process, which has torch loaded, and return what its run says of itself."""
    assert main(arguments[2:]) == 0
    (out,) = [each.removeprefix("--out=") for each in arguments if each.startswith("--out=")]
    summary: dict[str, Any] = read_run(out)["summary"]
    return summary


def losses(out: Path) -> list[float]:
    """Return the training loss of each epoch."""
    return [event["loss"] for event in read_events(out) if event["event"] == "epoch"]


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two workers and four parts that read the halo of the epoch before, never disturbed."""
    out = tmp_path_factory.mktemp("runs") / "stale"
    run(command(out, "--workers=2", "--parts=4", settings=(STALE,)))
    return out


def test_two_workers_give_the_losses_of_one_and_say_what_they_sent(tmp_path: Path) -> None:
    one = run_here(command(tmp_path / "one", epochs=8))
    two = run(command(tmp_path / "two", "--workers=2", epochs=8))
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-9)
    del one["metrics"]["test"]["roc_auc"]  # which needs all outputs in one place
    assert two["metrics"]["test"] == pytest.approx(one["metrics"]["test"])
    assert (two["workers"], two["strategy"]) == (2, "halo")
    told = [
        event
        for name in ("events.jsonl", "events-rank1.jsonl")
        for event in read_events(tmp_path / "two" / name)
        if event["event"] == "traffic"
    ]
    assert len(told) == 2 * 8
    assert 0 < sum(event["bytes_sent"] for event in told) <= two["bytes_sent"]
    assert two["messages"] > 0
    assert (tmp_path / "two" / "report.html").is_file()


@pytest.mark.slow  # beside the next but one: a lost worker goes on from what was saved, bit for bit
def test_a_run_is_continued_bit_for_bit_by_as_many_workers(stale: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(command(out, "--workers=2", "--parts=4", epochs=10, settings=(STALE,)))
    arguments = ["-m", "weft", "train", f"--out={out}", "--resume", "--json"]
    summary = run([*arguments, f"--set=train.epochs={EPOCHS}"])
    assert summary["workers"] == 2
    assert losses(out) == losses(stale)
    assert (out / "model.safetensors").read_bytes() == (stale / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_run_is_continued_by_more_workers_and_by_one(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(command(out, "--workers=2", "--parts=4", epochs=4))
    for workers, epochs in ((4, 8), (1, 12)):
        arguments = ["-m", "weft", "train", f"--out={out}", "--resume", "--json", f"--workers={workers}"]
        assert run([*arguments, f"--set=train.epochs={epochs}"])["workers"] == workers
    run(command(tmp_path / "whole", "--workers=2", "--parts=4", epochs=12))
    assert losses(out) == pytest.approx(losses(tmp_path / "whole"), rel=1e-12)


@pytest.mark.slow
def test_a_lost_worker_is_replaced_and_the_run_ends_bit_for_bit(stale: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = command(out, "--workers=2", "--parts=4", "--max-restarts=1", settings=(STALE,))
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        os.kill(_rank_after_checkpoint(process.pid, out), signal.SIGKILL)
        _, told = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, told.decode()
    assert b"starting again from the last checkpoint" in told
    assert losses(out) == losses(stale)


def test_torchrun_starts_the_same_program_on_a_folder_of_parts(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    run_here(command(one, epochs=3))
    parts = on_parts(two, tmp_path / "parts", epochs=3)
    run(["-m", "torch.distributed.run", "--nproc-per-node=2", *parts])
    assert losses(two) == pytest.approx(losses(one), rel=1e-9)
    assert not (two / "partition").exists()


def test_one_process_of_a_group_trains_as_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    summary = run_here(command(tmp_path / "run", epochs=2))
    assert (summary["strategy"], summary["workers"], summary["epochs"]) == ("single", 1, 2)


@pytest.mark.slow
def test_torchrun_with_one_process_trains_as_one_process(tmp_path: Path) -> None:
    summary = run(["-m", "torch.distributed.run", "--nproc-per-node=1", *command(tmp_path / "run", epochs=2)])
    assert (summary["strategy"], summary["workers"], summary["epochs"]) == ("single", 1, 2)
    assert len(losses(tmp_path / "run")) == 2


def test_ctrl_c_keeps_what_was_done_and_leaves_no_process(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = [*on_parts(out, tmp_path / "parts", epochs=100_000), "--workers=2"]
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _rank_after_checkpoint(process.pid, out)
        ranks = _children(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group gets it
        _, told = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, told.decode()
    assert b"Traceback" not in told
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
    done = len(losses(out))
    again = run(
        ["-m", "weft", "train", f"--out={out}", "--resume", "--json", f"--set=train.epochs={done + 2}"]
    )
    assert (again["epochs"], again["workers"], again["stopped"]) == (done + 2, 2, "done")
    peaks = [
        event["peak_memory_bytes"]
        for path in (out / "events.jsonl", out / "events-rank1.jsonl")
        for event in read_events(path)
        if event["event"] == "traffic" and event["epoch"] > done
    ]
    assert len(peaks) == 2 * 2
    assert again["peak_memory_bytes"] >= max(peaks) > 0, "memory is that of the largest worker"


def _rank_after_checkpoint(launcher: int, out: Path) -> int:
    """Return the process of rank 1 once a checkpoint was written."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if (out / "checkpoint" / "latest").exists():
            ranks = [pid for pid in _children(launcher) if _variable(pid, "RANK") == "1"]
            if ranks:
                return ranks[0]
        time.sleep(0.002)
    raise AssertionError("no checkpoint was written in time")


def _children(parent: int) -> list[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in text.split()]


def _variable(pid: int, name: str) -> str | None:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    held = dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)
    return held.get(name)


@pytest.mark.slow
def test_features_of_a_file_are_read_by_all_and_by_inference(tmp_path: Path) -> None:
    x = np.random.default_rng(4).normal(size=(300, 5))  # of another width than the graph's own
    np.save(tmp_path / "x.npy", x)
    store = f'strategy.store={{name="mmap", path="{tmp_path / "x.npy"}"}}'
    sampled = ("strategy.name=sampled", "strategy.fanout=[4, 3]", "strategy.batch_size=64", store)
    one = run_here(command(tmp_path / "one", epochs=2, settings=sampled))
    two = run(command(tmp_path / "two", "--workers=2", epochs=2, settings=sampled))
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-9)
    assert two["metrics"]["test"]["loss"] == pytest.approx(one["metrics"]["test"]["loss"], rel=1e-9)
    for name in ("one", "two"):
        scoring = open_run(tmp_path / name)
        with torch.no_grad():
            outputs = infer(scoring.model, scoring.graph).tensor()
        rows = scoring.graph.test_mask
        loss = torch.nn.functional.cross_entropy(outputs[rows], scoring.graph.y[rows].long())
        assert loss.item() == pytest.approx(one["metrics"]["test"]["loss"], rel=1e-9)
