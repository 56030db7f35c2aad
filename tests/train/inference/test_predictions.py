"""Outputs are found by the user's ids, of each type, and written whole."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

import weft
from weft.errors import GraphError
from weft.stores.memory import MemoryStore
from weft.train.inference.predictions import ByNode, Predictions

TYPED = weft.Graph.from_types(
    {"author": {"num_nodes": 3}, "paper": {"num_nodes": 2, "node_ids": ["p", "q"]}},
    {("author", "writes", "paper"): torch.tensor([[0], [1]])},
)
ROWS = torch.arange(8.0).reshape(4, 2)


def made() -> Predictions:
    """Outputs of two authors, 0 and 2, and of both papers."""
    author, paper = (TYPED.rows_of_type(name).start for name in ("author", "paper"))
    assert author < paper
    nodes = torch.tensor([author, author + 2, paper, paper + 1])
    return Predictions.of_graph(TYPED, nodes, MemoryStore(ROWS))


def test_rows_are_found_by_the_ids_of_their_type() -> None:
    found = made()
    assert len(found) == 4
    assert torch.equal(found.tensor(), ROWS)
    assert torch.equal(found.of(["q", "p"], "paper"), ROWS[[3, 2]])
    assert torch.equal(found.of([2], "author"), ROWS[[1]])


def test_which_type_is_meant_must_be_said_and_be_there() -> None:
    with pytest.raises(GraphError, match="outputs of several types: name one of author, paper"):
        made().of(["p"])
    with pytest.raises(GraphError, match="no outputs for nodes of type 'venue'; there are: author, paper"):
        made().of(["p"], "venue")


@pytest.mark.parametrize("chunk", [1, 3, 65536])
def test_a_file_has_a_row_a_node_in_their_order(tmp_path: Path, chunk: int) -> None:
    made().to_parquet(tmp_path / "out.parquet", chunk=chunk)
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["type"] == ["author", "author", "paper", "paper"]
    assert table["id"] == ["0", "2", "p", "q"]
    assert table["output"] == ROWS.tolist()


def test_rows_by_global_id_of_which_only_some_are_there() -> None:
    held = ByNode(MemoryStore(ROWS), torch.tensor([1, 4, 7, 9]), 12)
    assert held.shape == (12, 2)
    assert torch.equal(held.gather(torch.tensor([9, 1])), ROWS[[3, 0]])
