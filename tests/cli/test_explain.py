"""`weft explain`: what becomes of the messages of a recipe's model."""

import pytest

from weft.cli.main import main


def test_it_tells_where_operators_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--set", "model.name=edgeconv", "--set", "data.nodes=200"]) == 0
    told = capsys.readouterr().out
    assert "reduced by max" in told
    assert "reads other" in told


def test_an_unknown_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--set", "model.name=nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
