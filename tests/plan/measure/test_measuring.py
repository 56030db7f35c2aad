"""`weft plan --measure`: trial runs, processes and links, kept for later plans and shown."""

import json
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.plan.machine import read_machine
from weft.plan.measure import measuring, processes


@pytest.mark.slow
def test_a_machine_is_measured_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["plan", "--measure", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = read_machine()
    assert found is not None
    assert dict(found.measured) == told["machine"]
    assert 1e-6 < found.latency < 1
    assert 0 <= found.call < 1
    assert found.bandwidth > 1e6
    assert 50 << 20 < found.resident < 4 << 30
    assert all(rate > 0 for rate in found.rates.values())


def test_what_cannot_be_measured_is_assumed_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LIMIT", 0.01)
    missing: list[str] = []
    found = measuring._or_assumed(lambda: processes.tiny_run(1), measuring.PROCESS, missing)
    assert found == measuring.PROCESS
    assert missing == ["processes of 400 MiB that start in 4 s: took longer than 0.01 s"]
    monkeypatch.setattr(processes, "LIMIT", 30.0)
    monkeypatch.setattr(processes, "_TINY", ("no.such=1",))
    measuring._or_assumed(lambda: processes.tiny_run(1), measuring.PROCESS, missing)
    assert "a trial run failed" in missing[1]
    assert "\n" not in missing[1]
