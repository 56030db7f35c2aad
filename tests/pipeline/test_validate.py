"""Every way in which tables are wrong is told at once, with file, row and value."""

import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import kinds_of, problems_of, write_parquet, write_text

from weft.pipeline.ingest.problems import Problem


def find(problems: Any, kind: str) -> Problem:
    """Return the first problem of a kind."""
    return next(problem for problem in problems.found if problem.kind == kind)


def nodes_with(folder: Path, **columns: Any) -> str:
    """Return the argument of a node table with ids 0, 1, … and these columns."""
    rows = len(next(iter(columns.values())))
    return f"nodes={write_parquet(folder / 'n.parquet', {'id': list(range(rows)), **columns})}"


def one_edge(folder: Path) -> str:
    """Return the argument of an edge table with one edge from 0 to 0."""
    return f"edges={write_parquet(folder / 'e.parquet', {'src': [0], 'dst': [0]})}"


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    write_text(tmp_path / "n.csv", "id,f,y,split\na,1,x,train\nb,nan,y,test\na,oops,x,test\n,4,,train\n")
    write_text(tmp_path / "e.csv", "src,dst,weight\na,b,1\nb,zzz,2\n,a,inf\n")
    problems = problems_of(f"nodes={tmp_path}/n.csv", f"edges={tmp_path}/e.csv")
    kinds = {problem.kind for problem in problems.errors}
    assert kinds == {
        *("duplicate-id", "null-id", "split-leak", "not-finite", "train-without-label", "dangling-edge"),
    }
    dangling = find(problems, "dangling-edge")
    assert (dangling.file, dangling.row, dangling.column, dangling.value) == (
        f"{tmp_path}/e.csv",
        2,
        "dst",
        "zzz",
    )
    twice = find(problems, "duplicate-id")
    assert (twice.row, twice.value, twice.message) == (3, "a", "id 'a' is there already, at row 1")
    values = [problem.value for problem in problems.errors if problem.kind == "not-finite"]
    assert values == ["nan", "oops", "inf"]
    assert [problem.row for problem in problems.errors if problem.kind == "null-id"] == [4, 3]


@pytest.mark.parametrize("width", [1, 3])
def test_a_wrong_width_in_file_7_of_9_is_named(width: int, tmp_path: Path) -> None:
    for part in range(9):
        vector = [[1.0] * (width if part == 6 else 2)] * 4
        ids = list(range(4 * part, 4 * part + 4))
        write_parquet(tmp_path / f"n/{part}.parquet", {"id": ids, "v": vector})
    found = find(problems_of(f"nodes={tmp_path}/n/*.parquet", one_edge(tmp_path)), "ragged-list")
    assert (found.file, found.row, found.value, found.count) == (f"{tmp_path}/n/6.parquet", 1, width, 4)
    assert found.message == f"file 7 of 9, a list of {width} where lists have 2"


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"v": [[1.0, 2.0], [1.0]]}, "ragged-list"),
        ({"v": [[1.0, 2.0], None]}, "not-finite"),
        ({"v": [[1.0, 2.0], [1.0, None]]}, "not-finite"),
        ({"f": [1.0, float("inf")]}, "not-finite"),
        ({"f": pa.array([None, None], pa.float64())}, "not-finite"),
        ({"f": [1.0, 1e300]}, "not-finite"),
        ({"y": [None, None], "f": [1, 2]}, "no-label"),
        ({"y": [0, 1], "split": ["train", "tset"]}, "split-value"),
        ({"y": [0, 1], "split": ["val", "test"]}, "empty-split"),
        ({"y": [0, 1], "train_mask": [True, True], "val_mask": [False, True]}, "split-leak"),
        ({"y": [0, -1], "train_mask": [True, True]}, "train-without-label"),
        ({"y": [[0, 2], [1, 0]]}, "label-value"),
    ],
)
def test_values_that_cannot_be(columns: dict[str, Any], kind: str, tmp_path: Path) -> None:
    if columns.get("y") == [None, None]:
        columns["y"] = pa.array([None, None], pa.int64())
    assert kinds_of(nodes_with(tmp_path, **columns), one_edge(tmp_path)) == {kind}


def test_labels_that_are_fractions_are_no_classes(tmp_path: Path) -> None:
    nodes = nodes_with(tmp_path, y=[0.0, 0.5])
    sections = {"nodes": {"node": {"label": "y"}}}
    problems = problems_of(nodes, one_edge(tmp_path), sections=sections)
    assert find(problems, "label-value").value == "0.5"
    whole = problems_of(
        nodes_with(tmp_path, y=[0.0, 1.0, float("nan")]), one_edge(tmp_path), sections=sections
    )
    assert not whole.errors


def test_text_is_no_feature_and_the_hint_says_what_to_do(tmp_path: Path) -> None:
    nodes = nodes_with(tmp_path, bio=["I was born", "Me too"])
    sections: dict[str, Any] = {"nodes": {"node": {"features": ["bio"]}}}
    found = find(problems_of(nodes, one_edge(tmp_path), sections=sections), "text-feature")
    assert found.value == "I was born"
    assert 'encode = "one-hot" or "index"' in found.message
    assert not kinds_of(nodes, one_edge(tmp_path))  # without a schema it is left out, and it is said
    assert find(problems_of(nodes, one_edge(tmp_path)), "left-out").column == "bio"
    sections["nodes"]["node"]["features"] = ["boi"]
    assert kinds_of(nodes, one_edge(tmp_path), sections=sections) == {"no-column"}


