"""Reports: a run folder drawn as one HTML file that needs nothing else, not even a network.

weft.report.write_report("runs/first")     # PosixPath('runs/first/report.html')
weft.report.write_comparison(["runs/first", "runs/second"], "comparison.html")
weft.report.write_explanation(weft.explain(model, graph), "messages.html")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft.errors import InputError
from weft.format import atomic_write
from weft.report.compare import render_comparison
from weft.report.explanation_page import render_explanation
from weft.report.page import render
from weft.report.read import read_run
from weft.train.explanation import Explanation

__all__ = ["write_comparison", "write_explanation", "write_report"]


def write_report(run_dir: Path | str, out: Path | str | None = None) -> Path:
    """Draw the page of a run from its `run.json` and events; return where it is: report.html in the folder.

    Runs that crashed are drawn as far as they came. FormatError where run.json is missing or damaged.
    """
    page = Path(run_dir) / "report.html" if out is None else _page(out)
    atomic_write(page, render(read_run(run_dir)).encode("utf-8", errors="replace"))
    return page


def write_comparison(run_dirs: Sequence[Path | str], out: Path | str = "comparison.html") -> Path:
    """Draw several runs side by side on one page: a table, their curves, what differs; return its path."""
    if not run_dirs:
        raise InputError("a comparison needs the folder of at least one run")
    runs = [read_run(folder) for folder in run_dirs]
    page = _page(out)
    atomic_write(page, render_comparison(runs).encode("utf-8", errors="replace"))
    return page


def write_explanation(explanation: Explanation, out: Path | str, *, title: str = "Messages") -> Path:
    """Draw what `weft.explain` found, each message before and after, on one page; return its path."""
    from weft import __version__

    page = _page(out)
    atomic_write(page, render_explanation(explanation, title, __version__).encode("utf-8"))
    return page


def _page(out: Path | str) -> Path:
    """Return the path of a page, or refuse to write over a file that is none."""
    page = Path(out)
    if page.is_file():
        with page.open("rb") as file:
            if file.read(9).lower() != b"<!doctype" and page.stat().st_size:
                raise InputError(f"{page} is there and is no page of a report; name another file")
    return page
