"""Parts by a hash of the id."""

import torch

from weft.graph import Graph
from weft.partitioners.hash import HashPartitioner

GRAPH = Graph.from_edges([[0], [1]], num_nodes=10_000)


def test_parts_are_even_and_do_not_follow_the_order_of_ids() -> None:
    parts = HashPartitioner().assign(GRAPH, 4)
    counts = torch.bincount(parts)
    assert counts.min() > 2300
    assert abs(float((parts[1:] == parts[:-1]).float().mean()) - 0.25) < 0.03


def test_another_seed_gives_other_parts() -> None:
    first, second = (HashPartitioner(seed=seed).assign(GRAPH, 4) for seed in (0, 1))
    assert float((first == second).float().mean()) < 0.3
