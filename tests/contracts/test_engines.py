"""Every engine runs the steps that algorithms are written in, whole and in order."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark import GROUP

from weft.cli.main import main
from weft.errors import InputError, RecipeError
from weft.graph import Graph
from weft.pipeline.engines.base import Engine, engines, open_engine
from weft.pipeline.engines.duckdb import DuckDB
from weft.pipeline.infer.inference import Setting, infer_run
from weft.pipeline.ingest.ingestion import _open_engine

MARKS = {"spark": GROUP}
NAMES = [pytest.param(name, marks=MARKS.get(name, ())) for name in engines.names()]


@pytest.fixture(params=NAMES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """Return an engine that keeps its tables in a folder."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return open_engine(request.param, tmp_path / "engine")


def test_steps_join_and_count(engine: Engine) -> None:
    with engine:
        engine.arrow("people", pa.table({"id": ["a", "b"], "row": [0, 1]}))
        engine.arrow("knows", pa.table({"src": ["b", "c"]}))
        assert engine.step("found", 'SELECT p."row" FROM knows k LEFT JOIN people p ON k.src = p.id') == 2
        assert sorted(engine.rows("SELECT * FROM found"), key=str) == [(1,), (None,)]
        engine.view("none", 'SELECT "row" FROM found WHERE "row" IS NULL')
        assert engine.value("SELECT count(*) FROM none") == 1
        # A step may read the table that it replaces.
        assert engine.step("found", 'SELECT "row" FROM found WHERE "row" IS NOT NULL') == 1
        assert engine.rows("SELECT * FROM found") == [(1,)]
        engine.drop("found")
        assert not engine.has("found")
        assert engine.has("people")


def test_batches_come_in_order_and_a_function_is_mapped_over_them(engine: Engine) -> None:
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"twice": pa.array(2 * batch.column(0).to_numpy())})

    with engine:
        engine.arrow("numbers", pa.table({"i": list(range(300000))}))
        batches = engine.batches("SELECT i FROM numbers ORDER BY i")
        seen = [value for batch in batches for value in batch.column(0).to_pylist()]
        assert seen == list(range(300000))
        made = engine.map("doubled", "SELECT i FROM numbers", double, pa.schema({"twice": pa.int64()}))
        assert made == 300000
        assert engine.value("SELECT sum(twice) FROM doubled") == 2 * sum(range(300000))


def test_rows_are_made_of_numbers_and_whole_groups_are_given_to_a_function(engine: Engine) -> None:
    def make(number: int) -> pa.RecordBatch:
        return pa.record_batch({"number": np.full(1000, number), "part": np.arange(1000) % 3})

    def count(rows: pa.Table) -> pa.RecordBatch:
        part = rows.column("part").to_numpy()
        assert len(set(part)) == 1
        return pa.record_batch({"part": part[:1], "rows": [len(part)]})

    with engine:
        schema = pa.schema({"number": pa.int64(), "part": pa.int64()})
        assert engine.generate("rows", 4, make, schema) == 4000
        assert engine.rows("SELECT number, count(*) FROM rows GROUP BY number ORDER BY number") == [
            (number, 1000) for number in range(4)
        ]
        counted = pa.schema({"part": pa.int64(), "rows": pa.int64()})
        assert engine.groups("counted", "SELECT * FROM rows WHERE part < 2", "part", 3, count, counted) == 2
        assert engine.rows("SELECT * FROM counted ORDER BY part") == [(0, 4 * 334), (1, 4 * 333)]


