"""`python -m weft` is the command."""

import subprocess
import sys

import weft


def test_the_module_runs_as_the_command() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "weft", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.split() == ["weft", weft.__version__]
    wrong = subprocess.run(
        [sys.executable, "-m", "weft", "trian"], capture_output=True, text=True, timeout=60
    )
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)
