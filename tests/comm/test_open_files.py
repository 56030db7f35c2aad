"""Few open files: as many as are needed are taken where they may be, and told before the run where not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = ["-m", "weft", "train", "--set=data.name=community", "--set=data.nodes=60", "--set=train.epochs=2"]
RUN = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


def trained(out: Path, soft: int, hard: int, *more: str) -> "subprocess.CompletedProcess[str]":
    """Train with so few open files."""
    words = [sys.executable, "-c", RUN, str(soft), str(hard), *TRAIN, *more, f"--out={out}"]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.mark.slow
def test_as_many_as_are_needed_are_taken(tmp_path: Path) -> None:
    done = trained(tmp_path / "run", 40, 256, "--workers=2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("workers", ["8", "1:8"])
def test_fewer_than_are_needed_are_told_before_the_run(tmp_path: Path, workers: str) -> None:
    done = trained(tmp_path / "run", 40, 60, f"--workers={workers}")
    assert done.returncode == 2
    assert "weft: error: 8 workers need 128 open files in each process, this one may have 60" in done.stderr
    assert "ulimit -n 128" in done.stderr
    assert "Traceback" not in done.stderr
