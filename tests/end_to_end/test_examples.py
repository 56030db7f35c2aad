"""Examples that need nothing but weft run."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_link_prediction_ranks_unseen_edges_above_random_ones() -> None:
    program = [sys.executable, str(EXAMPLES / "link_prediction.py")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = re.findall(r"AUC ([\d.]+)", done.stdout)
    assert float(found) > 0.6
