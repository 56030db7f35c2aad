"""Runs of the `weft` command in processes of their own, for what only a whole process shows."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any


def trained(settings: Sequence[str], given: Mapping[str, str], *, without: Collection[str]) -> dict[str, Any]:
    """Return the summary of `weft train`; variables `without` leave the environment, `given` enter it."""
    plain = {name: value for name, value in os.environ.items() if name not in without}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", "weft", "train", "--json"]
        command += [f"--out={Path(folder) / 'run'}", *(f"--set={setting}" for setting in settings)]
        told = subprocess.run(
            command, env={**plain, **given}, capture_output=True, text=True, check=True, timeout=600
        )
    summary: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return summary
