"""What is put aside comes back as it was, and leaves nothing behind."""

import os
from pathlib import Path

import pytest
import torch

from weft.errors import InputError
from weft.strategies.memory.aside import Aside, aside_seconds

CPU = torch.device("cpu")


def test_bytes_come_back_and_are_shared_while_one_has_them(tmp_path: Path) -> None:
    rows = torch.randn(100, 7, dtype=torch.float64)
    aside = Aside(rows.untyped_storage(), tmp_path)
    expected = rows.clone()
    rows.zero_()
    found = torch.empty(0, dtype=torch.float64).set_(aside.storage(), 0, (100, 7))
    assert torch.equal(found, expected)
    assert aside.storage() is found.untyped_storage()
    del found
    again = torch.empty(0, dtype=torch.float64).set_(aside.storage(), 0, (100, 7))
    assert torch.equal(again, expected)


def test_no_file_has_a_name_and_none_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    aside = Aside(torch.ones(5).untyped_storage(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del aside
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_takes_no_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"put aside in .*gone: No such file.*; give more strategy.memory"):
        Aside(torch.ones(5).untyped_storage(), tmp_path / "gone")


def test_a_file_that_ends_early_is_told(tmp_path: Path) -> None:
    aside = Aside(torch.ones(5).untyped_storage(), tmp_path)
    aside._place.file.truncate(8)
    with pytest.raises(InputError, match="ends early"):
        aside.storage()


def test_moving_takes_time(tmp_path: Path) -> None:
    assert 0 < aside_seconds(CPU, tmp_path) < 1e-3
