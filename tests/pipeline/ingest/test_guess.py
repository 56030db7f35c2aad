"""What tables without a schema are taken for, by the names and types of their columns."""

from pathlib import Path

from tables import (
    graph_of,
    problems_of,
    schema_of,
    write_parquet,
    write_text,
)

from weft.pipeline.validate import validate


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


def test_what_is_guessed(tmp_path: Path) -> None:
    text = "name,person_id,label,split,age,bio,when_id,date\nx,1,a,train,3,hello,9,2020-01-01\n"
    write_text(tmp_path / "n.csv", text)
    write_parquet(tmp_path / "e.parquet", {"w": [1.0], "to": [1], "from": [1], "n": [2], "ts": [3]})
    schema = schema_of([f"nodes.person={tmp_path}/n.csv", f"edges.knows={tmp_path}/e.parquet"])
    _, found = validate(schema)
    person, knows = found.nodes["person"], found.edges[("person", "knows", "person")]
    assert (person.id, person.label, person.split, person.time) == ("person_id", "label", "split", "date")
    assert [feature.column for feature in person.features or []] == ["age"]
    assert (knows.src, knows.dst, knows.weight, knows.time) == ("from", "to", "w", "ts")
    assert [feature.column for feature in knows.features or []] == ["n"]
