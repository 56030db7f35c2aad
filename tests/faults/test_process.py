"""Runs that are killed, interrupted or asked to stop, by real signals, and then continued."""

import json
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import weft

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
SETTINGS = {
    "data.name": "community",
    "data.nodes": 200,
    "data.features": 8,
    "data.classes": 3,
    "model.name": "gat",
    "model.hidden": 8,
    "model.heads": 2,
    "model.dropout": 0.5,
    "model.attention_dropout": 0.3,
    "train.epochs": 60,
    "train.schedule": "cosine",
    "train.checkpoint_every": 1,
}


def start(out: Path, *extra: str, **settings: object) -> "subprocess.Popen[str]":
    """Start a run of its own process, with a checkpoint after every epoch."""
    given = SETTINGS | {key.replace("__", "."): value for key, value in settings.items()}
    command = [sys.executable, "-m", "weft", "train", "--out", str(out), *extra]
    for key, value in given.items():
        command += ["--set", f"{key}={value}"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=out.parent
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, told = process.communicate(timeout=120)
    return process.returncode, told


def wait_for_epoch(out: Path, process: "subprocess.Popen[str]", epoch: int) -> None:
    """Wait until a run has recorded an epoch."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (out / "events.jsonl").exists():
            done = [event.get("epoch", 0) for event in weft.read_events(out)]
            if max(done, default=0) >= epoch:
                return
        time.sleep(0.005)
    if process.poll() is None:
        process.kill()
        pytest.fail(f"epoch {epoch} was not reached in time")


def wait_for_library(process: "subprocess.Popen[str]", library: str) -> None:
    """Wait until a process has mapped a library."""
    maps = Path(f"/proc/{process.pid}/maps")
    if not maps.exists():
        process.kill()
        pytest.skip("what a process has loaded is not to be seen here")
    deadline = time.monotonic() + 120
    while library not in maps.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"{library} was not loaded in time")
        time.sleep(0.005)


def outcome(out: Path) -> tuple[bytes, list[float]]:
    losses = [event["loss"] for event in weft.read_events(out) if event["event"] == "epoch"]
    return (out / "model.safetensors").read_bytes(), losses


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: syncing every epoch to a disk would be most of the time."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[float]]:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    code, told = finish(start(out, train__checkpoint_every=1000))
    assert code == 0, told
    return outcome(out)


def test_killed_at_any_moment_and_continued_gives_the_same_bits(
    folder: Path, undisturbed: tuple[bytes, list[float]]
) -> None:
    moments = random.Random(0)
    out = folder / "run"
    for target in (2, 30):
        process = start(out, *(["--resume"] if out.exists() else []))
        wait_for_epoch(out, process, target)
        time.sleep(moments.uniform(0, 0.03))  # an epoch and its checkpoint take about that long
        process.kill()
        process.communicate()
    code, told = finish(start(out, "--resume"))
    assert code == 0, told
    assert outcome(out) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_asked_to_stop_a_run_saves_says_how_to_continue_and_leaves(
    folder: Path, undisturbed: tuple[bytes, list[float]], number: signal.Signals
) -> None:
    out = folder / "run"
    process = start(out, train__checkpoint_every=1000)
    wait_for_epoch(out, process, 5)
    process.send_signal(number)
    code, told = finish(process)
    assert code == 130
    assert "stopping after this epoch" in told
    assert f"weft train --out {out} --resume" in told
    assert "Traceback" not in told
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    assert (out / "checkpoint" / "latest").exists()
    if number == signal.SIGINT:  # both stop by the same request
        code, told = finish(start(out, "--resume"))
        assert code == 0, told
        assert outcome(out) == undisturbed


def test_a_worker_that_is_asked_to_stop_stops_all_in_order(folder: Path) -> None:
    out = folder / "run"
    process = start(out, "--workers", "2", train__epochs=100_000, train__checkpoint_every=1000)
    wait_for_epoch(out, process, 5)
    ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [pid for pid in ranks if b"RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()]
    os.kill(int(workers[0]), signal.SIGTERM)
    code, told = finish(process)
    assert code == 130
    assert told.rstrip().endswith("weft: interrupted: a worker was asked to stop, and the others with it")
    assert "error" not in told
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    assert (out / "checkpoint" / "latest").exists()


# A library of torch is mapped while it is being imported, that of safetensors just before the data is made.
@pytest.mark.parametrize("library", ["libtorch_cpu", "_safetensors_rust"])
def test_an_interrupt_before_the_first_epoch_stops_at_once(folder: Path, library: str) -> None:
    process = start(folder / "run", data__nodes=2000000)
    wait_for_library(process, library)
    process.send_signal(signal.SIGINT)
    code, told = finish(process)
    assert code == 130
    assert told.strip().endswith("weft: interrupted")


def test_an_interrupt_while_the_command_itself_is_imported_has_the_same_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt if name == "main" else AttributeError(name)

    monkeypatch.setitem(sys.modules, "weft.cli.main", Interrupted("weft.cli.main"))
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("weft", run_name="__main__")
    assert caught.value.code == 130


KILL_WHILE_SAVING = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from weft.train.saved.checkpoint import Checkpoints

torch.set_num_threads(1)
checkpoints, moments = Checkpoints(Path(sys.argv[1])), random.Random(1)
latest = checkpoints.folder / "latest"
checkpoints.save(0, {"model": {"a": torch.zeros(5000)}}, {"epoch": 0})
for _ in range(30):
    before = latest.read_text()
    child = os.fork()
    if child == 0:
        epoch = checkpoints.load().epoch
        while True:
            epoch += 1
            checkpoints.save(epoch, {"model": {"a": torch.full((5000,), float(epoch))}}, {"epoch": epoch})
    while latest.read_text() == before:
        time.sleep(0.001)
    time.sleep(moments.uniform(0.0, 0.01))  # saving takes a few milliseconds
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    held = checkpoints.load()
    assert held.epoch > int(before.strip().removeprefix("epoch-"))
    assert held.state["epoch"] == held.epoch
    assert (held.tensors["model"]["a"] == held.epoch).all()
print("held")
"""


def test_killed_while_saving_the_latest_checkpoint_always_loads(folder: Path) -> None:
    command = [sys.executable, "-c", KILL_WHILE_SAVING, str(folder / "checkpoint")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "held\n"
