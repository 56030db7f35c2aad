"""A run's folder has one owner, and an owner that was killed leaves nothing behind."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.datasets import open_dataset
from weft.errors import InputError
from weft.events import read_events
from weft.train.saved.claim import LOCK, claimed
from weft.train.saved.run_folder import holds_run

HOLD = """
import sys
from weft.train.saved.claim import claimed
with claimed(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_that_another_process_holds_is_refused_until_it_is_gone(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "one"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(out)], **pipes) as other:
        try:
            assert other.stdout.readline() == "held\n"
            with pytest.raises(InputError, match=f"in use: process {other.pid} trains in it"), claimed(out):
                pass
        finally:
            other.kill()
    with claimed(out), claimed(str(out)):  # what it left behind holds nobody up, and claims nest
        assert (out / LOCK).exists()
    assert list(out.iterdir()) == []


def test_folders_made_for_a_run_that_is_not_begun_are_removed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no"), claimed(tmp_path / "runs" / "one"):
        raise InputError("no")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(InputError, match=r"cannot create the run folder .*: Not a directory"),
        claimed(tmp_path / "file" / "run"),
    ):
        pass


def test_a_run_that_goes_on_can_neither_be_joined_nor_continued(tmp_path: Path) -> None:
    """A second run, and `resume`, while the first one trains: its events stay whole."""
    graph = open_dataset(name="community", nodes=60, classes=3)
    told: list[str] = []

    def another(resume: bool) -> None:
        try:
            weft.train(graph, "gcn", hidden=4, epochs=3, out=tmp_path / "run", resume=resume)
        except InputError as error:
            told.append(str(error))

    def watch(event: Any) -> None:
        if event["event"] == "epoch" and event["epoch"] == 2:
            for resume in (False, True):
                thread = threading.Thread(target=another, args=(resume,))
                thread.start()
                thread.join()

    weft.train(graph, "gcn", hidden=4, epochs=3, checkpoint_every=1, out=tmp_path / "run", progress=watch)
    assert len(told) == 2
    assert all("is in use: process" in line for line in told)
    kinds = [event["event"] for event in read_events(tmp_path / "run")]
    assert kinds.count("epoch") == 3
    assert kinds[-1] == "end"
    assert not (tmp_path / "run" / LOCK).exists()
    assert holds_run(tmp_path / "run")
