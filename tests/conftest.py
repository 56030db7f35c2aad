"""What all tests share: modules in tests/support can be imported by name."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft import process

process.prepare()  # before torch is loaded
# What a thread of one test still hears of a store that is gone is not to be read in the output of the next.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch  # noqa: E402

sys.path.append(str(Path(__file__).parent / "support"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Spark session on two cores for all tests of the process; skips where there is no Java."""
    from spark import spark_session

    yield from spark_session(tmp_path_factory.mktemp("spark"))


@pytest.fixture
def nan_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill memory that torch.empty gives with NaN (or a large number), so that a forgotten write shows."""
    for name in ("empty", "empty_like"):
        make = getattr(torch, name)

        def filled(*args: object, make: object = make, **options: object) -> torch.Tensor:
            out: torch.Tensor = make(*args, **options)  # type: ignore[operator]
            many = 123_456_789 if out.dtype != torch.uint8 else 123
            return out.fill_(float("nan") if out.is_floating_point() else many)

        monkeypatch.setattr(torch, name, filled)
