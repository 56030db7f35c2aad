"""Examples that need nothing but weft run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_link_prediction_ranks_unseen_edges_above_random_ones() -> None:
    program = [sys.executable, str(EXAMPLES / "link_prediction.py")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = re.findall(r"AUC ([\d.]+)", done.stdout)
    assert float(found) > 0.6


def test_a_pyg_model_as_it_is_learns_from_the_loader() -> None:
    pytest.importorskip("torch_geometric", reason="the example trains a model of PyG")
    program = [sys.executable, str(EXAMPLES / "pyg_model.py"), "3000"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = re.findall(r"test accuracy ([\d.]+)", done.stdout)
    assert float(found) > 0.6
