"""A Python process of Spark's that is killed: its task is run again, and no row differs."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flatten_graphs import typed_with_times
from spark import GROUP

from weft.pipeline.flatten.flattening import flatten
from weft.pipeline.record_hops import read_records


@GROUP
@pytest.mark.usefixtures("spark")
def test_a_killed_python_worker_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.pipeline.engines.spark import Spark

    typed_with_times().save(tmp_path / "g")
    options: dict[str, Any] = {"fanout": [3], "targets": "labelled", "seed": 7, "weight": "weight"}
    flatten(tmp_path / "g", tmp_path / "wanted", **options)
    whole, marks = Spark.map, tmp_path / "marks"
    marks.mkdir()

    def deadly(engine: Spark, table: str, query: str, function: Callable[[Any], Any], schema: Any) -> int:
        mark = marks / table

        def once(batch: Any) -> Any:
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return function(batch)

        return whole(engine, table, query, once, schema)

    monkeypatch.setattr(Spark, "map", deadly)
    flatten(tmp_path / "g", tmp_path / "r", engine="spark", **options)
    assert [path.name for path in marks.iterdir()] == ["numbered"], "a process that draws was killed"
    assert read_records(tmp_path / "r").equals(read_records(tmp_path / "wanted"))
