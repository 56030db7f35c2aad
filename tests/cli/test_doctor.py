"""`weft doctor` says what is there, what is missing and how to get it."""

import json
import tomllib
from pathlib import Path

import pytest

from weft.cli import doctor
from weft.cli.main import main


def test_json_has_every_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"versions", "native core", "machine", "extras", "missing"} == set(found)
    assert found["machine"]["cpus"] >= 1
    assert isinstance(found["native core"]["available"], bool)


def test_a_missing_extra_comes_with_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"no_such_package": ("pyg", "nothing")})
    assert main(["doctor"]) == 0
    assert "pip install 'weft[pyg]'" in capsys.readouterr().out


def test_every_extra_of_the_package_is_looked_for() -> None:
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert {extra for extra, _ in doctor.EXTRAS.values()} == set(extras) - {"dev"}
