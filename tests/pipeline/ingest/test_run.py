"""Tables become graphs that weft loads: ids, features, labels, splits, times and weights as they were."""

import gzip
import os
import subprocess
import sys
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
    edges_of,
    graph_of,
    ids_of,
    problems_of,
    schema_of,
    small_disk,
    write_csv,
    write_parquet,
    write_text,
)

import weft
from weft.cli.main import main
from weft.errors import FormatError, InputError
from weft.meaning import read_report
from weft.pipeline.ingest.run import ingest
from weft.tasks.split import split_pairs

PEOPLE = {
    "id": ["007", "8", "ünï", "new\nline"],
    "age": [31, 44, 28, 60],
    "vector": [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [2.0, 3.0]],
    "job": ["cook", "smith", "cook", None],
    "split": ["train", "train", "val", None],
}
KNOWS = {"src": ["007", "8", "ünï", "new\nline"], "dst": ["8", "007", "8", "ünï"], "weight": [0.5, 1, 2, 1.5]}


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


def test_csv_and_parquet_of_the_same_tables_give_the_same_graph(tmp_path: Path) -> None:
    people = {key: PEOPLE[key] for key in ("id", "age")}
    write_parquet(tmp_path / "people.parquet", people)
    write_parquet(tmp_path / "knows.parquet", KNOWS)
    lines = [f'"{key}",{age}\r\n' for key, age in zip(*people.values())]
    write_text(tmp_path / "people.csv", "\ufeffid,age\r\n" + "".join(lines))
    rows = [f'"{src}"\t"{dst}"\t{weight}\n' for src, dst, weight in zip(*KNOWS.values())]
    write_text(tmp_path / "knows.tsv.gz", gzip.compress(("src\tdst\tweight\n" + "".join(rows)).encode()))
    one = graph_of(tmp_path / "a", f"nodes={tmp_path}/people.parquet", f"edges={tmp_path}/knows.parquet")
    two = graph_of(tmp_path / "b", f"nodes={tmp_path}/people.csv", f"edges={tmp_path}/knows.tsv.gz")
    assert ids_of(one) == ids_of(two) == PEOPLE["id"]
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.edge_data["weight"], two.edge_data["weight"])


@pytest.mark.parametrize("form", ["parquet", "csv"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1, max_size=6)
    | st.lists(st.integers(2**63, 2**64 - 1), unique=True, min_size=1, max_size=3)
    | st.lists(
        st.sampled_from(["007", "7", " 7", str(2**63), 'a"b', "a,b", "x\ny", "ü", "日本", "'", "#1"])
        | st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=6),
        unique=True, min_size=1, max_size=6,
    ),
    data=st.data(),
)  # fmt: skip
def test_ids_survive_the_round_trip(
    form: str, ids: list[int | str], data: st.DataObject, tmp_path: Path
) -> None:
    ends = st.tuples(*[st.integers(0, len(ids) - 1)] * 2)
    edges = data.draw(st.lists(ends, max_size=8))
    columns = {"src": [ids[src] for src, _ in edges], "dst": [ids[dst] for _, dst in edges]}
    number = not isinstance(ids[0], str)
    if form == "parquet":
        kind = (pa.uint64() if ids[0] >= 2**63 else pa.int64()) if number else pa.string()  # type: ignore[operator]
        write_parquet(tmp_path / "n.parquet", {"id": pa.array(ids, kind)})
        write_parquet(tmp_path / "e.parquet", {key: pa.array(value, kind) for key, value in columns.items()})
    else:

        def cell(value: int | str) -> str:
            return str(value) if number else '"' + str(value).replace('"', '""') + '"'

        write_text(tmp_path / "n.csv", "id,f\n" + "".join(f"{cell(value)},1\n" for value in ids))
        rows = "".join(f"{cell(src)},{cell(dst)}\n" for src, dst in zip(*columns.values()))
        write_text(tmp_path / "e.csv", f"src,dst\n{rows}")
    tables = [f"nodes={tmp_path}/n.{form}", f"edges={tmp_path}/e.{form}"]
    ingest(schema_of(tables), tmp_path / "g", overwrite=True, memory="500MB")
    graph = weft.load(tmp_path / "g")
    assert [str(value) for value in ids_of(graph)] == [str(value) for value in ids]
    assert edges_of(graph) == edges


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


