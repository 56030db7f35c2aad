"""The user's own ids: kept as they are, found again, stored as Parquet."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import FormatError, GraphError
from weft.graph import Graph, load
from weft.graph.ids import NodeIds, from_parquet, to_parquet


def test_leading_zeros_and_odd_characters_are_kept() -> None:
    ids = NodeIds(["007", "7", 'O\'Neil, "x"\n', "日本"])
    assert ids.find(["日本", "7", "007"]).tolist() == [3, 1, 0]


def test_numbers_may_be_large_sparse_and_unsigned() -> None:
    ids = NodeIds(np.array([10**12, 5, 2**62], dtype=np.uint64))
    assert ids.find([5, 10**12]).tolist() == [1, 0]
    assert NodeIds(torch.tensor([3, 1])).find([1]).tolist() == [1]
    with pytest.raises(GraphError, match="more than a 64-bit integer"):
        NodeIds(np.array([2**63], dtype=np.uint64))


def test_an_unknown_id_is_named() -> None:
    with pytest.raises(GraphError, match="no node has the id 'z'"):
        NodeIds(["a", "b"]).find(["a", "z"])
    with pytest.raises(GraphError, match="ids are strings, asked for numbers"):
        NodeIds(["1", "2"]).find([1])


def test_floats_are_refused() -> None:
    with pytest.raises(GraphError, match="got float"):
        NodeIds([1.0, 2.0])
    with pytest.raises(GraphError, match="strings or whole numbers, got float64"):
        NodeIds(np.ones(2))


def test_ids_are_saved_with_the_graph(tmp_path: Path) -> None:
    graph = Graph.from_types(
        {"user": {"num_nodes": 2, "node_ids": ["u1", "u2"]}, "item": {"num_nodes": 3}},
        {("user", "likes", "item"): [[0], [2]]},
    )
    graph.save(tmp_path / "g")
    again = load(tmp_path / "g")
    assert list(again.node_ids) == ["user"]
    assert again.node_ids["user"].values.tolist() == ["u1", "u2"]
    assert (tmp_path / "g" / "ids_0.parquet").is_file()


def test_a_damaged_parquet_file_is_refused() -> None:
    with pytest.raises(FormatError, match="ids_0: not a Parquet file of node ids"):
        from_parquet(b"PAR1 nothing PAR1", "ids_0")


@settings(deadline=None, max_examples=40)
@given(
    values=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5), unique=True, min_size=1
    )
    | st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1)
)
def test_ids_survive_parquet(values: list[str] | list[int]) -> None:
    again = from_parquet(to_parquet(NodeIds(values)), "ids")
    assert again.values.tolist() == values
    assert again.find(values).tolist() == list(range(len(values)))


def test_looking_among_no_nodes_names_the_id() -> None:
    with pytest.raises(GraphError, match=r"id 3 \(there are no nodes\)"):
        NodeIds(np.array([], dtype=np.int64)).find([3])


def test_no_memory_for_ids_is_not_called_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def full(*_: object, **__: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    data = to_parquet(NodeIds(["a"]))
    monkeypatch.setattr(pq, "read_table", full)
    with pytest.raises(MemoryError):
        from_parquet(data, "ids.parquet")
