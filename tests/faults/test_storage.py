"""Disks that are full or cannot be written: one line, exit code 2, what was good before stays good."""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import weft
from weft.cli.main import main
from weft.train.saved.checkpoint import Checkpoints

RUN = ["train", "--set", "data.name=community", "--set", "data.nodes=200", "--set", "train.epochs=30"]
Mount = Callable[[str], Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mount a small file system in memory with the given options; skip where that is not allowed."""
    made: list[Path] = []

    def make(options: str) -> Path:
        target = tmp_path / f"disk{len(made)}"
        target.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(target)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a small file system needs root")
        made.append(target)
        return target

    yield make
    for target in made:
        subprocess.run(["umount", str(target)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def told(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = [line for line in shown.err.splitlines() if line.startswith("weft: error: ")]
    assert len(lines) == 1
    assert "Traceback" not in shown.err
    return lines[0]


def test_a_disk_that_fills_up_is_told_and_the_last_checkpoint_stays(
    mount: Mount, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = mount("size=512k")
    arguments = [
        *RUN,
        "--set",
        "train.checkpoint_every=1",
        "--set",
        "model.hidden=64",
        "--out",
        str(disk / "run"),
    ]
    first = [*arguments, "--set", "train.epochs=2"]
    assert main(first) == 0
    capsys.readouterr()
    fill(disk)
    assert main([*arguments, "--resume"]) == 2
    assert "No space left on device" in told(capsys)
    (disk / "filler").unlink()
    held = Checkpoints(disk / "run" / "checkpoint").load()
    assert held is not None
    assert held.epoch >= 2
    assert not list((disk / "run").rglob("*.partial"))
    assert main([*arguments, "--resume"]) == 0  # with room again the run goes on


def test_a_disk_too_small_for_the_first_checkpoint(mount: Mount, capsys: pytest.CaptureFixture[str]) -> None:
    disk = mount("size=64k")
    assert main([*RUN, "--set", "model.hidden=512", "--out", str(disk / "run")]) == 2
    message = told(capsys)
    assert "No space left on device" in message
    assert "Nothing was left" not in message  # run.json tells of the failed run
    assert not (disk / "run" / "checkpoint" / "latest").exists()


def test_a_disk_that_is_read_only(mount: Mount, capsys: pytest.CaptureFixture[str]) -> None:
    disk = mount("size=64k,ro")
    assert main([*RUN, "--out", str(disk / "run")]) == 2
    assert "Read-only file system" in told(capsys)


def test_a_folder_without_permission(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    done = subprocess.run(
        [sys.executable, "-m", "weft", *RUN, "--out", str(tmp_path / "run")], capture_output=True, text=True
    )
    tmp_path.chmod(0o700)
    assert done.returncode == 2
    assert "Permission denied" in done.stderr


def test_a_file_in_the_place_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").write_text("")
    assert main([*RUN, "--out", str(tmp_path / "run")]) == 2
    assert "is a file" in told(capsys)
    assert main([*RUN, "--out", str(tmp_path / "run" / "deeper")]) == 2
    assert "Not a directory" in told(capsys)


def test_a_damaged_checkpoint_is_refused_on_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main([*RUN, "--set", "train.epochs=2", "--out", str(out)]) == 0
    capsys.readouterr()
    path = out / "checkpoint" / "epoch-000002" / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert main([*RUN, "--set", "train.epochs=3", "--out", str(out), "--resume"]) == 2
    message = told(capsys)
    assert "tensors.safetensors" in message
    assert message.endswith(
        "restore that folder from a copy, or start anew with another --out (in Python: out=)"
    )
    assert len(weft.read_events(out)) > 0


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the system refuse what would make a file of this process larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_system_that_refuses_large_files_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=200)
    graph.save(tmp_path / "g")
    knows = "".join(f"{n},{(7 * n + 1) % 3000}\n" for n in range(3000))
    (tmp_path / "edges.csv").write_text(f"src,dst\n{knows}")
    run = tmp_path / "run"
    for command in (
        [*RUN, "--set", "model.hidden=512", "--out", str(run)],
        ["partition", str(tmp_path / "g"), "--parts=2", "--name=hash", "--out", str(tmp_path / "parts")],
        ["flatten", str(tmp_path / "g"), "--targets=all", "--features=value", "--out", str(tmp_path / "r")],
        ["ingest", f"edges={tmp_path / 'edges.csv'}", "--out", str(tmp_path / "ingested")],
    ):
        before = {path.name for path in tmp_path.iterdir()}
        with files_of_at_most(6000):
            assert main(command) == 2, command
        message = [line for line in capsys.readouterr().err.splitlines() if "weft: error: " in line]
        assert len(message) == 1, command
        assert "File too large" in message[0], message
        assert {path.name for path in tmp_path.iterdir()} - before <= {"run"}, command
    assert not (run / "checkpoint" / "latest").exists()
    assert not list(run.rglob("*.partial"))
    with files_of_at_most(6000), pytest.raises(weft.errors.WeftError, match="File too large"):
        graph.save(tmp_path / "again")
    assert not (tmp_path / "again").exists()


def remove(folder: Path) -> None:
    """Remove a folder in which a run goes on writing: what comes in meanwhile is removed the next time."""
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def test_a_folder_that_is_removed_under_a_run_is_told(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "weft", *RUN, "--set", "train.epochs=1000000", "--out", str(out)]
    command += ["--set", "train.checkpoint_every=5"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        try:
            deadline = time.monotonic() + 120
            while not (out / "checkpoint" / "latest").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            remove(out)
            _, said = run.communicate(timeout=60)
        finally:
            run.kill()
    assert run.returncode == 2, said
    lines = [line for line in said.splitlines() if line.startswith("weft: error: ")]
    assert len(lines) == 1
    removed = f"{out} was removed while a run trained in it"
    assert removed in lines[0] or f"cannot write {out}/" in lines[0], "removed while a file was written"
    assert not (out / "checkpoint" / "latest").exists()
    assert "Traceback" not in said
