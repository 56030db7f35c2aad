"""Ids become rows: any id survives, none is read twice, and edges alone name their nodes."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import (
    edges_of,
    graph_of,
    ids_of,
    schema_of,
    write_parquet,
    write_text,
)

import weft
from weft.errors import InputError
from weft.pipeline.ingest.ingestion import ingest


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


def test_edges_alone_name_their_nodes(tmp_path: Path) -> None:
    write_text(tmp_path / "e.csv", "10,9\n9,100\n")  # numbers only: no header
    graph = graph_of(tmp_path / "g", f"edges={tmp_path}/e.csv")
    assert ids_of(graph) == [9, 10, 100]
    assert edges_of(graph) == [(1, 0), (0, 2)]


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