def test_classes_that_differ_much_or_are_never_trained_are_warnings(tmp_path: Path) -> None:
    nodes = nodes_with(tmp_path, y=["a"] * 200 + ["b"], split=["train"] * 200 + ["test"])
    problems = problems_of(nodes, one_edge(tmp_path))
    assert not problems.errors
    assert {problem.kind for problem in problems.of("warning")} == {"class-imbalance", "class-not-in-train"}
    one = problems_of(nodes_with(tmp_path, y=[3, 3]), one_edge(tmp_path))
    assert "only one class" in find(one, "class-imbalance").message


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (pa.array([1.0, 2.0]), "id-type"),
        (pa.array([True, False]), "id-type"),
        (pa.array([[1], [2]]), "id-type"),
        (pa.array([1, None]), "null-id"),
        (pa.array([1, 1]), "duplicate-id"),
    ],
)
def test_ids_that_cannot_be(ids: pa.Array, kind: str, tmp_path: Path) -> None:
    nodes = write_parquet(tmp_path / "n.parquet", {"id": ids, "f": [1, 2]})
    edges = write_parquet(
        tmp_path / "e.parquet", {"src": pa.array([], ids.type), "dst": pa.array([], ids.type)}
    )
    assert kind in kinds_of(f"nodes={nodes}", f"edges={edges}")


