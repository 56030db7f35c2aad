"""Files of head, relation and tail: one table, as many relations as it names, names in every output."""

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch
from tables import graph_of, ids_of, kinds_of, write_parquet

import weft
from weft.cli.main import main
from weft.errors import InputError
from weft.meaning import read_report

FACTS = [
    ("paris", "capital_of", "france"),
    ("rome", "capital_of", "italy"),
    ("france", "borders", "italy"),
    ("italy", "borders", "france"),
    ("paris", "in", "france"),
]
SPLIT = ["train", "train", "valid", "train", "test"]


def facts_of(graph: weft.Graph) -> list[tuple[str, str, str, int]]:
    """Return the facts of a graph by name, in the order given, with their splits."""
    names = ids_of(graph, "entity")
    src, dst = graph.edge_index
    kinds = graph.given_edge_type()
    assert kinds is not None
    split = graph.given_edge_data().get("split", torch.full((graph.num_edges,), -1))
    return [
        (names[int(s)], graph.edge_types[int(k)][1], names[int(d)], int(part))
        for s, k, d, part in zip(src, kinds, dst, split)
    ]


def lines(rows: list[Any], mark: str = "\t") -> str:
    return "".join(mark.join(row) + "\n" for row in rows)


CODES = [0, 0, 1, 0, 2]


@pytest.mark.parametrize("form", ["tsv", "tsv with a header", "csv", "gz", "parquet"])
def test_facts_come_back_by_name_with_their_splits(tmp_path: Path, form: str) -> None:
    rows = [(*fact, part) for fact, part in zip(FACTS, SPLIT)]
    path = tmp_path / f"facts.{form.split()[0] if form != 'gz' else 'tsv.gz'}"
    if form == "parquet":
        columns = {
            name: [row[k] for row in rows] for k, name in enumerate(("head", "relation", "tail", "split"))
        }
        write_parquet(path, columns)
    elif form == "gz":
        path.write_bytes(gzip.compress(lines(rows).encode()))
    else:
        head = [] if form == "tsv" else [("subject", "predicate", "object", "split")]
        path.write_text(lines(head + rows, "," if form == "csv" else "\t"))
    graph = graph_of(tmp_path / "g", f"triples={path}")
    assert facts_of(graph) == [(*fact, code) for fact, code in zip(FACTS, CODES)]
    assert [kind[1] for kind in graph.edge_types] == ["borders", "capital_of", "in"]
    assert {(kind[0], kind[2]) for kind in graph.edge_types} == {("entity", "entity")}


def test_files_tell_the_split(tmp_path: Path) -> None:
    given = []
    for part in ("train", "valid", "test"):
        mine = [fact for fact, held in zip(FACTS, SPLIT) if held == part]
        (tmp_path / f"{part}.txt").write_text(lines(mine))
        given.append(f"triples.{part}={tmp_path / part}.txt")
    assert (
        main(["ingest", *given, "--out", str(tmp_path / "g"), "--save-schema", str(tmp_path / "s.toml")]) == 0
    )
    graph = weft.load(tmp_path / "g")
    expected = sorted((*fact, code) for fact, code in zip(FACTS, CODES))
    assert sorted(facts_of(graph)) == expected
    assert main(["ingest", "--schema", str(tmp_path / "s.toml"), "--out", str(tmp_path / "again")]) == 0
    assert sorted(facts_of(weft.load(tmp_path / "again"))) == expected
    assert "file_splits" in read_report(tmp_path / "g")["schema"]


def parts_of(folder: Path, rows: list[Any], *, text: bool) -> Path:
    """Write rows as two files of a folder."""
    folder.mkdir()
    for place, some in enumerate((rows[:1], rows[1:])):
        if text:
            (folder / f"part-{place}.tsv").write_text(lines(some))
        else:
            columns = zip(("head", "relation", "tail"), zip(*some))
            write_parquet(folder / f"part-{place}.parquet", {name: [*held] for name, held in columns})
    return folder


