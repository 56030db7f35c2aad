"""`weft selftest` holds here, and fails when a check does not."""

import pytest

from weft.cli import selftest
from weft.cli.main import main
from weft.kernels import native


def test_everything_holds_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    if not native.available():
        pytest.skip("the native core is not built")
    assert main(["selftest"]) == 0
    shown = capsys.readouterr().out
    assert "all checks hold" in shown
    for part in ("kernels", "draws", "training"):
        assert part in shown


def test_a_check_that_fails_is_shown_and_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selftest, "VECTOR_KEY", 1)
    assert main(["selftest", "draws"]) == 1
    assert "FAILED  key of a draw" in " ".join(capsys.readouterr().out.split()).replace("FAILED ", "FAILED  ")