def test_edges_alone_name_their_nodes(tmp_path: Path) -> None:
    write_text(tmp_path / "e.csv", "10,9\n9,100\n")  # numbers only: no header
    graph = graph_of(tmp_path / "g", f"edges={tmp_path}/e.csv")
    assert ids_of(graph) == [9, 10, 100]
    assert edges_of(graph) == [(1, 0), (0, 2)]


def test_many_files_keep_their_order_across_patterns_and_folders(tmp_path: Path) -> None:
    for part in range(3):
        rows = range(part * 1000, (part + 1) * 1000)
        write_parquet(
            tmp_path / f"n/{part}.parquet", {"id": [f"u{row}" for row in rows], "f": list(map(float, rows))}
        )
        write_text(
            tmp_path / f"e/{part}.csv", "src,dst\n" + "".join(f"u{row},u{2999 - row}\n" for row in rows)
        )
    graph = graph_of(tmp_path / "g", f"nodes={tmp_path}/n", f"edges={tmp_path}/e/*.csv")
    assert ids_of(graph) == [f"u{row}" for row in range(3000)]
    assert graph.x[:, 0].tolist() == list(range(3000))
    assert edges_of(graph) == [(row, 2999 - row) for row in range(3000)]


def test_files_with_columns_in_another_order_keep_the_order_of_rows(tmp_path: Path) -> None:
    size = 150_000
    for part in range(3):
        ids = np.arange(part * size, (part + 1) * size)
        columns = {"id": pa.array(ids), "f": pa.array(ids.astype(np.float32))}
        table = pa.table(dict(reversed(columns.items())) if part == 1 else columns)
        (tmp_path / "n").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / f"n/{part}.parquet", row_group_size=20_000)
    edges = write_parquet(tmp_path / "e.parquet", {"src": [3 * size - 1], "dst": [size]})
    graph = graph_of(tmp_path / "g", f"nodes={tmp_path}/n", f"edges={edges}")
    assert torch.equal(graph.x[:, 0], torch.arange(3 * size, dtype=torch.float32))
    assert np.array_equal(graph.node_ids["node"].values, np.arange(3 * size))
    assert edges_of(graph) == [(3 * size - 1, size)]


def test_categories_times_and_lists_in_text(tmp_path: Path) -> None:
    write_text(
        tmp_path / "n.csv",
        'id,city,color,v,y\n1,Rome,red,"[1, 2]",3\n2,,blue,"[3,4]",-1\n3,Oslo,,"[5,6]",7\n',
    )
    write_text(tmp_path / "e.csv", "a;b;at\n1;2;2020-01-01\n3;2;1970-01-01 00:00:01\n")
    sections = {
        "nodes": {
            "node": {
                "features": [
                    {"column": "city", "encode": "one-hot"},
                    {"column": "color", "encode": "index"},
                    {"column": "v", "encode": "list"},
                ],
                "label": "y",
            }
        },
        "edges": {"edge": {"time": "at"}},
    }
    graph = graph_of(tmp_path / "g", f"nodes={tmp_path}/n.csv", f"edges={tmp_path}/e.csv", sections=sections)
    assert graph.x.tolist() == [[0, 1, 1, 1, 2], [0, 0, 0, 3, 4], [1, 0, 2, 5, 6]]
    assert graph.y.tolist() == [0, -1, 1]
    assert graph.edge_data["time"].tolist() == [1577836800 * 10**6, 10**6]
    assert read_report(tmp_path / "g")["classes"] == {"node": ["3", "7"]}


