"""Partitions come and go: whatever the buffer, rows are what they would be if all were in memory."""

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from weft.errors import TrainingError
from weft.strategies.buckets import buffer as module
from weft.strategies.buckets.buffer import Buffer
from weft.strategies.buckets.division import Division
from weft.strategies.buckets.orders import epoch_rounds, oracle
from weft.strategies.buckets.partition_files import PartitionFiles


def files_in(folder: Path, partitions: int = 4, width: int = 3) -> PartitionFiles:
    folder.mkdir(exist_ok=True)
    return PartitionFiles(folder, Division(["node"], [0, 21], partitions, seed=1), width, seed=5)


def visited(buffer: Buffer, partitions: int, capacity: int, epochs: int = 2) -> None:
    """Add the number of the visit to each of its rows."""
    version = 0
    for epoch in range(epochs):
        rounds = epoch_rounds("buffered", partitions, capacity, epoch=epoch)
        visits = [visit.partitions for visits in rounds for visit in visits]
        buffer.begin(visits)
        for number, visit in enumerate(visits):
            version += 1
            held = buffer.visit(number, visit)
            buffer.prefetch(number + 1)
            for rows in held.values():
                rows.values += version
                rows.total += 1
            buffer.trained(visit, version)


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("capacity", [2, 3, 4])
def test_rows_do_not_depend_on_the_buffer(tmp_path: Path, capacity: int, background: bool) -> None:
    files = files_in(tmp_path / "a")
    buffer = Buffer(files, capacity, background=background)
    rounds = epoch_rounds("buffered", 4, capacity)
    visited(buffer, 4, capacity)
    buffer.flush()
    for partition in range(4):
        first, last = files.empty(partition), files.empty(partition)
        files.read(partition, 0, first)
        files.read(partition, buffer.versions[partition], last)
        added = [
            number + 1 + epoch * len(rounds)
            for epoch in (0, 1)
            for number, visits in enumerate(rounds)
            if partition in visits[0].partitions
        ]
        expected = first.values.clone()
        for version in added:
            expected += version
        assert torch.equal(last.values, expected)
        assert torch.equal(last.total, torch.full_like(last.total, len(added)))
        assert torch.equal(files.map(partition, buffer.versions[partition]), last.values)
    buffer.close()


@pytest.mark.parametrize(("partitions", "capacity"), [(4, 2), (6, 3)])
def test_swaps_of_an_epoch_are_those_of_the_oracle(tmp_path: Path, partitions: int, capacity: int) -> None:
    buffer = Buffer(files_in(tmp_path, partitions), capacity)
    visited(buffer, partitions, capacity, epochs=1)
    assert buffer.swaps == oracle(partitions, capacity)
    assert len(buffer._held) <= capacity
    buffer.close()


def test_the_next_partition_is_read_while_training(tmp_path: Path) -> None:
    files, read = files_in(tmp_path), []
    brought = files.read

    def slow(partition: int, version: int, into: Any) -> None:
        read.append((partition, threading.current_thread().name))
        brought(partition, version, into)

    files.read = slow  # type: ignore[method-assign]
    buffer = Buffer(files, 2)
    buffer.begin([(0, 1), (0, 2)])
    buffer.visit(0, (0, 1))
    buffer.prefetch(1)
    buffer._settle()
    assert [partition for partition, _ in read] == [0, 1, 2], "before the second visit asks for it"
    assert {thread for _, thread in read} == {"weft-partitions"}
    buffer.close()


def test_only_versions_that_somebody_needs_are_kept(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    buffer = Buffer(files, 2)
    files.pinned = {(1, 1), (3, 9)}
    visited(buffer, 4, 2)
    buffer.flush()
    versions = {(partition, version) for partition, version in enumerate(buffer.versions)}
    expected = {files.path(*each).name for each in versions | {(1, 1)}}
    assert {path.name for path in tmp_path.iterdir()} == expected
    files.pinned = set()
    files.tidy(buffer.versions)
    assert {path.name for path in tmp_path.iterdir()} == {files.path(*each).name for each in versions}
    buffer.close()


def test_a_full_disk_is_told_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_in(tmp_path)
    buffer = Buffer(files, 2)
    visited(buffer, 4, 2, epochs=1)
    buffer.flush()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(file: Any, part: Any) -> None:
        file.write(b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("weft.strategies.buckets.partition_files._pour", full)
    files.pinned = set(enumerate(buffer.versions))
    with pytest.raises(TrainingError, match="No space left on device; free some space and continue with"):
        visited(buffer, 4, 2, epochs=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    buffer.close()


def test_a_slow_disk_is_waited_for_while_partitions_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    files = files_in(tmp_path)
    files.read = lambda *_: time.sleep(0.3)  # type: ignore[method-assign]
    buffer = Buffer(files, 4)
    buffer.begin([(0, 1, 2, 3)])
    buffer.prefetch(0)
    buffer.hand_over(())  # behind all that was asked before
    buffer.close()
    assert buffer.waited > 1.0


def test_a_disk_that_hangs_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    files, go = files_in(tmp_path), threading.Event()
    files.read = lambda *_: go.wait(30) and None  # type: ignore[method-assign,assignment,return-value]
    buffer = Buffer(files, 2)
    buffer.begin([(0, 1)])
    with pytest.raises(TrainingError, match="partition 0: the disk gave no answer in"):
        buffer.visit(0, (0, 1))
    go.set()
    buffer.close()
