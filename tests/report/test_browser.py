"""The page in a real browser, where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.report import write_comparison, write_report

from . import samples
from .test_page import hostile_run

BROWSER = next(
    (name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]


def load(page: Path, home: Path) -> tuple[str, str]:
    """Return the document after its scripts ran, and what the browser wrote to its log."""
    assert BROWSER is not None
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={home}",
    ]
    done = subprocess.run(
        [BROWSER, *flags, *QUIET, "--enable-logging=stderr", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


def test_script_runs_under_the_policy_of_the_page(tmp_path: Path) -> None:
    page = write_report(samples.write_run(tmp_path / "run", samples.meta(), samples.events(30)))
    html, log = load(page, tmp_path / "home")
    assert html.count('class="tip"') == 5  # the script adds one to every chart
    assert "Content Security Policy" not in log
    assert "Uncaught" not in log


def test_pages_of_several_workers_and_runs_load_without_a_complaint(tmp_path: Path) -> None:
    folders = [samples.write_workers(tmp_path / name) for name in ("a", "b")]
    for page in (write_report(folders[0]), write_comparison(folders, tmp_path / "both.html")):
        html, log = load(page, tmp_path / "home")
        assert "</svg>" in html
        assert "Content Security Policy" not in log
        assert "Uncaught" not in log


def test_hostile_strings_run_nothing(tmp_path: Path) -> None:
    page = write_report(samples.write_run(tmp_path / "run", *hostile_run()))
    html, log = load(page, tmp_path / "home")
    assert len(re.findall(r"<script", html)) == 1
    assert "Content Security Policy" not in log
