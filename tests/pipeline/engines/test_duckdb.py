"""DuckDB runs the steps, keeps order, spills, and says in one line what went wrong."""

from pathlib import Path

import pytest

from weft.errors import InputError, MissingExtra
from weft.pipeline.engines.base import text
from weft.pipeline.engines.duckdb import DuckDB


def test_parquet_is_written_in_order_and_read_by_letters_not_as_a_pattern(tmp_path: Path) -> None:
    with DuckDB() as engine:
        for place in ("a[1].parquet", "a1.parquet"):
            engine.write(f"SELECT {text(place)} AS name", tmp_path / place)
        engine.parquet("read", [tmp_path / "a[1].parquet"])
        assert engine.rows("SELECT name FROM read") == [("a[1].parquet",)]


def test_a_signal_that_duckdb_itself_noticed_is_an_interrupt() -> None:
    with DuckDB() as engine:
        with pytest.raises(KeyboardInterrupt), engine._told():
            raise RuntimeError("Query interrupted")
        with pytest.raises(RuntimeError, match="something else"), engine._told():
            raise RuntimeError("something else")


def test_a_memory_limit_below_need_is_one_line() -> None:
    with DuckDB(memory="8MB") as engine, pytest.raises(InputError, match=r"limit of 7.63 MiB .* --memory"):
        engine.step("large", "SELECT i, i::VARCHAR FROM range(3000000) t(i)")


def test_a_long_step_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.pipeline.engines.duckdb.LOOK", 0.001)
    seen: list[float] = []
    with DuckDB(watch=seen.append) as engine:
        engine.step("rows", "SELECT hash(i) AS h FROM range(1000000) t(i)")
        engine.value("SELECT count(*) FROM rows x JOIN rows y ON x.h = y.h")
    assert all(0 <= share <= 1 for share in seen)
    assert seen


def test_a_missing_package_answers_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise ImportError

    monkeypatch.setattr("weft.registry.import_module", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'weft\[data\]'"):
        DuckDB()


def test_joins_as_written_hold_the_right_side_however_few_rows_a_text_file_seems_to_have(
    tmp_path: Path,
) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("src\n" + "a\n" * 100_000)
    query = f"EXPLAIN SELECT * FROM read_csv({text(str(path))}) e LEFT JOIN nodes n ON e.src = n.id"
    with DuckDB() as engine:
        engine.step("nodes", "SELECT i::VARCHAR AS id FROM range(100000) t(i)")
        assert "RIGHT" in engine.rows(query)[0][1], "DuckDB knows better now: as_written() may go"
        with engine.as_written():
            assert "LEFT" in engine.rows(query)[0][1]
        assert "RIGHT" in engine.rows(query)[0][1]
