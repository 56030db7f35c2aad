"""Workers that come and go through the command, as users start it: asked to stop, warned, and refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pages import served
from run_watch import events
from started_runs import PATIENCE, ended, lives, said, started, until

from weft.events import read_events
from weft.train.saved.run_folder import read_run

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


def epochs(out: Path) -> int:
    return len(events(out, "epoch"))


@pytest.mark.slow
def test_ctrl_c_saves_and_the_run_can_be_continued(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with started(out, "--workers=2:3", settings=("train.epochs=100000",)) as run:
        until(lambda: epochs(out) > 2, run, out)
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does, to every process
        ended(run, out, 130)
    assert "interrupted; the workers finish their epoch and save" in said(out)
    assert "Traceback" not in said(out)
    assert read_run(out)["status"] == "interrupted"
    assert not list(out.glob(".workers*"))
    done = read_run(out)["summary"]["epochs"]
    further = (f"train.epochs={done + 2}",)
    with started(out, "--resume", "--workers=1:3", "--json", settings=further) as again:
        told = ended(again, out, 0)
    assert json.loads(told)["epochs"] == done + 2
    numbers = [event["epoch"] for event in read_events(out) if event["event"] == "epoch"]
    assert numbers == list(range(1, done + 3)), "no epoch is lost or done twice"


@pytest.mark.slow
def test_a_worker_leaves_on_the_notice_that_a_command_of_the_user_gives(tmp_path: Path) -> None:
    out, notice = tmp_path / "run", tmp_path / "notice"
    code = f"import os, sys; sys.exit(not os.path.exists({str(notice)!r} + os.environ['WEFT_MEMBER']))"
    command = f'"{sys.executable}" -S -c "{code}"'
    with started(out, "--workers=1:2", f"--notice={command}", settings=("train.epochs=100000",)) as run:
        until(lambda: epochs(out) > 2, run, out)
        scale = [sys.executable, "-m", "weft", "scale", str(out), "2"]
        assert subprocess.run(scale, check=False, timeout=PATIENCE).returncode == 0
        until(lambda: len(events(out, "generation")) == 2, run, out)
        notice.with_name("notice0").touch()
        until(lambda: len(events(out, "generation")) == 3, run, out)
        os.kill(run.pid, signal.SIGINT)
        ended(run, out, 130)
    assert "worker 0 leaves at the next boundary (its machine is to be taken back)" in said(out)
    members = [event["workers"] for event in read_events(out) if event["event"] == "generation"]
    assert members == [[0], [0, 1], [1]]
    numbers = [event["epoch"] for event in read_events(out) if event["event"] == "epoch"]
    assert numbers == list(range(1, len(numbers) + 1)), "a warning loses nothing"


@pytest.mark.slow
def test_a_page_that_speaks_for_the_machine_has_the_run_save_and_end(tmp_path: Path) -> None:
    out, taken = tmp_path / "run", list[bool]()

    def answer(method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
        return (200 if taken else 404), {}, '{"action": "terminate"}'

    with served(answer) as url:
        words = ("--workers=2:3", f"--notice={url}/latest/meta-data/spot/instance-action")
        with started(out, *words, settings=("train.epochs=100000",)) as run:
            until(lambda: epochs(out) > 2, run, out)
            taken.append(True)
            ended(run, out, 3)
    assert "leaves at the next boundary (its machine is to be taken back)" in said(out)
    assert "the run saves and ends; continue it with --resume" in said(out)
    done = epochs(out)
    with started(out, "--resume", "--workers=1:3", settings=(f"train.epochs={done + 1}",)) as again:
        ended(again, out, 0)
    numbers = [event["epoch"] for event in read_events(out) if event["event"] == "epoch"]
    assert numbers == list(range(1, done + 2)), "a warning loses nothing"


@pytest.mark.slow
def test_a_launcher_that_is_killed_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, scratch = tmp_path / "run", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with started(out, "--workers=2:3", settings=("train.epochs=100000",)) as run:
        until(lambda: epochs(out) > 2, run, out)
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


@pytest.mark.slow
def test_a_model_that_draws_from_torchs_generator_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "drawing.py").write_text(OWN)
    out, own = tmp_path / "run", ("model.class=drawing:Net", "train.epochs=20")
    with started(out, "--workers=1:2", settings=own) as run:
        ended(run, out, 2)
    assert "the model draws from torch's own generator" in said(out)
    assert "Traceback" not in said(out)
