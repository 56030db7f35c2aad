"""Tables become graphs that weft loads: ids, features, labels, splits, times and weights as they were."""

import os
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spark import GROUP
from tables import (
    KNOWS,
    PEOPLE,
    edge_file,
    edges_of,
    graph_of,
    ids_of,
    schema_of,
    small_disk,
    write_csv,
    write_parquet,
    write_text,
)

import weft
from weft import format
from weft.cli.main import main
from weft.errors import FormatError, InputError
from weft.meaning import read_report
from weft.pipeline.ingest import ingestion as module
from weft.pipeline.ingest.ingestion import ingest


def test_parquet_with_string_ids_features_labels_splits_and_weights(tmp_path: Path) -> None:
    nodes = write_parquet(tmp_path / "people.parquet", PEOPLE)
    edges = write_parquet(tmp_path / "knows.parquet", KNOWS)
    sections = {
        "nodes": {"node": {"features": ["age", "vector"], "label": "job", "split": "split"}},
        "edges": {"edge": {"weight": "weight"}},
    }
    graph = graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edges}", sections=sections)
    assert ids_of(graph) == PEOPLE["id"]
    assert edges_of(graph) == [(0, 1), (1, 0), (2, 1), (3, 2)]
    assert graph.x.tolist() == [[31, 0, 1], [44, 1, 0], [28, 0.5, 0.5], [60, 2, 3]]
    assert graph.y.tolist() == [0, 1, 0, -1]
    assert graph.train_mask.tolist() == [True, True, False, False]
    assert graph.test_mask is None  # nobody is in it
    assert graph.edge_data["weight"].tolist() == [1.0, 0.5, 2.0, 1.5]  # in canonical order
    told = read_report(tmp_path / "g")
    assert told["classes"] == {"node": ["cook", "smith"]}
    assert told["features"] == {"node": ["age", "vector[0]", "vector[1]"]}
    assert not list(tmp_path.glob(".g*"))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_small_graph_is_what_from_types_makes_of_it(data: st.DataObject, tmp_path: Path) -> None:
    """Empty tables, one node, isolated nodes, loops, repeated edges; two types, two relations, edge data."""
    sizes = {"a": data.draw(st.integers(1, 5)), "b": data.draw(st.integers(0, 4))}
    relations = [("a", "r", "a"), ("a", "s", "b"), ("b", "t", "a")]
    nodes, edges, tables = {}, {}, []
    for kind, size in sizes.items():
        write_parquet(tmp_path / f"{kind}.parquet", {"id": pa.array(range(100, 100 + size), pa.int64()),
                                                      "f": pa.array(np.arange(size) * 0.5)})  # fmt: skip
        tables.append(f"nodes.{kind}={tmp_path}/{kind}.parquet")
        nodes[kind] = {"x": np.arange(size, dtype=np.float32)[:, None] * 0.5, "num_nodes": size}
    for place, (src, name, dst) in enumerate(relations):
        most = 6 if sizes[src] and sizes[dst] else 0
        pairs = data.draw(
            st.lists(
                st.tuples(st.integers(0, max(sizes[src] - 1, 0)), st.integers(0, max(sizes[dst] - 1, 0))),
                max_size=most,
            )
        )
        index = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        columns = {"src": pa.array(index[0] + 100), "dst": pa.array(index[1] + 100)}
        edges[(src, name, dst)] = {"edge_index": index}
        if place < 2:
            weight = np.arange(len(pairs), dtype=np.float32) + 2
            columns["weight"] = pa.array(weight)
            edges[(src, name, dst)]["edge_weight"] = weight
        write_parquet(tmp_path / f"{name}.parquet", columns)
        tables.append(f"edges.{src}.{name}.{dst}={tmp_path}/{name}.parquet")
    ingest(schema_of(tables), tmp_path / "g", overwrite=True, memory="500MB")
    found, wanted = weft.load(tmp_path / "g"), weft.Graph.from_types(nodes, edges)
    assert found.node_types == wanted.node_types
    assert found.edge_types == wanted.edge_types
    for name in ("indptr", "indices", "edge_ids", "edge_type", "edge_index"):
        one, two = getattr(found, name), getattr(wanted, name)
        assert one.dtype == two.dtype, name
        assert torch.equal(one, two), name
    assert torch.equal(found.edge_data["weight"], wanted.edge_data["weight"])
    assert found._parts.edge_columns == wanted._parts.edge_columns
    for kind in sizes:
        assert torch.equal(found.x[kind], wanted.x[kind])