def test_masks_of_booleans_and_lists_of_labels(tmp_path: Path) -> None:
    columns = {
        "id": [1, 2],
        "y": [[1, 0, 1], [0, 0, 0]],
        "train_mask": [True, False],
        "val_mask": [False, True],
    }
    nodes = write_parquet(tmp_path / "n.parquet", columns)
    graph = graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={_edge(tmp_path, 1, 2)}")
    assert graph.y.tolist() == [[1, 0, 1], [0, 0, 0]]
    assert graph.multilabel
    assert graph.val_mask.tolist() == [False, True]


def test_a_fix_drops_what_is_wrong_and_keeps_the_rest_in_order(tmp_path: Path) -> None:
    nodes = {"id": ["a", "b", None, "a", "c"], "f": [1.0, 2.0, 3.0, 4.0, None], "y": [0, 1, 2, 3, 1]}
    write_parquet(tmp_path / "n.parquet", nodes)
    edges = {
        "src": ["a", "x", "b", None, "c", "a"],
        "dst": ["b", "a", "c", "a", "a", "b"],
        "weight": [1, 2, 3, 4, 5, 6],
    }
    write_parquet(tmp_path / "e.parquet", edges)
    tables = [f"nodes={tmp_path}/n.parquet", f"edges={tmp_path}/e.parquet"]
    with pytest.raises(
        InputError, match=r"n.parquet, row 3, column 'id': the node has no id; --fix drop-null-ids"
    ):
        graph_of(tmp_path / "g", *tables)
    fix = "drop-dangling,drop-duplicates,drop-null-ids,fill-missing"
    graph = graph_of(tmp_path / "g", *tables, fix=fix)
    assert ids_of(graph) == ["a", "b", "c"]
    assert graph.x[:, 0].tolist() == [1, 2, 0]
    assert edges_of(graph) == [(0, 1), (1, 2), (2, 0), (0, 1)]
    weight = torch.empty(4)
    weight[graph.edge_ids.long()] = graph.edge_data["weight"]
    assert weight.tolist() == [1, 3, 5, 6]
    once = graph_of(tmp_path / "once", *tables, fix=fix + ",drop-duplicate-edges")
    assert edges_of(once) == [(0, 1), (1, 2), (2, 0)]


def test_nothing_is_left_when_the_tables_are_wrong(tmp_path: Path) -> None:
    nodes = write_parquet(tmp_path / "n.parquet", {"id": [1, 2]})
    with pytest.raises(InputError, match=r"row 1, column 'dst': no node has the id 3; --fix drop-dangling"):
        ingest(schema_of([f"nodes={nodes}", f"edges={_edge(tmp_path, 1, 3)}"]), tmp_path / "out" / "g")
    assert os.listdir(tmp_path / "out") == []


def test_a_folder_that_is_there_is_replaced_only_when_asked(tmp_path: Path) -> None:
    tables = [f"edges={_edge(tmp_path, 1, 2)}"]
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
        graph_of(tmp_path / "locked" / "g", f"edges={_edge(tmp_path, 1, 2)}")


def test_a_read_only_file_system_is_one_line(tmp_path: Path) -> None:
    edges = _edge(tmp_path, 1, 2)
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


