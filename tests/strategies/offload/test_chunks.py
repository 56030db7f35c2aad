"""Chunks hold every edge once within the budget, with the data of edges counted."""

from typing import Any

import pytest
import torch
from halo_jobs import graph_of
from offload_costs import least_memory

from weft.graph.graph import Graph
from weft.strategies.offload.chunks import Cost, cut, edge_bytes
from weft.strategies.offload.offload import cost_of
from weft.train.model import build_model

pytestmark = pytest.mark.gpu


def test_chunks_hold_every_edge_once_within_the_budget() -> None:
    graph = graph_of("hub")
    cost = Cost(10, 5, 2)
    budget = least_memory(graph, cost) + 40
    chunks = list(cut(graph, cost, budget))
    assert len(chunks) > 2
    assert [chunk.rows.start for chunk in chunks[1:]] == [chunk.rows.stop for chunk in chunks[:-1]]
    for chunk in chunks:
        rows = chunk.rows.stop - chunk.rows.start
        assert cost(len(chunk.sources), rows, len(chunk.indices)) <= budget
        assert torch.equal(chunk.sources[:rows], torch.arange(chunk.rows.start, chunk.rows.stop))
        assert torch.equal(chunk.sources[chunk.indices.long()], graph.indices[chunk.edges].long())
        assert int(chunk.indptr[-1]) == len(chunk.indices)
    assert sum(len(chunk.indices) for chunk in chunks) == graph.num_edges


def test_the_data_of_edges_are_counted() -> None:
    bare, graph, typed = (graph_of(kind) for kind in ("directed", "attributed", "typed"))
    cost = Cost(10, 5, 2)
    assert _moved(graph, cost) - _moved(bare, cost) == graph.num_edges * 5 * 4
    assert typed.edge_type is not None
    assert edge_bytes(typed) == typed.edge_type.element_size()
    costs = [
        [cost_of(_model(name, given), given).edge for given in (bare, graph)] for name in ("gat", "gatv2")
    ]
    # the features, and of each head a score or a row of four, three times
    assert [with_data - without for without, with_data in costs] == [20 + 12 * 2, 20 + 12 * 8]


def _model(name: str, graph: Graph) -> Any:
    return build_model(graph, name, {"hidden": 8, "heads": 2})


def _moved(graph: Graph, cost: Cost) -> int:
    return sum(chunk.nbytes(graph) for chunk in cut(graph, cost, least_memory(graph, cost)))
