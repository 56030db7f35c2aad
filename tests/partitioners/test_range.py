"""Parts as ranges of ids."""

from weft.graph import Graph
from weft.partitioners.range import RangePartitioner


def test_ranges_hold_about_equal_edges() -> None:
    # Node 0 receives 6 edges, every other one none.
    graph = Graph.from_edges([[1, 2, 3, 4, 5, 6], [0] * 6])
    assert RangePartitioner().assign(graph, 2).tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert RangePartitioner(balance="nodes").assign(graph, 2).tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_every_type_is_spread_over_the_parts() -> None:
    graph = Graph.from_types(
        {"a": {"num_nodes": 4}, "b": {"num_nodes": 2}}, {("a", "to", "b"): [[0, 1, 2, 3], [0, 0, 1, 1]]}
    )
    assert RangePartitioner().assign(graph, 2).tolist() == [0, 0, 1, 1, 0, 1]
