"""Workers that come and go through the command, as users start it: asked to stop, warned, and refused."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from weft.events import read_events
from weft.train.saved.run_folder import read_run

PATIENCE = 240.0
RECIPE = ["data.name=community", "data.nodes=80", "data.classes=3", "data.features=8", "model.hidden=4"]
OWN = """
import torch, weft

class Net(torch.nn.Module):
    def __init__(self, in_features, out_features, hidden=16):
        super().__init__()
        self.first, self.second = weft.nn.SAGE(in_features, hidden), weft.nn.SAGE(hidden, out_features)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, blocks, x):
        return self.second(blocks[1], self.drop(self.first(blocks[0], x)))
"""


@contextmanager
def started(out: Path, *words: str, settings: tuple[str, ...] = ()) -> Iterator["subprocess.Popen[str]"]:
    """A run of the command; whatever comes, nothing of it is left: its workers are in its group."""
    given = [f"--set={each}" for each in (*RECIPE, *settings)]
    run = subprocess.Popen(
        [sys.executable, "-m", "weft", "train", *given, f"--out={out}", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(out.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield run
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


def until(condition: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def epochs(out: Path) -> int:
    file = out / "events.jsonl"
    return file.read_text().count('"event": "epoch"') if file.exists() else 0


@pytest.mark.slow
def test_ctrl_c_saves_and_the_run_can_be_continued(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with started(out, "--workers=2:3", settings=("train.epochs=100000",)) as run:
        until(lambda: epochs(out) > 2, run)
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does, to every process
        _, said = run.communicate(timeout=PATIENCE)
        assert run.returncode == 130, said
    assert "interrupted; the workers finish their epoch and save" in said
    assert "Traceback" not in said
    assert read_run(out)["status"] == "interrupted"
    assert not list(out.glob(".workers*"))
    done = read_run(out)["summary"]["epochs"]
    further = (f"train.epochs={done + 2}",)
    with started(out, "--resume", "--workers=1:3", "--json", settings=further) as again:
        told, said = again.communicate(timeout=PATIENCE)
        assert again.returncode == 0, said
    assert json.loads(told)["epochs"] == done + 2
    numbers = [event["epoch"] for event in read_events(out) if event["event"] == "epoch"]
    assert numbers == list(range(1, done + 3)), "no epoch is lost or done twice"


@pytest.mark.slow
def test_a_worker_leaves_on_the_notice_that_a_command_of_the_user_gives(tmp_path: Path) -> None:
    out, notice = tmp_path / "run", tmp_path / "notice"
    code = f"import os, sys; sys.exit(not os.path.exists({str(notice)!r} + os.environ['WEFT_MEMBER']))"
    command = f'"{sys.executable}" -S -c "{code}"'
    with started(out, "--workers=1:2", f"--notice={command}", settings=("train.epochs=100000",)) as run:
        until(lambda: epochs(out) > 2, run)
        scale = [sys.executable, "-m", "weft", "scale", str(out), "2"]
        assert subprocess.run(scale, check=False, timeout=PATIENCE).returncode == 0
        until(lambda: (out / "events.jsonl").read_text().count('"event": "generation"') == 2, run)
        notice.with_name("notice0").touch()
        until(lambda: (out / "events.jsonl").read_text().count('"event": "generation"') == 3, run)
        os.kill(run.pid, signal.SIGINT)
        _, said = run.communicate(timeout=PATIENCE)
        assert run.returncode == 130, said
    assert "worker 0 leaves at the next boundary (its machine is to be taken back)" in said
    members = [event["workers"] for event in read_events(out) if event["event"] == "generation"]
    assert members == [[0], [0, 1], [1]]
    numbers = [event["epoch"] for event in read_events(out) if event["event"] == "epoch"]
    assert numbers == list(range(1, len(numbers) + 1)), "a warning loses nothing"


@pytest.mark.slow
def test_a_launcher_that_is_killed_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, scratch = tmp_path / "run", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with started(out, "--workers=2:3", settings=("train.epochs=100000",)) as run:
        until(lambda: epochs(out) > 2, run)
        workers = [int(each) for each in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]
        assert len(workers) == 2
        assert list(scratch.iterdir())
        run.kill()
        deadline = time.monotonic() + 30
        while any(map(lives, workers)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(lives, workers))
        assert list(scratch.iterdir()) == []
    scale = [sys.executable, "-m", "weft", "scale", str(out), "3"]
    asked = subprocess.run(scale, check=False, timeout=PATIENCE, capture_output=True, text=True)
    assert asked.returncode == 2
    assert "the run is not running, its launcher was killed" in asked.stderr


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_model_that_draws_from_torchs_generator_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "drawing.py").write_text(OWN)
    own = ("model.class=drawing:Net", "train.epochs=20")
    with started(tmp_path / "run", "--workers=1:2", settings=own) as run:
        _, said = run.communicate(timeout=PATIENCE)
        assert run.returncode == 2, said
    assert "the model draws from torch's own generator" in said
    assert "Traceback" not in said
