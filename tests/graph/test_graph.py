"""Graphs: construction, structure, degrees, data, types."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from five_edges import EDGES
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.graph import Graph


def test_a_graph_that_is_asked_by_another_thread_meanwhile_gives_both_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Graph.from_edges(EDGES, edge_weight=[0.0, 1.0, 2.0, 3.0, 4.0])
    expected = Graph.from_edges(EDGES, edge_weight=[0.0, 1.0, 2.0, 3.0, 4.0]).edge_data["weight"]
    pool, others = ThreadPoolExecutor(1), []
    build_csr = kernels.build_csr

    def meanwhile(ask: Callable[[], Any]) -> None:
        if threading.current_thread() is threading.main_thread():
            others.append(pool.submit(ask).result(30))

    def slow_build(*args: Any, **options: Any) -> Any:
        meanwhile(lambda: graph.indices)
        return build_csr(*args, **options)

    def slow_ids(graph: Graph) -> Tensor:
        meanwhile(lambda: graph.edge_data["weight"])
        return graph._topology.csr.edge_ids

    with pool, monkeypatch.context() as patch:
        patch.setattr(kernels, "build_csr", slow_build)
        assert torch.equal(graph.indices, others.pop())
        patch.setattr(Graph, "edge_ids", property(slow_ids))
        assert torch.equal(graph.edge_data["weight"], expected)
        assert torch.equal(others.pop(), expected)
    assert graph.edge_index.tolist() == EDGES


def test_zero_edges_are_legal() -> None:
    for empty in ([[], []], np.zeros((2, 0)), torch.empty(2, 0, dtype=torch.int64)):
        graph = Graph.from_edges(empty, num_nodes=3)
        assert graph.num_edges == 0
        assert graph.block().aggregate(torch.ones(3, 2)).tolist() == [[0, 0]] * 3
        assert graph.in_degree().tolist() == [0, 0, 0]
        assert graph.summary()["isolated_nodes"] == 3


def test_target_type_can_be_named() -> None:
    nodes = {"a": {"y": [0, 1]}, "b": {"y": [1, 0]}}
    edges = {("a", "to", "b"): [[0], [1]]}
    assert Graph.from_types(nodes, edges).target_type == "a"
    assert Graph.from_types(nodes, edges, target_type="b").target_type == "b"
    with pytest.raises(GraphError, match="'c' is not a node type; there are: a, b"):
        Graph.from_types(nodes, edges, target_type="c")


def test_block_is_made_once_and_takes_a_clock() -> None:
    graph = Graph.from_edges(EDGES)
    clock = torch.tensor([1, 2, 3])
    assert graph.block(clock) is graph.block()
    assert graph.block().clock is clock


def test_with_data_replaces_adds_and_removes() -> None:
    graph = Graph.from_edges(EDGES, x=np.eye(3), y=[0, 1, 0])
    changed = graph.with_data(x=np.ones((3, 1)), y=None, age=torch.tensor([1, 2, 3]))
    assert changed.x.shape == (3, 1)
    assert changed.y is None
    assert changed.node_data["node"]["age"].tolist() == [1, 2, 3]
    assert graph.x.shape == (3, 3)
    with pytest.raises(GraphError, match="x has 2 rows, but there are 3 nodes"):
        graph.with_data(x=np.eye(2))


def test_to_changes_the_type_of_features_and_weights_only() -> None:
    graph = Graph.from_edges(EDGES, x=np.eye(3), y=[0, 1, 0], edge_weight=np.ones(5), edge_time=np.arange(5))
    half = graph.to(dtype=torch.bfloat16)
    assert half.x.dtype == half.edge_data["weight"].dtype == torch.bfloat16
    assert half.edge_data["time"].dtype == torch.int64
    assert half.y is not None
    assert half.y.dtype == torch.int64
    assert torch.equal(half.indices, graph.indices)


def test_to_returns_the_graph_itself_when_nothing_changes() -> None:
    graph = Graph.from_edges(EDGES, x=torch.ones(3, 2), edge_weight=[1.0, 2.0, 3.0, 4.0, 5.0])
    assert graph.to() is graph
    assert graph.to(device="cpu") is graph
    assert graph.to(dtype=torch.float32, device=torch.device("cpu")) is graph
    assert graph.to(dtype=torch.float64) is not graph


def test_summary_is_plain_numbers() -> None:
    graph = Graph.from_edges(
        EDGES, num_nodes=4, y=[0, 1, 0, 1], train_mask=torch.tensor([True, False, True, False])
    )
    summary = graph.summary()
    assert summary["num_nodes"] == 4
    assert summary["self_loops"] == 1
    assert summary["isolated_nodes"] == 1
    assert summary["split"] == {"train": 2}
    assert summary["in_degree"]["max"] == 3
    assert summary["in_degree"]["histogram"] == [[0, 1], [1, 2], [2, 1]]
