"""Files of what was found of pairs."""

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from weft.errors import FormatError, GraphError
from weft.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.stores import MemoryStore
from weft.tasks.partners import chunk_sizes, joined, partner_chunks
from weft.tasks.prediction_tables import write_pairs, write_partners
from weft.train.inference.predictions import Predictions

parquet: Any = pytest.importorskip("pyarrow.parquet")
DOT: Any = SimpleNamespace(against=lambda src, all, relation, side: src @ all.T)


def people() -> Graph:
    return Graph.from_edges([[0, 1], [1, 2]], num_nodes=3, node_ids=["007", "ann", "Ωmega"])


def library() -> Graph:
    nodes: dict[str, Any] = {
        "author": {"num_nodes": 2, "node_ids": [70, 50]},
        "paper": {"num_nodes": 3, "node_ids": ["a", "b", "c"]},
    }
    return Graph.from_types(nodes, {("author", "writes", "paper"): torch.tensor([[0, 1], [0, 2]])})


def test_partners_are_one_row_per_source_and_rank_by_the_users_ids(tmp_path: Path) -> None:
    h = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
    found = joined(partner_chunks(h, [2, 0], DOT, 3))
    write_partners(tmp_path / "all.parquet", people(), found)
    assert chunk_sizes(h, 2, 3, 3, 400) == (1, 2)
    chunks = partner_chunks(h, [2, 0], DOT, 3, memory=400)
    write_partners(tmp_path / "few.parquet", people(), chunks)
    expected = {
        "source": ["Ωmega", "Ωmega", "007", "007"],
        "rank": [1, 2, 1, 2],
        "target": ["ann", "007", "ann", "Ωmega"],
        "score": [3.0, 0.0, 2.0, 0.0],
    }
    for name in ("all", "few"):
        assert parquet.read_table(tmp_path / f"{name}.parquet").to_pydict() == expected
    mode = (tmp_path / "all.parquet").stat().st_mode
    assert stat.S_IMODE(mode) & 0o600 == 0o600
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode), "as any new file"


def test_ids_of_several_types_come_with_their_types(tmp_path: Path) -> None:
    graph = library()
    pairs = Pairs(torch.tensor([0, 1, 4]), torch.tensor([4, 2, 1]))
    scores = np.array([1.0, 2.0, 3.0])
    few = [(pairs.take(torch.tensor(at)), {"score": scores[at]}) for at in ([0, 1], [2])]
    write_pairs(tmp_path / "out.parquet", graph, few)
    assert parquet.read_table(tmp_path / "out.parquet").to_pydict() == {
        "source_type": ["author", "author", "paper"],
        "source": ["70", "50", "c"],
        "target_type": ["paper", "paper", "author"],
        "target": ["c", "a", "50"],
        "score": [1.0, 2.0, 3.0],
    }


def test_without_ids_nodes_have_their_numbers_and_an_empty_file_has_its_columns(tmp_path: Path) -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=3)
    pairs = Pairs(torch.tensor([0, 2]), torch.tensor([1, 0]))
    write_pairs(tmp_path / "out.parquet", graph, [(pairs, {"score": np.array([1.0, 2.0])})])
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.to_pydict() == {"source": [0, 2], "target": [1, 0], "score": [1.0, 2.0]}
    none = pairs.take(torch.zeros(0, dtype=torch.int64))
    for whole in (graph, people()):
        write_pairs(tmp_path / "none.parquet", whole, [(none, {"score": np.zeros(0)})])
        found = parquet.read_table(tmp_path / "none.parquet").to_pydict()
        assert found == {"source": [], "target": [], "score": []}
        write_partners(tmp_path / "no.parquet", whole, partner_chunks(torch.eye(3), [], DOT, 2))
        assert parquet.read_table(tmp_path / "no.parquet").num_rows == 0
    empty = Predictions.of_graph(graph, torch.zeros(0, dtype=torch.int64), MemoryStore(torch.zeros(0, 2)))
    empty.to_parquet(tmp_path / "predictions.parquet")
    assert parquet.read_table(tmp_path / "predictions.parquet").column_names == ["type", "id", "output"]


def test_a_file_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    h = torch.eye(3)
    h[2] = torch.nan
    (tmp_path / "out.parquet").write_bytes(b"old")
    with pytest.raises(GraphError, match="is NaN"):
        write_partners(tmp_path / "out.parquet", people(), partner_chunks(h, np.array([0, 1]), DOT, 1))
    assert (tmp_path / "out.parquet").read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["out.parquet"]
    with pytest.raises(FormatError, match=r"cannot write .*: No such file"):
        write_partners(tmp_path / "none" / "out.parquet", people(), partner_chunks(torch.eye(3), [0], DOT, 1))
