"""Which rows a cache should hold: readers of a node, over what it reads itself, or a random order."""

import pytest
import torch

from weft.errors import InputError
from weft.graph import Graph
from weft.stores.rankers import importance, out_degree, random_order

# 0 is read by 1, 2 and 3 and reads 4; 4 reads nobody.
GRAPH = Graph.from_edges([[0, 0, 0, 4], [1, 2, 3, 0]], num_nodes=5)


def test_the_out_degree_counts_who_could_ask() -> None:
    assert out_degree(GRAPH).tolist() == [3.0, 0.0, 0.0, 0.0, 1.0]


def test_importance_weighs_readers_against_what_a_node_reads() -> None:
    assert importance(GRAPH, 1).tolist() == [3.0, 0.0, 0.0, 0.0, 1.0]
    assert importance(GRAPH, 2).tolist() == [3.0, 0.0, 0.0, 0.0, 4.0]
    with pytest.raises(InputError, match="hops must be at least 1, got 0"):
        importance(GRAPH, 0)


def test_a_random_order_has_each_place_once_and_goes_by_its_seed() -> None:
    order = random_order(20, 1)
    assert order.sort().values.tolist() == list(range(20))
    assert torch.equal(order, random_order(20, 1))
    assert not torch.equal(order, random_order(20, 2))
