"""Labels and splits of edges: classes or numbers, one code a split, and what is wrong with its row."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from tables import (
    graph_of,
    problems_of,
    schema_of,
    write_csv,
    write_parquet,
)

import weft
from weft.cli.main import main
from weft.errors import InputError
from weft.meaning import read_report
from weft.tasks.split import split_pairs

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


def test_pairs_are_asked_for_by_the_columns_of_the_table_that_edges_came_from(tmp_path: Path) -> None:
    ends = {"src": ["a", "b", "c", "a", "d", "b"], "dst": ["b", "a", "a", "c", "a", "d"]}
    more = {"good": ["y", "n", "y", "n", "y", "n"], "trust": [0.5, 1.0, 2.0, 0.1, 0.2, 0.3]}
    path = write_csv(tmp_path / "trust.csv", {**ends, **more, "part": ["train"] * 4 + ["val", "test"]})
    sections = {"edges": {"edge": {"label": "good", "split": "part", "features": ["trust"]}}}
    graph_of(tmp_path / "g", f"edges={path}", sections=sections)
    assert read_report(tmp_path / "g")["edge_features"] == {"node edge node": ["trust"]}
    run, out = str(tmp_path / "run"), tmp_path / "out"
    settings = [f"data.path={tmp_path / 'g'}", "task.name=edge_classification", "task.width=4"]
    settings += ["train.epochs=1", "model.hidden=4"]
    assert main(["train", *(part for each in settings for part in ("--set", each)), "--out", run]) == 0
    write_csv(tmp_path / "pairs.csv", {"source": ["a", "d"], "target": ["d", "b"], "trust": [0.3, 0.4]})
    assert main(["infer", run, "--pairs", str(tmp_path / "pairs.csv"), "--out", str(out)]) == 0
    said = pq.read_table(out / "pairs.parquet")
    assert (said["source"].to_pylist(), {*said["prediction"].to_pylist()} <= {"y", "n"}) == (["a", "d"], True)
