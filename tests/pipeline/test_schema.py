"""Schemas are read, refused with the nearest key, guessed, saved, and read again."""

from pathlib import Path

import pytest
from tables import schema_of, write_text

from weft.errors import RecipeError
from weft.pipeline.ingest.problems import parse_fixes
from weft.pipeline.schema import EdgeTable, NodeTable, Schema, add_files, parse_schema, read_schema


def test_a_schema_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    nodes = {
        "a b": NodeTable(files=["x.csv"], id="é😀", features=["f", {"column": "c", "encode": "one-hot"}])
    }
    edges = {
        ("a b", "r", "a b"): EdgeTable(
            files=["e"], source="a b", target="a b", src="s", dst="t", features=[]
        ),
        ("a b", "q", "z"): EdgeTable(files=["e"], source="a b", target="z", weight="w", features=[]),
        ("z", "q", "a b"): EdgeTable(files=["e"], source="z", target="a b", time="when", features=[]),
    }
    schema = Schema(nodes, edges)
    path = write_text(tmp_path / "s.toml", schema.to_toml())
    read = read_schema(path)
    assert read.to_toml().replace(f"{tmp_path}/", "") == schema.to_toml()
    assert list(read.edges) == list(edges)
    assert read.nodes["a b"].files == [f"{tmp_path}/x.csv"]  # counted from where the schema lies


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"node": {}}, r"expected sections \[nodes.TYPE\] and \[edges.RELATION\], got 'node'"),
        ({"nodes": {"a": {"lable": "y"}}}, "unknown key nodes.a.lable; did you mean 'label'"),
        ({"nodes": {"a": {"label": 3}}}, "nodes.a.label: expected a string"),
        ({"nodes": {"a": {"features": [3]}}}, "nodes.a.features: expected a column or"),
        ({"nodes": {"a": {"features": [{"column": "c", "encode": "onehot"}]}}}, "one of 'number'.*'one-hot'"),
        ({"nodes": {"a": {"split": {"tarin": "m"}}}}, "expected train, val and test, got 'tarin'"),
        ({"edges": {"r": {"scr": "a"}}}, "did you mean 'src'"),
        ({"edges": {"r": {"guess": True}}}, "unknown key edges.r.guess"),
        ({"edges": {"r": {"delimiter": ",,"}}}, "edges.r.delimiter: expected one character.*',,'"),
        ({"nodes": {"a": {"delimiter": ""}}}, "nodes.a.delimiter: expected one character"),
        ({"nodes": {"a": {"delimiter": '"'}}}, "nodes.a.delimiter: expected one character that is no quote"),
        ({"nodes": {"a": {"delimiter": "\n"}}}, "nodes.a.delimiter: .* no end of a line"),
    ],
)
def test_what_is_wrong_in_a_schema_is_one_line(sections: dict[str, object], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        parse_schema(sections, "schema")  # type: ignore[arg-type]


def test_files_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    path = write_text(tmp_path / "s.toml", "[edges.r]\nfiles = [3]\n")
    with pytest.raises(RecipeError, match=r"edges.r.files\[0\]: expected a string, got 3"):
        read_schema(path)


def test_tables_of_the_command_line() -> None:
    plain = schema_of(["nodes=a.csv", "nodes=b.csv", "edges=e.csv"])
    assert plain.nodes["node"].files == ["a.csv", "b.csv"]
    assert list(plain.edges) == [("node", "edge", "node")]
    one = schema_of(["edges.knows=e.csv", "nodes.person=a.csv"])
    assert list(one.edges) == [("person", "knows", "person")]
    typed = schema_of(["nodes.a=a.csv", "nodes.b=b.csv", "edges.a.r.b=e=1.csv"])
    assert typed.edges[("a", "r", "b")].files == ["e=1.csv"]
    named = schema_of(
        ["edges=new.csv"], {"edges": {"knows": {"files": ["old.csv"], "source": "p", "target": "p"}}}
    )
    assert named.edges[("p", "knows", "p")].files == ["new.csv"]
    for wrong in (["a.csv"], ["node=a.csv"], ["nodes="], [], ["nodes.a=x", "nodes.b=x", "edges=e"]):
        with pytest.raises(RecipeError):
            add_files(Schema(), wrong)
    with pytest.raises(RecipeError, match="did you mean 'drop-dangling'"):
        parse_fixes(["drop-danglin"])
