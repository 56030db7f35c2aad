"""What every partitioner is given."""

from weft.graph import Graph
from weft.partitioners.base import undirected


def test_it_is_given_both_directions_once_without_loops() -> None:
    near = undirected(Graph.from_edges([[0, 0, 1, 1, 2, 3], [0, 1, 0, 2, 2, 0]], num_nodes=5))
    assert near.indptr.tolist() == [0, 2, 4, 5, 6, 6]
    assert near.indices.tolist() == [1, 3, 0, 2, 1, 0]
