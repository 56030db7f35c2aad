"""Features that are not in memory, in a graph."""

from typing import Any

import pytest
import torch

import weft
from weft.errors import GraphError
from weft.graph import Graph
from weft.stores import MemoryStore


def graph() -> Graph:
    return weft.datasets.open_dataset(name="community", nodes=120, features=4, classes=2)


def test_a_graph_holds_a_store_and_checks_its_rows() -> None:
    whole = graph()
    stored = whole.with_data(x=MemoryStore(whole.x))
    assert stored.symmetrise().x is stored.x
    assert stored.to(dtype=torch.float64).x is stored.x
    assert "x=[120, 4]" in repr(stored)
    with pytest.raises(GraphError, match="120"):
        whole.with_data(x=MemoryStore(whole.x[:5]))


def test_what_needs_all_rows_in_memory_says_so_in_one_line() -> None:
    whole = graph()
    stored = whole.with_data(x=MemoryStore(whole.x))
    for call in (
        lambda: weft.train(stored, "sage", epochs=1, hidden=4),
        lambda: weft.nn.Stack(4, 2, layer="gat")(stored.block(), stored.x),
        lambda: torch.relu(stored.x),
    ):
        with pytest.raises(GraphError, match="lie in a MemoryStore"):
            call()


def test_parts_read_their_own_rows() -> None:
    whole = graph()
    options: dict[str, Any] = {"epochs": 2, "hidden": 4, "strategy": "halo", "parts": 2}
    plain, stored = (
        weft.train(g, "sage", **options) for g in (whole, whole.with_data(x=MemoryStore(whole.x)))
    )
    assert stored.loss == plain.loss