@pytest.mark.parametrize(("nodes", "edge", "dangles"), [
    (["7", "8"], "7", False),
    (["7", "8"], 7, False),
    ([7, 8], "7", False),
    (["007", "8"], 7, True),
    ([7, 8], "007", True),
    ([7, 8], -7, True),
    ([7, 8], 2**63 - 1, True),
    ([7, 8], " 7", True),
])  # fmt: skip
def test_ids_of_nodes_and_edges_are_compared_by_what_is_written(
    nodes: list[Any], edge: Any, dangles: bool, tmp_path: Path
) -> None:
    write_parquet(tmp_path / "n.parquet", {"id": nodes})
    write_parquet(tmp_path / "e.parquet", {"src": [edge], "dst": [edge]})
    found = kinds_of(f"nodes={tmp_path}/n.parquet", f"edges={tmp_path}/e.parquet")
    assert found == ({"dangling-edge"} if dangles else set())


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    edges = one_edge(tmp_path)
    packed = gzip.compress(b"id,f\n" + b"".join(b"%d,%d\n" % (row, row * row) for row in range(20000)))
    files = {
        "cut.csv.gz": packed[: len(packed) // 2],
        "end.csv.gz": packed[:-6],
        "plain.csv.gz": b"id,f\n1,2\n",
        "none.csv": b"",
        "none.parquet": b"",
        "text.parquet": b"id,f\n1,2\n",
        "cut.parquet": (tmp_path / "e.parquet").read_bytes()[:-20],
        "table.csv": (tmp_path / "e.parquet").read_bytes(),
        "wide.csv": "id,f\n1,2\n".encode("utf-16"),
        "same.csv": b"id,ID\n1,2\n",
        "short.csv": b"id,f\n1,2\n3\n4,5,6\n",
        "open.csv": b'id,f\n1,2\n"3,4\n',
        "latin.csv": "id,f\nä,2\n".encode("latin1"),
    }
    wanted = {
        "damaged": ["cut.csv.gz", "end.csv.gz", "cut.parquet"],
        "wrong-extension": ["plain.csv.gz", "text.parquet", "table.csv"],
        "empty-file": ["none.csv", "none.parquet"],
        "encoding": ["wide.csv"],
        "same-name": ["same.csv"],
        "malformed-line": ["short.csv", "open.csv", "latin.csv"],
    }
    found = {}
    for name, data in files.items():
        path = write_text(tmp_path / "bad" / name, data)
        problems = problems_of(f"nodes={path}", edges)
        assert len(problems.errors) >= 1, name
        found[name] = problems.errors[0].kind
    assert found == {name: kind for kind, names in wanted.items() for name in names}
    short = problems_of(f"nodes={tmp_path}/bad/short.csv", edges).errors
    assert [(problem.row, problem.value) for problem in short] == [(2, "3"), (3, "4,5,6")]
    assert kinds_of(f"nodes={tmp_path}/nothing/*.csv", edges) == {"no-file"}
    assert kinds_of(f"nodes={tmp_path}/nothing.csv", edges) == {"no-file"}


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may read anything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = write_text(tmp_path / "n.csv", "id\n0\n")
    path.chmod(0)
    assert kinds_of(f"nodes={path}", one_edge(tmp_path)) == {"unreadable"}


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    with open(folder + b"/n.csv", "wb") as file:
        file.write(b"id\n0\n")
    assert kinds_of(f"nodes={os.fsdecode(folder)}/n.csv", one_edge(tmp_path)) == {"file-name"}


def test_bom_crlf_and_other_delimiters_are_read_and_noted(tmp_path: Path) -> None:
    nodes = write_text(tmp_path / "n.csv", b"\xef\xbb\xbfid;f\r\n0;1.5\r\n1;2\r\n")
    problems = problems_of(f"nodes={nodes}", one_edge(tmp_path))
    assert not problems.errors
    assert {"byte-order-mark", "crlf"} <= {problem.kind for problem in problems.of("note")}


def test_a_first_row_without_an_end_is_told(tmp_path: Path) -> None:
    nodes = write_text(tmp_path / "n.csv", 'id,"f' + "x" * 200_000 + "\n0,1\n")
    problems = problems_of(f"nodes={nodes}", one_edge(tmp_path))
    assert "are quotes closed?" in find(problems, "unreadable").message


def test_schema_drift_between_files(tmp_path: Path) -> None:
    write_parquet(tmp_path / "n/0.parquet", {"id": [0], "f": [1.0]})
    write_parquet(tmp_path / "n/1.parquet", {"id": [1], "g": [1.0]})
    write_parquet(tmp_path / "n/2.parquet", {"id": [2], "f": ["one"]})
    write_parquet(tmp_path / "n/3.parquet", {"f": [4], "id": [3]})  # another order and type of number: fine
    problems = problems_of(f"nodes={tmp_path}/n", one_edge(tmp_path))
    drift = [problem for problem in problems.errors if problem.kind == "schema-drift"]
    assert [(Path(problem.file or "").name, problem.column) for problem in drift] == [
        ("1.parquet", "f"),
        ("2.parquet", "f"),
    ]
    assert drift[0].message.startswith("file 2 of 4")
    (tmp_path / "n/1.parquet").unlink()
    (tmp_path / "n/2.parquet").unlink()
    assert not kinds_of(f"nodes={tmp_path}/n", one_edge(tmp_path))


def test_many_tiny_files(tmp_path: Path) -> None:
    for part in range(300):
        write_text(tmp_path / f"e/{part:04d}.csv", f"src,dst\n{part},{'x' if part == 222 else 0}\n")
    nodes = write_parquet(tmp_path / "n.parquet", {"id": [str(row) for row in range(300)]})
    found = find(problems_of(f"nodes={nodes}", f"edges={tmp_path}/e"), "dangling-edge")
    assert (found.file, found.row, found.value) == (f"{tmp_path}/e/0222.csv", 1, "x")


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_first_of_any_wrong_values_are_found_where_they_are(data: st.DataObject, tmp_path: Path) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    total = sum(sizes)
    wrong = data.draw(st.sets(st.integers(0, total - 1), min_size=1, max_size=3))
    text = data.draw(st.booleans())
    folder = tmp_path / "e"
    for old in folder.glob("*"):
        old.unlink()
    places, start = {}, 0
    for part, size in enumerate(sizes):
        rows = range(start, start + size)
        places |= {row: (f"{folder}/{part}.{'csv' if text else 'parquet'}", row - start + 1) for row in rows}
        ends = [999 if row in wrong else 0 for row in rows]
        if text:
            write_text(folder / f"{part}.csv", "src,dst\n" + "".join(f"0,{end}\n" for end in ends))
        else:
            write_parquet(folder / f"{part}.parquet", {"src": [0] * size, "dst": ends})
        start += size
    nodes = write_parquet(tmp_path / "n.parquet", {"id": [0]})
    problems = problems_of(f"nodes={nodes}", f"edges={folder}")
    assert [(problem.file, problem.row) for problem in problems.errors] == [
        places[row] for row in sorted(wrong)
    ]
    assert all(problem.count == len(wrong) for problem in problems.errors)


def test_ids_with_zeros_before_them_are_not_called_fractions(tmp_path: Path) -> None:
    def warned(*ids: str) -> set[str]:
        rows = "".join(f"{value},1\n" for value in ids)
        nodes = write_text(tmp_path / "n.csv", f"id,f\n{rows}")
        edges = write_text(tmp_path / "e.csv", f"src,dst\n{ids[0]},{ids[1]}\n")
        problems = problems_of(f"nodes={nodes}", f"edges={edges}")
        assert not problems.errors
        return {problem.kind for problem in problems.of("warning")}

    assert not warned("0001", "0002")
    assert not warned("9780306406157", "0306406152")
    assert warned("1.0", "2") == {"id-type"}


@pytest.mark.parametrize("form", [int, float])
def test_numbers_with_hardly_two_rows_each_are_no_classes_without_a_word(tmp_path: Path, form: type) -> None:
    years = nodes_with(tmp_path, y=[form(1900 + place % 120) for place in range(600)])
    told = find(problems_of(years, one_edge(tmp_path)), "many-classes")
    assert told.message.startswith("120 different numbers in 600 rows were taken as 120 classes")
    digits = nodes_with(tmp_path, y=[form(place % 10) for place in range(100)])
    assert not problems_of(digits, one_edge(tmp_path)).of("warning")
