"""Every engine runs the steps that algorithms are written in, whole and in order."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft.pipeline.engines.base import Engine, engines


def start(name: str, folder: Path) -> Engine:
    """Return an engine that spills to a folder."""
    return engines[name](folder)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", engines.names())
def test_steps_join_and_count(name: str, tmp_path: Path) -> None:
    with start(name, tmp_path) as engine:
        engine.arrow("people", pa.table({"id": ["a", "b"], "row": [0, 1]}))
        engine.arrow("knows", pa.table({"src": ["b", "c"]}))
        assert engine.step("found", 'SELECT p."row" FROM knows k LEFT JOIN people p ON k.src = p.id') == 2
        assert sorted(engine.rows("SELECT * FROM found"), key=str) == [(1,), (None,)]
        engine.drop("found")
        assert not engine.has("found")
        assert engine.has("people")


@pytest.mark.parametrize("name", engines.names())
def test_batches_come_in_order_and_a_function_is_mapped_over_them(name: str, tmp_path: Path) -> None:
    with start(name, tmp_path) as engine:
        engine.arrow("numbers", pa.table({"i": list(range(300000))}))
        batches = engine.batches("SELECT i FROM numbers ORDER BY i")
        seen = [value for batch in batches for value in batch.column(0).to_pylist()]
        assert seen == list(range(300000))

        def double(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch({"twice": pa.array([2 * value for value in batch.column(0).to_pylist()])})

        made = engine.map("doubled", "SELECT i FROM numbers", double, pa.schema({"twice": pa.int64()}))
        assert made == 300000
        assert engine.value("SELECT sum(twice) FROM doubled") == 2 * sum(range(300000))


@pytest.mark.parametrize("name", engines.names())
def test_files_are_read_and_written_in_order(name: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": list(range(1000))}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"i": list(range(1000, 1500))}), tmp_path / "b.parquet")
    with start(name, tmp_path / "spill") as engine:
        engine.parquet("values_of_both", [tmp_path / "a.parquet", tmp_path / "b.parquet"])
        engine.write("SELECT i, i % 7 AS k FROM values_of_both ORDER BY k, i", tmp_path / "c.parquet")
    wanted = sorted(range(1500), key=lambda value: (value % 7, value))
    assert pq.read_table(tmp_path / "c.parquet").column("i").to_pylist() == wanted


@pytest.mark.parametrize("name", engines.names())
def test_a_step_that_fails_leaves_the_table_as_it_was(name: str, tmp_path: Path) -> None:
    with start(name, tmp_path) as engine:
        engine.arrow("kept", pa.table({"i": [1, 2]}))
        with pytest.raises(ValueError, match="nowhere"):
            engine.step("kept", "SELECT * FROM nowhere")
        assert engine.rows("SELECT i FROM kept ORDER BY i") == [(1,), (2,)]