def test_files_are_read_and_written_in_order(engine: Engine, tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": list(range(1000))}), tmp_path / "a[1].parquet")
    pq.write_table(pa.table({"i": list(range(1000, 1500))}), tmp_path / "b.parquet")
    with engine:
        engine.parquet("values_of_both", [tmp_path / "a[1].parquet", tmp_path / "b.parquet"])
        engine.write("SELECT i, i % 7 AS k FROM values_of_both ORDER BY k, i", tmp_path / "c.parquet")
    wanted = sorted(range(1500), key=lambda value: (value % 7, value))
    assert pq.read_table(tmp_path / "c.parquet").column("i").to_pylist() == wanted


def test_a_step_that_fails_leaves_the_table_as_it_was(engine: Engine) -> None:
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("the function said no")

    with engine:
        engine.arrow("kept", pa.table({"i": [1, 2]}))
        with pytest.raises(ValueError, match="nowhere"):
            engine.step("kept", "SELECT * FROM nowhere")
        with pytest.raises(ValueError, match="the function said no"):
            engine.map("kept", "SELECT i FROM kept", fail, pa.schema({"i": pa.int64()}))
        assert engine.rows("SELECT i FROM kept ORDER BY i") == [(1,), (2,)]


def test_rows_of_files_have_their_places_whatever_columns_are_called(engine: Engine, tmp_path: Path) -> None:
    hiding = {column: [5, 6, 7] for column in ("_metadata", "File_Row_Number", "file_index", "filename")}
    days = [datetime(1970, 1, 2, tzinfo=UTC), None, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]
    held = {"a b": [0, 1, 2], "list": [[1.5, None], None, [2.0]], "day": pa.array(days, pa.timestamp("us"))}
    files = {tmp_path / f"{number} #1%20.parquet": 10 * number for number in (2, 1)}
    for path in files:
        pq.write_table(pa.table({**held, **hiding}), path)
    with engine:
        rows = engine.rows_of(files, [*held, *hiding], "place")
        length = engine.length(engine.floats('"list"'))
        columns = f'place, "a b", "FILENAME", {length}, {engine.microseconds("day")}'
        day, second = 86_400_000_000, 1_000_000
        expected = [(0, 5, 2, day), (1, 6, None, None), (2, 7, 1, -second)]
        assert engine.rows(f"SELECT {columns} FROM {rows} ORDER BY place") == [
            (start + number, number, *rest) for start in (10, 20) for number, *rest in expected
        ]


class Own(DuckDB):
    """An engine of the test's own, which is told where to run and keeps nothing."""

    on_cluster = True
    keeps = False

    def __init__(self, folder: Path, *, memory: Any = None, master: str = "", settings: Any = None) -> None:
        super().__init__(folder, memory=memory)
        self.master = master


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engines.names()
    monkeypatch.setitem(engines._entries, "own", Own)


@pytest.mark.usefixtures("own")
def test_an_engine_is_told_where_to_run_where_its_class_says_so(tmp_path: Path) -> None:
    with open_engine("own", tmp_path / "own", master="here") as opened:
        assert isinstance(opened, Own)
        assert opened.master == "here"
    with pytest.raises(RecipeError, match="are for --engine own or spark; the engine is duckdb"):
        open_engine("duckdb", tmp_path / "other", master="here")
    with pytest.raises(InputError, match="are for --engine own or spark; the engine is torch"):
        infer_run("run", tmp_path / "out", setting=Setting(master="here"))


@pytest.mark.usefixtures("own")
def test_ingest_runs_on_an_engine_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("edges.csv").write_text("src,dst\na,b\nb,c\n")
    assert main(["ingest", "edges=edges.csv", "--engine", "own", "--out", "graph"]) == 0
    assert Graph.load("graph").num_edges == 2
    monkeypatch.setattr(Own, "keeps", True)  # what its constructor does not take
    with pytest.raises(TypeError, match="keep"):
        _open_engine("own", tmp_path / "work", None, None)


@pytest.mark.usefixtures("own")
def test_commands_name_the_engines_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("infer", "flatten", "ingest"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        told = capsys.readouterr().out
        assert all(name in told for name in ("duckdb", "own", "spark"))
    with pytest.raises(SystemExit):
        main(["infer", "run", "--out", "out", "--engine", "flink"])
    assert "'flink'" in capsys.readouterr().err
