"""What all tests share: modules in tests/support can be imported by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "support"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Spark session on two cores for all tests of the process; skips where there is no Java."""
    from spark import spark_session

    yield from spark_session(tmp_path_factory.mktemp("spark"))
