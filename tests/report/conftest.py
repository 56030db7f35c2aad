from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from . import samples

Draw = Callable[..., str]


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    """Write a run folder, draw its report, and return the page."""
    from weft.report import write_report

    def drawn(
        meta: Mapping[str, Any] | None = None,
        events: Iterable[Mapping[str, Any]] | None = None,
        *,
        name: str = "run",
    ) -> str:
        folder = samples.write_run(
            tmp_path / name,
            samples.meta() if meta is None else meta,
            samples.events() if events is None else events,
        )
        return write_report(folder).read_text(encoding="utf-8")

    return drawn
