"""What the tests of inference share."""

import pytest
from infer_cases import small_pieces


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have several pieces of a small graph."""
    small_pieces(monkeypatch)
