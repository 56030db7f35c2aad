"""What memory is left, by whatever limits there are."""

from pathlib import Path

import pytest

from weft import machine


def test_either_version_of_control_groups_limits(tmp_path: Path) -> None:
    assert machine.left_in(tmp_path) == [None, None]
    (tmp_path / "memory.max").write_text("5000")
    (tmp_path / "memory.current").write_text("2000")
    assert machine.left_in(tmp_path) == [3000, None]
    (tmp_path / "memory.max").write_text("max")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("900")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("1000")
    assert machine.left_in(tmp_path) == [None, -100]


def test_the_tightest_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = machine.free_memory()
    assert free > 0
    (tmp_path / "memory.max").write_text("5000")
    (tmp_path / "memory.current").write_text("2000")
    monkeypatch.setattr(machine, "_CONTAINER", tmp_path)
    assert machine.free_memory() == 3000
    (tmp_path / "memory.current").write_text("6000")
    assert machine.free_memory() == 0
