"""Temporary folders: their owner's alone, and removed by the next one where it was killed."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from weft.comm.scratch import HELD, scratch, sweep

PREFIX = "weft-test-"
_HOLD = f"""
import sys
from weft.comm.scratch import scratch
with scratch({PREFIX!r}) as folder:
    (folder / "attempt0").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_a_folder_goes_with_its_block(tmp_path: Path) -> None:
    with scratch(PREFIX) as folder, scratch(PREFIX) as other:
        assert folder != other
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o077 == 0
        sweep(PREFIX)
        assert folder.is_dir(), "who holds it lives"
    assert not list(tmp_path.iterdir())


def test_what_a_killed_owner_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner:
        folder = Path(owner.stdout.readline().strip())
        with scratch(PREFIX):
            assert (folder / "attempt0").is_dir(), "its owner lives"
        owner.kill()
        owner.wait()
        assert folder.is_dir()
    others = tmp_path / f"{PREFIX}abc", tmp_path / f"other{HELD}"
    for other in others:
        other.mkdir()
    (tmp_path / f"{PREFIX}link{HELD}").symlink_to(others[0])
    with scratch(PREFIX):
        assert not folder.exists()
    assert all(other.is_dir() for other in others), "a folder that no lock is told of may be in use"
