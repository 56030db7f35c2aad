"""Stages of a pipeline that die: the run ends everywhere, says who and why, and can be continued."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.events import read_events

PATIENCE = 120.0  # for a start on a machine where others work too
SETTINGS = {
    "data.name": "community",
    "data.nodes": 400,
    "model.layers": 3,
    "model.hidden": 8,
    "strategy.name": "pipeline",
    "strategy.stages": 3,
    "strategy.fanout": 2,
    "strategy.batch_size": 64,
    "strategy.partitioner": "range",
}


def command(out: Path, epochs: int, *more: str, **settings: object) -> list[str]:
    given = {**SETTINGS, **{f"strategy.{k}": v for k, v in settings.items()}, "train.epochs": epochs}
    words = ["train", f"--out={out}", "--workers=3", *more]
    return [sys.executable, "-m", "weft", *words, *(f"--set={key}={value}" for key, value in given.items())]


def rank_of(pid: str) -> int | None:
    told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    found = [each for each in told if each.startswith(b"RANK=")]
    return int(found[0][5:]) if found else None


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "guilty"), [("gpipe", 1), ("1f1b", 0)])
def test_a_killed_stage_ends_all_and_the_run_goes_on(tmp_path: Path, schedule: str, guilty: int) -> None:
    out, environment = tmp_path / "run", {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    asked = command(out, 100_000, "--set=train.checkpoint_every=1", schedule=schedule)
    process = subprocess.Popen(
        asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while not (out / "events.jsonl").exists() or not any(
            event["event"] == "epoch" and event["epoch"] >= 2 for event in read_events(out)
        ):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no epoch in time"
            time.sleep(0.1)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ranks = {rank: int(pid) for pid in children if (rank := rank_of(pid)) is not None}
        began = time.monotonic()
        os.kill(ranks[guilty], signal.SIGKILL)
        _, told = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode == 3, told
    assert f"rank {guilty} was killed by SIGKILL" in told
    assert time.monotonic() - began < 30
    assert not [pid for pid in ranks.values() if Path(f"/proc/{pid}").exists()]
    done = max(event["epoch"] for event in read_events(out) if event["event"] == "epoch")
    again = command(out, done + 1, "--resume", "--set=train.checkpoint_every=1", schedule=schedule)
    told = subprocess.run(
        again, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=True
    )
    assert re.search(rf"epochs +{done + 1} \(done", told.stdout + told.stderr)