def test_several_files_a_folder_and_parts_of_parquet_are_one_table(tmp_path: Path) -> None:
    text, parquet = (parts_of(tmp_path / str(kind), FACTS[:4], text=kind) for kind in (True, False))
    files = [f"triples={text}/part-{place}.tsv" for place in (0, 1)]
    expected = [(*fact, -1) for fact in FACTS[:4]]
    for place, given in enumerate((files, [f"triples={text}"], [f"triples={parquet}/*.parquet"])):
        assert facts_of(graph_of(tmp_path / f"g{place}", *given)) == expected
    test = parts_of(tmp_path / "test", [FACTS[4], ("rome", "in", "italy")], text=False)
    graph = graph_of(tmp_path / "split", f"triples.train={parquet}", f"triples.test={test}")
    assert [fact[3] for fact in facts_of(graph)] == [0] * 4 + [2] * 2


def test_a_first_fact_whose_head_is_its_tail_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text("a\tlikes\ta\na\tknows\tb\n")
    graph = graph_of(tmp_path / "g", f"triples={tmp_path / 'facts.tsv'}")
    assert [fact[:3] for fact in facts_of(graph)] == [("a", "likes", "a"), ("a", "knows", "b")]


def test_facts_stand_beside_tables_of_nodes_and_edges(tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text("b\tlikes\ta\na\tknows\tb\n")
    (tmp_path / "nodes.csv").write_text("id,age\na,1\nb,2\nc,3\n")
    (tmp_path / "edges.csv").write_text("src,dst,weight\nc,a,2.5\n")
    tables = [f"nodes.entity={tmp_path}/nodes.csv", f"edges.entity.sees.entity={tmp_path}/edges.csv"]
    graph = graph_of(tmp_path / "g", *tables, f"triples={tmp_path}/facts.tsv")
    assert [kind[1] for kind in graph.edge_types] == ["sees", "knows", "likes"]
    assert sorted(fact[:3] for fact in facts_of(graph)) == [
        ("a", "knows", "b"),
        ("b", "likes", "a"),
        ("c", "sees", "a"),
    ]
    assert graph.given_edge_data()["weight"].tolist() == [2.5, 1.0, 1.0]


def test_ids_that_are_numbers_and_one_relation_alone(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t.parquet", {"head": [7, 3], "relation": [5, 5], "tail": [3, 9]})
    graph = graph_of(tmp_path / "g", f"triples={tmp_path / 't.parquet'}")
    assert graph.edge_types == [("entity", "5", "entity")]
    assert [ids_of(graph, "entity")[row] for row in graph.edge_index[0].tolist()] == [7, 3]


def test_a_repeated_fact_is_dropped_by_relation(tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text("a\tr\tb\na\tq\tb\na\tr\tb\n")
    graph = graph_of(tmp_path / "g", f"triples={tmp_path / 'f.tsv'}", fix="drop-duplicate-edges")
    assert [fact[:3] for fact in facts_of(graph)] == [("a", "r", "b"), ("a", "q", "b")]


@pytest.mark.parametrize(
    ("text", "said"),
    [("a\tr\tb\na\t\tb\n", "null-relation"), ("a\tr\tb\na\tr\t\n", "null-id"), ("a\tb\nb\tc\n", "no-column")],
)
def test_facts_that_lack_something_are_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "f.tsv").write_text(text)
    assert said in kinds_of(f"triples={tmp_path / 'f.tsv'}")


def test_words_that_cannot_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text("a\tr\tb\n")
    path = tmp_path / "f.tsv"
    for given, said in (
        ([f"triples.tset={path}"], "expected triples=FILE, or triples.train"),
        ([f"triples={path}", f"triples.test={path}"], "give the split of every file of triples, or of none"),
    ):
        with pytest.raises(InputError, match=said):
            graph_of(tmp_path / "g", *given)
