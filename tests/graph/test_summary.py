"""A graph in numbers."""

import json

import torch

from weft.graph import Graph, SparseFeatures


def test_counts_of_types_data_and_degrees() -> None:
    graph = Graph.from_types(
        {"a": {"num_nodes": 2}, "b": {"x": SparseFeatures.from_dense(torch.eye(3)), "y": [0, 1, 1]}},
        {
            ("a", "to", "b"): [[0, 0, 1], [0, 1, 1]],
            ("b", "is", "b"): {"edge_index": [[2], [2]], "edge_attr": [[1.0]]},
        },
    )
    summary = graph.summary()
    assert summary["node_types"] == {"a": 2, "b": 3}
    assert summary["edge_types"] == {"a/to/b": 3, "b/is/b": 1}
    assert summary["features"] == {
        "b": {"columns": 3, "sparse": True, "stored_values": 3, "dtype": "float32"}
    }
    assert summary["edge_data"] == {"attr": [1]}
    assert (summary["num_classes"], summary["self_loops"], summary["isolated_nodes"]) == (2, 1, 0)
    assert summary["out_degree"]["mean"] == 0.8
    json.dumps(summary)


def test_histogram_has_a_bin_for_each_power_of_two() -> None:
    star = Graph.from_edges([list(range(9)), [9] * 9])
    assert star.summary()["in_degree"]["histogram"] == [[0, 9], [1, 0], [2, 0], [4, 0], [8, 1]]
    assert star.summary()["in_degree"]["median"] == 0
    assert star.summary()["in_degree"]["max"] == 9


def test_edges_that_go_both_ways() -> None:
    star = Graph.from_edges([list(range(9)), [9] * 9])
    assert not star.summary()["both_ways"]
    assert star.symmetrise().summary()["both_ways"]
    nearly = Graph.from_edges([[0, 1, 1, 2, 0], [1, 0, 2, 1, 2]])
    assert not nearly.summary()["both_ways"]
