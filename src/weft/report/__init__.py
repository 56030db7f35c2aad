"""Reports: a run folder drawn as one HTML file that needs nothing else, not even a network.

weft.report.write_report("runs/first")     # PosixPath('runs/first/report.html')
"""

from __future__ import annotations

from pathlib import Path

from weft.format import atomic_write
from weft.report.page import render
from weft.report.read import read_run

__all__ = ["write_report"]


def write_report(run_dir: Path | str) -> Path:
    """Draw `report.html` from the `run.json` and `events.jsonl` of a run folder; return the path of the page.

    Runs that crashed are drawn as far as they came. FormatError where run.json is missing or damaged.
    """
    page = Path(run_dir) / "report.html"
    atomic_write(page, render(read_run(run_dir)).encode("utf-8", errors="replace"))
    return page
