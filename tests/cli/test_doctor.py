"""`weft doctor` says what is there, what is missing and how to get it."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import plan_machine
import pytest

from weft import process
from weft.cli import doctor
from weft.cli.main import main
from weft.machine import usable_cores
from weft.plan.machine import keep_machine

ROOT = Path(__file__).resolve().parents[2]


def test_json_has_every_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"versions", "native core", "machine", "measured", "environment", "extras", "missing"} == set(
        found
    )
    assert found["machine"]["cpus"] >= 1
    assert isinstance(found["native core"]["available"], bool)


def test_what_a_plan_measured_is_shown_or_how_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["doctor"]) == 0
    assert "not measured yet: weft plan --measure" in capsys.readouterr().out
    kept = keep_machine(replace(plan_machine.machine(), cores=usable_cores()))
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"] == {"copies": "10 GB/s"}
    kept.write_text("{")
    assert main(["doctor"]) == 0
    assert "damaged" in capsys.readouterr().out


def test_a_missing_extra_comes_with_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"no_such_package": ("pyg", "nothing")})
    assert main(["doctor"]) == 0
    assert "pip install 'weft[pyg]'" in capsys.readouterr().out


def test_every_extra_of_the_package_is_looked_for() -> None:
    project = ROOT / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert {extra for extra, _ in doctor.EXTRAS.values()} == set(extras) - {"dev"}


def test_variables_that_are_set_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEFT_STALL", "99")
    monkeypatch.delenv("WEFT_TIMEOUT", raising=False)
    monkeypatch.setenv("WEFT_TOKEN", "what nobody may read")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if "WEFT_" in line and process.CHOSEN not in line]
    assert lines[0].split() == ["WEFT_STALL", "99"]
    assert len(lines) == 2
    assert "what nobody may read" not in shown


def test_variables_that_weft_chose_are_marked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(process.CHOSEN, "OMP_WAIT_POLICY=passive")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["environment"]
    assert (found["OMP_WAIT_POLICY"], found["OMP_NUM_THREADS"]) == ("passive (by weft)", "1")


def test_every_variable_of_the_code_is_looked_for_and_told() -> None:
    code = "".join(path.read_text() for path in (ROOT / "src" / "weft").rglob("*.py"))
    assert set(re.findall(r"\bWEFT_[A-Z]+\b", code)) <= set(doctor.VARIABLES)
    page = (ROOT / "docs" / "running-on-a-cluster.md").read_text()
    for name in doctor.VARIABLES:
        assert name in code
        assert any(line.startswith(f"| `{name}`") for line in page.splitlines()), name