def test_an_ingest_that_was_killed_continues(tmp_path: Path) -> None:
    nodes = write_parquet(tmp_path / "n.parquet", {"id": [5, 6]})
    edges = _edge(tmp_path, 5, 6)
    code = f"""
import os, sys
from weft.pipeline.ingest import run as module
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


def _edge(folder: Path, src: int, dst: int) -> Path:
    return write_parquet(folder / "one_edge.parquet", {"src": [src], "dst": [dst]})


def test_parquet_of_another_engine_with_odd_types(tmp_path: Path) -> None:
    """Dictionaries, small integers, booleans and fixed lists as other tools write them."""
    table = pa.table(
        {
            "id": pa.array(["a", "b"]).dictionary_encode(),
            "small": pa.array([1, 2], pa.int8()),
            "yes": pa.array([True, False]),
            "v": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
            "half": pa.array(np.array([0.5, 2], np.float16)),
        }
    )
    pq.write_table(table, tmp_path / "n.parquet")
    write_parquet(tmp_path / "e.parquet", {"src": ["a"], "dst": ["b"]})
    graph = graph_of(tmp_path / "g", f"nodes={tmp_path}/n.parquet", f"edges={tmp_path}/e.parquet")
    assert graph.x.tolist() == [[1, 1, 1, 2, 0.5], [2, 0, 3, 4, 2]]
    assert not problems_of(f"nodes={tmp_path}/n.parquet", f"edges={tmp_path}/e.parquet").errors


def test_a_label_with_gaps_as_pandas_writes_it_is_a_label(tmp_path: Path) -> None:
    nodes = write_text(tmp_path / "n.csv", "id,age,label\na,1,1.0\nb,2,0.0\nc,3,\nd,4,1.0\n")
    edges = write_text(tmp_path / "e.csv", "src,dst\na,b\n")
    graph = graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edges}")
    assert graph.x.shape == (4, 1)
    assert graph.y.tolist() == [1, 0, -1, 1]


def test_a_label_of_fractions_is_no_feature(tmp_path: Path) -> None:
    nodes = write_text(tmp_path / "n.csv", "id,age,label\na,1,0.5\nb,2,1.5\n")
    edges = write_text(tmp_path / "e.csv", "src,dst\na,b\n")
    found = problems_of(f"nodes={nodes}", f"edges={edges}").of("warning")
    assert "label-fractions" in [problem.kind for problem in found]
    graph = graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edges}")
    assert graph.x.shape == (2, 1)
    assert graph.y is None


def test_a_text_file_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    nodes = write_text(tmp_path / "n.csv", b"id,age,label\na,1,x\nb,2,caf\xe9\n")
    edges = write_text(tmp_path / "e.csv", "src,dst\na,b\n")
    with pytest.raises(FormatError, match=r"n\.csv: line 3 is not UTF-8; save the file as UTF-8"):
        graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edges}")


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_no_name_of_a_column_changes_which_row_is_which(tmp_path: Path, form: str) -> None:
    """Also names that the engine or weft itself gives to places, files and rows, in any case."""
    ours = [
        "File_Row_Number",
        "file_index",
        "FILENAME",
        "rowid",
        "pos",
        "path",
        "row",
        "column_0",
        "c0",
        "x0",
    ]
    wrong = {column: [3, 2, 1, 0] for column in ours}
    write = write_parquet if form == "parquet" else write_csv
    for place in range(2):
        ids = [f"{letter}{place}" for letter in "abcd"]
        write(tmp_path / f"n{place}.{form}", {"id": ids, "f": [10, 20, 30, 40], **wrong})
        ends = {"src": ids, "dst": ids[1:] + ids[:1], "weight": [1, 2, 3, 4]}
        write(tmp_path / f"e{place}.{form}", {**ends, **wrong})
    sections = {"nodes": {"node": {"features": ["f"]}}, "edges": {"edge": {"weight": "weight"}}}
    tables = f"nodes={tmp_path}/n*.{form}", f"edges={tmp_path}/e*.{form}"
    graph = graph_of(tmp_path / "g", *tables, sections=sections)
    assert ids_of(graph) == ["a0", "b0", "c0", "d0", "a1", "b1", "c1", "d1"]
    assert graph.x.flatten().tolist() == [10, 20, 30, 40] * 2
    assert edges_of(graph) == [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)]
    assert graph.edge_data["weight"].tolist() == [4, 1, 2, 3] * 2  # in canonical order
    write(tmp_path / f"n1.{form}", {"id": ["a1", "a0", "c1", "d1"], "f": [10, 20, 30, 40], **wrong})
    (told,) = problems_of(*tables[:1], sections={"nodes": sections["nodes"]}).errors
    assert (told.file, told.row) == (f"{tmp_path}/n1.{form}", 2)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("weight", ["0.5", "heavy"]),
        ("weight", ["1", "2", "heavy"]),
        ("time", ["3", "late"]),
        ("time", ["2.5", "1.5", "late"]),
        ("time", ["2024-01-02", "2024-01-03", "soon"]),
    ],
)
def test_a_wrong_weight_or_time_is_told_with_its_row(tmp_path: Path, column: str, values: list[str]) -> None:
    nodes = write_csv(tmp_path / "n.csv", {"id": ["a", "b"]})
    ends = {"src": ["a"] * len(values), "dst": ["b"] * len(values)}
    edges = write_csv(tmp_path / "e.csv", {**ends, column: values})
    found = problems_of(f"nodes={nodes}", f"edges={edges}")
    (told,) = found.errors
    assert (told.column, told.row, told.value) == (column, len(values), values[-1])
    assert not [problem for problem in found.found if problem.kind == "left-out"]


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    (told,) = problems_of(f"nodes={tmp_path}/nope.csv").errors
    assert told.line() == f"{tmp_path}/nope.csv: no such file"


def test_command_tells_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = write_csv(tmp_path / "n.csv", {"id": ["a", "b"], "city": ["Rome", "Oslo"], "age": [1, 2]})
    edges = write_csv(tmp_path / "e.csv", {"src": ["a"], "dst": ["b"]})
    assert main(["ingest", f"nodes={nodes}", f"edges={edges}", "--out", str(tmp_path / "g")]) == 0
    told = capsys.readouterr().err
    assert "note: nodes node, column 'city': holds text and is left out; name it in features" in told
    assert "'age'" not in told


TRUST = {
    "src": ["a", "b", "c", "a", "d"],
    "dst": ["b", "a", "a", "c", "a"],
    "sign": ["good", "bad", None, "good", "bad"],
    "rating": [2.5, -1.0, None, 4.0, -3.0],
    "stars": [5, -10, 3, None, 4],
    "part": ["train", "train", "Valid", "test", None],
}


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("label", "expected", "classes"),
    [
        ("sign", [1, 0, -1, 1, 0], ["bad", "good"]),
        ({"column": "sign", "encode": "index"}, [1, 0, -1, 1, 0], ["bad", "good"]),
        ({"column": "rating", "encode": "number"}, [2.5, -1.0, None, 4.0, -3.0], None),
        ({"column": "stars", "encode": "number"}, [5.0, -10.0, 3.0, None, 4.0], None),
    ],
    ids=str,
)
def test_labels_and_splits_of_edges(
    tmp_path: Path, form: str, label: Any, expected: Any, classes: Any
) -> None:
    path = (write_csv if form == "csv" else write_parquet)(tmp_path / f"trust.{form}", TRUST)
    sections = {"edges": {"edge": {"label": label, "split": "part"}}}
    graph = graph_of(tmp_path / "g", f"edges={path}", sections=sections)
    given = graph.given_edge_data()
    found = [None if value != value else value for value in given["label"].tolist()]
    assert found == expected
    assert given["label"].dtype == (torch.float32 if classes is None else torch.int64)
    assert given["split"].tolist() == [0, 0, 1, 2, -1]
    assert set(given) == {"label", "split"}
    assert read_report(tmp_path / "g")["edge_classes"] == (
        {} if classes is None else {"node edge node": classes}
    )
    _, pairs = split_pairs(graph, label="label")
    known = [
        name
        for name, place in (("train", 0), ("val", 2), ("test", 3))
        if expected[place] is not None and expected[place] != -1
    ]
    assert list(pairs) == known


def test_labels_and_splits_of_edges_are_guessed_by_name_and_are_no_features(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    masks = {
        f"{part}_mask": [row == place for row in range(3)]
        for place, part in enumerate(("train", "val", "test"))
    }
    one = {"src": [0, 1, 2], "dst": [1, 2, 0], "label": [0.5, 1.5, 2.5], "f": [1, 2, 3], **masks}
    path = write_parquet(tmp_path / "one.parquet", one)
    assert (
        main(
            [
                "ingest",
                f"edges={path}",
                "--out",
                str(tmp_path / "g"),
                "--save-schema",
                str(tmp_path / "s.toml"),
            ]
        )
        == 0
    )
    graph = weft.load(tmp_path / "g")
    assert graph.given_edge_data()["label"].tolist() == [0.5, 1.5, 2.5]
    assert graph.given_edge_data()["split"].tolist() == [0, 1, 2]
    assert graph.given_edge_data()["attr"].tolist() == [[1], [2], [3]]
    assert main(["ingest", "--schema", str(tmp_path / "s.toml"), "--out", str(tmp_path / "again")]) == 0
    assert weft.load(tmp_path / "again").given_edge_data()["split"].tolist() == [0, 1, 2]
    capsys.readouterr()
    two = {
        "source": [0, 1, 2],
        "target": [1, 2, 0],
        "class": ["x", "y", "x"],
        "split": ["train", "train", "test"],
    }
    graph = graph_of(tmp_path / "h", f"edges={write_csv(tmp_path / 'two.csv', two)}")
    assert graph.given_edge_data()["label"].tolist() == [0, 1, 0]
    assert graph.given_edge_data()["split"].tolist() == [0, 0, 2]


def test_relations_without_labels_have_none(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "edges": {
            "rates": {"source": "user", "target": "item", "label": {"column": "stars", "encode": "number"}},
            "knows": {"source": "user", "target": "user"},
        }
    }
    rates = write_csv(tmp_path / "rates.csv", {"src": ["u", "v"], "dst": ["i", "i"], "stars": [4, 5]})
    knows = write_csv(tmp_path / "knows.csv", {"src": ["u"], "dst": ["v"]})
    tables = f"edges.user.rates.item={rates}", f"edges.user.knows.user={knows}"
    graph = graph_of(tmp_path / "g", *tables, sections=sections)
    assert graph.given_edge_data()["label"].isnan().tolist() == [False, False, True]
    messages, pairs = split_pairs(graph, target="user rates item", label="label", val=0, test=0.5)
    assert sum(map(len, pairs.values())) == 2
    assert not messages.edge_data
    sections["edges"]["knows"]["label"] = "dst"
    with pytest.raises(InputError, match="some relations have classes and others numbers"):
        graph_of(tmp_path / "bad", *tables, sections=sections)


def test_wrong_labels_and_splits_of_edges_are_told_with_their_rows(tmp_path: Path) -> None:
    wrong = {**TRUST, "stars": ["5", "much", "3", "", "inf"], "part": ["train", "tset", "val", "test", ""]}
    path = write_csv(tmp_path / "wrong.csv", wrong)
    sections = {"edges": {"edge": {"label": {"column": "stars", "encode": "number"}, "split": "part"}}}
    told = [problem.line() for problem in problems_of(f"edges={path}", sections=sections).errors]
    assert any("row 2" in line and "'much' where a finite number is needed" in line for line in told), told
    assert any("row 5" in line and "'inf' where a finite number" in line for line in told), told
    assert any("row 2" in line and "split 'tset': expected train, val, test" in line for line in told), told
    for label in ({"column": "stars", "encode": "one-hot"}, {"encode": "number"}):
        with pytest.raises(InputError, match=r"edges.edge.label: expected a column"):
            schema_of([f"edges={path}"], {"edges": {"edge": {"label": label}}})
    with pytest.raises(InputError, match=r"edges.edge.split: expected train, val and test, got 'trian'"):
        schema_of([f"edges={path}"], {"edges": {"edge": {"split": {"trian": "a"}}}})


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
