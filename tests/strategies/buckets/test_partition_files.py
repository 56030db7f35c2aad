"""Partitions as files: whole or refused, and first rows that depend on the node alone."""

from pathlib import Path

import numpy as np
import pytest
import torch

from weft.draw import Stream, draw, fold
from weft.errors import FormatError
from weft.strategies.buckets.division import Division
from weft.strategies.buckets.partition_files import PartitionFiles


def files_in(folder: Path, partitions: int = 4) -> PartitionFiles:
    return PartitionFiles(folder, Division(["node"], [0, 21], partitions, seed=1), 3, seed=5)


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    rows = files.empty(0)
    files.read(0, 0, rows)
    files.write(0, 3, rows)
    path = files.path(0, 3)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FormatError, match=r"expected .* bytes, found"):
        files.read(0, 3, rows)
    with pytest.raises(FormatError, match=r"expected .* bytes, found"):
        files.map(0, 3)
    for read in (lambda: files.read(0, 4, rows), lambda: files.map(0, 4)):
        with pytest.raises(FormatError, match=r"cannot read .*: No such file or directory; restore"):
            read()


def test_first_rows_depend_on_the_node_alone(tmp_path: Path) -> None:
    held: list[dict[int, list[float]]] = []
    for partitions in (1, 4):
        files = files_in(tmp_path, partitions)
        rows = {}
        for partition in range(partitions):
            into = files.empty(partition)
            files.read(partition, 0, into)
            rows |= dict(zip(files.division.ids(partition).tolist(), into.values.tolist()))
        held.append(rows)
    assert held[0] == held[1]
    bits = draw(fold(5, Stream.ROWS), np.array([7]), np.arange(3))  # a stream that no other draw of a run has
    expected = torch.from_numpy((bits + 0.5) * 2.0**-31 - 1.0).float() * 3.0**0.5 * 1e-3
    assert held[0][7] == pytest.approx(expected.tolist())
    assert 3e-4 < torch.tensor([*held[0].values()]).std() < 3e-3
