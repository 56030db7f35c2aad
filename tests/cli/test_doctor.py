"""`weft doctor` says what is there, what is missing and how to get it."""

import json

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
