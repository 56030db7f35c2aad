"""Few addresses (`ulimit -v`): a command ends well, or by one line; no library takes it down in silence."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.cli import limited
from weft.cli.limited import told
from weft.cli.main import main

LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 20,) * 2)
os.execv(sys.executable, [sys.executable, "-m", "weft", *sys.argv[2:]])
"""


def started(mebibytes: int, *words: str | Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", LIMITED, str(mebibytes), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ingested(mebibytes: int, folder: Path) -> tuple[int, str]:
    (folder / "edges.csv").write_text("src,dst\n1,2\n2,3\n")
    process = started(mebibytes, "ingest", f"edges={folder / 'edges.csv'}", "--out", folder / "graph")
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def test_too_few_addresses_are_told_in_one_line(tmp_path: Path) -> None:
    code, said = ingested(280, tmp_path)
    assert code == 2, said
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("weft: error: a command needs 640 MiB")
    assert "ulimit -v" in said
    assert not (tmp_path / "graph").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", range(200, 1600, 100))
def test_whatever_the_limit_it_ends_well_or_says_why(mebibytes: int, tmp_path: Path) -> None:
    code, said = ingested(mebibytes, tmp_path)
    assert code == (0 if (tmp_path / "graph").exists() else 2), said
    assert "Traceback" not in said
    assert code == 0 or said.splitlines()[-1].startswith("weft: error: ")


def test_what_the_command_says_and_how_it_ends_is_passed_on() -> None:
    process = started(4000, "ingest", "--nonsense")
    assert "weft: error: " in process.communicate(timeout=60)[1]
    assert process.returncode == 2
    process = started(4000, "--version")
    assert process.communicate(timeout=60)[0].startswith("weft ")
    assert process.returncode == 0


def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "edges.csv")  # nobody writes there: it waits
    process = started(8000, "validate", f"edges={tmp_path / 'edges.csv'}")
    child = only_child(process.pid)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode in (2, 130)
    assert not Path(f"/proc/{child}").exists()


def test_the_command_ends_where_the_process_before_it_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "edges.csv")  # nobody writes there: it waits
    process = started(8000, "validate", f"edges={tmp_path / 'edges.csv'}")
    child = Path(f"/proc/{only_child(process.pid)}")
    process.kill()
    process.communicate(timeout=30)  # until the child has let go of the pipes
    assert gone(child)


def test_a_signal_that_comes_before_the_command_can_answer_is_no_lack_of_addresses(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "edges.csv")  # nobody writes there: it waits
    process = started(8000, "validate", f"edges={tmp_path / 'edges.csv'}")
    os.kill(int(only_child(process.pid)), signal.SIGTERM)  # Python has just begun, or not yet
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "ulimit" not in said
    assert "Traceback" not in said


def gone(process: Path) -> bool:
    deadline = time.monotonic() + 10
    while process.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not process.exists()


def only_child(pid: int) -> str:
    deadline = time.monotonic() + 60
    while not children(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    (child,) = children(pid)
    return child


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize(("ended", "code"), [(1, 2), (101, 1), (3, 3)])
def test_a_library_that_ends_the_command_by_1_is_told_and_a_1_of_its_own_is_passed_on(
    ended: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = tmp_path / "python"
    ending.write_text(f"#!/bin/sh\nexit {ended}\n")
    ending.chmod(0o700)
    monkeypatch.setattr(limited.sys, "executable", str(ending))
    monkeypatch.setattr(limited.resource, "getrlimit", lambda _: (4000 << 20, 4000 << 20))
    monkeypatch.delenv("WEFT_LIMITED", raising=False)
    assert limited.run_limited(["train"]) == code
    said = capsys.readouterr().err
    assert ("the command ended with exit code 1: it may map" in said) == (ended == 1), said
    assert bool(said) == (ended == 1)


def test_a_command_tells_the_process_that_watches_it_of_a_1_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weft.cli.main._guarded", lambda *_: 1)
    monkeypatch.setattr("weft.cli.main.threading.enumerate", list)  # or it would leave this process
    for watcher, code in ((os.getppid(), 101), (os.getpid(), 1)):
        monkeypatch.setenv("WEFT_LIMITED", str(watcher))
        assert main() == code


def test_how_it_died_is_told() -> None:
    assert "was killed by SIGSEGV: it may map 512 MiB" in told(-signal.SIGSEGV, 512 << 20)
    assert "ended with exit code 127: it may map" in told(127, 512 << 20)
    assert "ulimit" not in told(-signal.SIGKILL, 512 << 20)  # no library does that