def test_nothing_is_left_when_the_tables_are_wrong(tmp_path: Path) -> None:
    nodes = write_parquet(tmp_path / "n.parquet", {"id": [1, 2]})
    with pytest.raises(InputError, match=r"row 1, column 'dst': no node has the id 3; --fix drop-dangling"):
        ingest(schema_of([f"nodes={nodes}", f"edges={edge_file(tmp_path, 1, 3)}"]), tmp_path / "out" / "g")
    assert os.listdir(tmp_path / "out") == []


def test_a_folder_that_is_there_is_replaced_only_when_asked(tmp_path: Path) -> None:
    tables = [f"edges={edge_file(tmp_path, 1, 2)}"]
    graph_of(tmp_path / "g", *tables)
    with pytest.raises(FormatError, match="already exists"):
        graph_of(tmp_path / "g", *tables)


def test_a_memory_limit_below_need_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    rows = 200_000
    columns = {"src": [f"user-{row:08d}" for row in range(rows)], "dst": ["user-00000001"] * rows}
    edges = write_parquet(tmp_path / "e.parquet", columns)
    with pytest.raises(InputError, match=r"a memory limit of 5.72 MiB is too small .* --memory"):
        ingest(schema_of([f"edges={edges}"]), tmp_path / "out" / "g", memory="6MB")
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o555)
    with pytest.raises(FormatError, match=r"cannot write .*: Permission denied"):
        graph_of(tmp_path / "locked" / "g", f"edges={edge_file(tmp_path, 1, 2)}")


def test_a_read_only_file_system_is_one_line(tmp_path: Path) -> None:
    edges = edge_file(tmp_path, 1, 2)
    with small_disk(tmp_path / "disk", "size=1m,ro") as disk, pytest.raises(FormatError, match="Read-only"):
        graph_of(disk / "g", f"edges={edges}")


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    rows = 300_000
    columns = {"src": [f"user-{row:08d}" for row in range(rows)], "dst": ["user-00000001"] * rows}
    edges = write_parquet(tmp_path / "e.parquet", columns)
    with small_disk(tmp_path / "disk", "size=3m") as disk:
        with pytest.raises(FormatError, match=r"space"):
            ingest(schema_of([f"edges={edges}"]), disk / "g", memory="500MB")
        assert os.listdir(disk) == []


