"""What memory and which cores are left, by whatever limits there are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft import machine


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Control groups of the test's own; this process is in /jobs/mine of the second version."""
    (tmp_path / "membership").write_text("0::/jobs/mine\n")
    monkeypatch.setattr(machine, "_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(machine, "_CONTAINER", tmp_path)
    (tmp_path / "jobs" / "mine").mkdir(parents=True)
    return tmp_path


def test_either_version_of_control_groups_limits_memory(tmp_path: Path) -> None:
    assert machine.left_in(tmp_path) is None
    (tmp_path / "memory.max").write_text("5000")
    (tmp_path / "memory.current").write_text("2000")
    assert machine.left_in(tmp_path) == 3000
    (tmp_path / "memory.max").write_text("max")
    (tmp_path / "memory.limit_in_bytes").write_text("900")
    (tmp_path / "memory.usage_in_bytes").write_text("1000")
    assert machine.left_in(tmp_path) == -100


@pytest.mark.parametrize("folder", ["", "memory", "jobs", "jobs/mine"])
def test_the_tightest_limit_counts_wherever_it_is(container: Path, folder: str) -> None:
    assert machine.free_memory() > 10_000
    (container / folder).mkdir(exist_ok=True)
    (container / folder / "memory.max").write_text("5000")
    (container / folder / "memory.current").write_text("2000")
    assert machine.free_memory() == 3000
    (container / folder / "memory.current").write_text("6000")
    assert machine.free_memory() == 0


@pytest.mark.parametrize("name", ["memory.events", "memory.oom_control"])
def test_kills_for_memory_are_counted_in_either_version(container: Path, name: str) -> None:
    before = machine.memory_kills() or 0
    (container / "memory").mkdir()
    (container / "memory" / name).write_text("oom 3\nunder_oom 0\noom_kill 2\n")
    assert machine.memory_kills() == before + 2
    (container / "memory" / name).write_text("oom_kill\n")
    assert machine.kills_in(container / "memory") is None


def test_groups_of_the_first_version_lie_in_folders_of_their_controllers(container: Path) -> None:
    (container / "membership").write_text("3:cpu,cpuacct:/mine\n4:memory:/other\n")
    found = set(machine.groups("cpu"))
    assert container / "cpu,cpuacct" / "mine" in found
    assert container / "memory" / "other" not in found
    assert container / "memory" / "other" in set(machine.groups("memory"))


@pytest.mark.parametrize(("quota", "cores"), [("150000", 2), ("100000", 1), ("20000", 1), ("max", 4)])
def test_a_quota_limits_cores(
    container: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    assert machine.usable_cores() == 4
    (container / "jobs" / "mine" / "cpu.max").write_text(f"{quota} 100000\n")
    assert machine.usable_cores() == cores


def test_a_quota_of_the_first_version_limits_cores(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    (container / "cpu").mkdir()
    (container / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (container / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert machine.usable_cores() == 4
    (container / "cpu" / "cpu.cfs_quota_us").write_text("300000\n")
    assert machine.usable_cores() == 3


_LIMITED = """
import resource
from pathlib import Path
from weft.machine import free_addresses, free_memory

assert free_addresses() is None
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
assert 48 << 20 < free_memory() <= 64 << 20, free_memory()
assert free_addresses() == free_memory()
resource.setrlimit(resource.RLIMIT_AS, (4096, resource.RLIM_INFINITY))
assert free_memory() == 0
"""


def test_a_limit_of_addresses_counts() -> None:
    done = subprocess.run([sys.executable, "-c", _LIMITED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