@pytest.mark.parametrize("stage", ["write", "seal"])
def test_a_disk_that_is_full_at_the_end_is_one_line_and_leaves_nothing(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up after the arrays are written, or before the manifest is."""
    edges = edge_file(tmp_path, 1, 2)
    owner, name = {"write": (module._Writer, "write"), "seal": (format, "seal_directory")}[stage]
    real = getattr(owner, name)

    with small_disk(tmp_path / "disk", "size=4m") as disk:

        def fill_up() -> None:
            with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass

        def filled_after(*given: Any, **named: Any) -> Any:
            made = real(*given, **named)
            fill_up()
            return made

        def filled_before(*given: Any, **named: Any) -> Any:
            fill_up()
            return real(*given, **named)

        monkeypatch.setattr(owner, name, filled_after if stage == "write" else filled_before)
        with pytest.raises(FormatError, match="No space left on device") as told:
            graph_of(disk / "g", f"edges={edges}")
        assert "\n" not in str(told.value)
        assert os.listdir(disk) == ["filler"]


def test_an_ingest_that_was_killed_continues(tmp_path: Path) -> None:
    nodes = write_parquet(tmp_path / "n.parquet", {"id": [5, 6]})
    edges = edge_file(tmp_path, 5, 6)
    code = f"""
import os, sys
from weft.pipeline.ingest import ingestion as module
from weft.pipeline.schema import Schema, add_files
module._Writer.write = lambda self: os._exit(9)
module.ingest(add_files(Schema(), ["nodes={nodes}", "edges={edges}"]), {str(tmp_path / "g")!r})
"""
    killed = subprocess.run([sys.executable, "-c", code], timeout=120)
    assert killed.returncode == 9
    assert (tmp_path / ".g.work").exists()
    said: list[str] = []
    ingest(schema_of([f"nodes={nodes}", f"edges={edges}"]), tmp_path / "g", say=said.append)
    assert said[0] == "continuing an interrupted ingest"
    assert edges_of(weft.load(tmp_path / "g")) == [(0, 1)]
    assert not list(tmp_path.glob(".g*"))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_tables_larger_than_memory_are_spilled(tmp_path: Path, form: str) -> None:
    rows, size = 400_000, 100_000
    order = np.random.default_rng(0).integers(0, size, (2, rows))
    names = np.array([f"a-rather-long-name-of-a-user-{row:08d}" for row in range(size)])
    write = write_parquet if form == "parquet" else write_csv
    edges = write(tmp_path / f"e.{form}", {"src": names[order[0]], "dst": names[order[1]]})
    nodes = write(tmp_path / f"n.{form}", {"id": names})
    ingest(schema_of([f"nodes={nodes}", f"edges={edges}"]), tmp_path / "g", memory="60MB")
    graph = weft.load(tmp_path / "g")
    assert torch.equal(graph.edge_index, torch.from_numpy(order))


def test_an_ingested_graph_trains(tmp_path: Path) -> None:
    nodes = write_parquet(tmp_path / "n.parquet", PEOPLE)
    edges = write_parquet(tmp_path / "e.parquet", KNOWS)
    sections = {"nodes": {"node": {"features": ["vector"], "label": "job", "split": "split"}}}
    graph = graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edges}", sections=sections)
    assert weft.train(graph, "sage", epochs=2, hidden=4).epochs == 2


def _typed_tables(folder: Path) -> list[str]:
    """Return tables of two types, three relations and several files, with all that a schema can ask for."""
    ours = {"_metadata": [3, 2, 1, 0], "pos": [3, 2, 1, 0], "File_Row_Number": [0, 0, 0, 0]}
    words = ["ünï", "007", "a'b", 'q"', "x y", "7", "日本", "new\nline"]
    for place in range(2):
        at = slice(4 * place, 4 * place + 4)
        people = {
            "id": words[at], "vector": [[float(i), 0.5] for i in range(at.start, at.stop)],
            "age": [31, 44, 28, 60], "city": ["Oslo", None, "Rome", "Rome"],
            "job": [["cook", "smith", None, "cook"], ["smith", "cook", "cook", None]][place],
            "split": [["train", "train", None, "val"], ["Test", "train", "valid", None]][place], **ours,
        }  # fmt: skip
        write_parquet(folder / f"people/{place}.parquet", people)
        ends = {"src": [words[7 - i] for i in range(4)], "dst": words[at], "w": [1.0, 0.1, 3.0, 4.5]}
        when = [datetime(2024, 1, day + 1, 10, 30, tzinfo=UTC) for day in range(4)]
        aims = {"stars": [4, -10, None, place], "part": ["train", "VAL", None, "test"]}
        write_parquet(
            folder / f"knows/{place}.parquet", {**ends, "when": when, "f": [1, 2, 3, place], **aims}
        )
    write_parquet(
        folder / "towns.parquet", {"key": pa.array([2**63, 5, 2**64 - 1], pa.uint64()), "f": [1.0, 2, 3]}
    )
    live = {"src": [words[1], words[0], None], "dst": pa.array([5, 2**63, 5], pa.uint64())}
    write_parquet(folder / "lives.parquet", live)
    write_parquet(folder / "implied.parquet", {"src": [9, 7, 9, 8], "dst": words[:4]})
    text = """
[nodes.person]
files = ["people"]
features = ["vector", "age", { column = "city", encode = "one-hot" }]
label = "job"
split = "split"
[nodes.town]
files = ["towns.parquet"]
id = "key"
features = ["f"]
[edges.knows]
source = "person"
target = "person"
files = ["knows/*.parquet"]
weight = "w"
time = "when"
features = ["f"]
label = { column = "stars", encode = "number" }
split = "part"
[edges.lives]
source = "person"
target = "town"
files = ["lives.parquet"]
[edges.owns]
source = "thing"
target = "person"
files = ["implied.parquet"]
"""
    (folder / "schema.toml").write_text(text)
    return ["--schema", str(folder / "schema.toml"), "--fix", "drop-null-ids"]


def _same_by_both(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Ingest by DuckDB and by Spark: the same arrays byte for byte, the same ids, the same report."""
    for engine in ("duckdb", "spark"):
        made = ["ingest", *words, "--engine", engine, "--out", str(folder / engine)]
        assert main(made) == 0, capsys.readouterr().err
    capsys.readouterr()
    arrays = sorted(path.name for path in (folder / "duckdb").glob("*.npy"))
    assert len(arrays) > 5
    for name in arrays:
        assert (folder / "spark" / name).read_bytes() == (folder / "duckdb" / name).read_bytes(), name
    for name in sorted(path.name for path in (folder / "duckdb").glob("*.parquet")):
        found, expected = (
            pq.read_table(folder / engine / name).to_pydict() for engine in ("spark", "duckdb")
        )
        assert found == expected, name
    assert read_report(folder / "spark") == read_report(folder / "duckdb")
    assert not list(folder.glob(".spark*"))


@GROUP
@pytest.mark.usefixtures("spark")
def test_spark_and_duckdb_make_the_same_graph_byte_for_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, ids in enumerate((["b", "007", "ünï"], ["a", "7"])):
        some = slice(None, len(ids))
        split = {"split": [["train", None, "val"], ["train", "test"]][place], "_metadata": [2, 1, 0][some]}
        write_parquet(tmp_path / f"n{place}.parquet", {"id": ids, "f": [3, 1, 2][some], **split})
    ends = {"src": ["7", "7", "b"], "dst": ["b", "ünï", "b"], "f": [0.5, 2.5, 1]}
    tables = f"nodes={tmp_path}/n*.parquet", f"edges={write_parquet(tmp_path / 'e.parquet', ends)}"
    _same_by_both(tmp_path, [*tables], capsys)
    text = write_text(tmp_path / "p.csv", "id,f\na,1\n")
    assert main(["ingest", f"nodes={text}", "--out", str(tmp_path / "refused"), "--engine", "spark"]) == 2
    assert f"{text} is text, which this engine does not read; write Parquet" in capsys.readouterr().err
    assert not list(tmp_path.glob("*refused*"))


@GROUP
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_spark_and_duckdb_make_the_same_typed_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One-hot columns, lists, labels, times, ids above 2^63, implied nodes, a fix; or one line."""
    words = _typed_tables(tmp_path)
    _same_by_both(tmp_path, words, capsys)
    assert main(["ingest", *words[:2], "--engine", "spark", "--out", str(tmp_path / "refused")]) == 2
    assert "lives.parquet, row 3, column 'src': the edge has no id here" in capsys.readouterr().err
    assert not list(tmp_path.glob("*refused*"))


@GROUP
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_spark_and_duckdb_make_the_same_graph_of_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = [("b", "likes", "a"), ("a", "knows", "c"), ("c", "likes", "a")]
    for name, rows in (("train", facts[:2]), ("test", facts[2:])):
        (tmp_path / name).mkdir()
        for place, row in enumerate(rows):
            columns = {key: [value] for key, value in zip(("head", "relation", "tail"), row)}
            write_parquet(tmp_path / name / f"part-{place}.parquet", columns)
    _same_by_both(tmp_path, [f"triples.{name}={tmp_path / name}" for name in ("train", "test")], capsys)


def test_the_last_stages_tell_how_far_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns and edges come in batches, of which DuckDB counts no share."""
    monkeypatch.setattr("weft.pipeline.engines.duckdb.BATCH", 2048)
    monkeypatch.setattr("weft.pipeline.engines.duckdb.LOOK", 60.0)
    rows = np.arange(20_000)
    nodes = write_parquet(tmp_path / "n.parquet", {"id": rows, "x": rows / 7})
    edges = write_parquet(tmp_path / "e.parquet", {"src": rows, "dst": (rows * 7919) % 20_000})
    seen: list[float] = []
    ingest(schema_of([f"nodes={nodes}", f"edges={edges}"]), tmp_path / "g", watch=seen.append)
    whole = [place for place, share in enumerate(seen) if share == 1]
    assert len(whole) == 2
    for stage in (seen[: whole[0] + 1], seen[whole[0] + 1 :]):
        assert stage == sorted(stage)
        assert len(stage) > 3
