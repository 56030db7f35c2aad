"""Parts that hold all that training on them reads."""

import torch

from weft.graph import Graph
from weft.graph.parts.closure import close
from weft.partitioners.hash import HashPartitioner
from weft.partitioners.selfreliant import SelfReliantPartitioner


def communities() -> Graph:
    made = torch.Generator().manual_seed(0)
    inside = torch.randint(50, (2, 1200), generator=made) + 50 * torch.randint(4, (1, 1200), generator=made)
    across = torch.randint(200, (2, 10), generator=made)
    order = torch.randperm(200, generator=made)
    train = torch.rand(200, generator=made) < 0.4
    return Graph.from_edges(
        order[torch.cat([inside, across], 1)], num_nodes=200, y=[0] * 200, train_mask=train
    )


def copies(graph: Graph, parts: torch.Tensor, num_parts: int) -> int:
    """Return the nodes that all parts hold together, each with what two layers on its training nodes read."""
    assert graph.train_mask is not None
    seeds = [(graph.train_mask & (parts == part)).nonzero().flatten() for part in range(num_parts)]
    return sum(close(graph, own, 2).node_ids.numel() for own in seeds)


def test_training_nodes_are_even_and_copies_fewer_than_of_blind_parts() -> None:
    graph = communities()
    parts = SelfReliantPartitioner(hops=2).assign(graph, 4)
    assert graph.train_mask is not None
    trained = torch.bincount(parts[graph.train_mask], minlength=4)
    assert int(trained.max() - trained.min()) <= 2
    blind = HashPartitioner().assign(graph, 4)
    assert copies(graph, parts, 4) < 0.6 * copies(graph, blind, 4)


def test_other_nodes_go_where_they_are_held_anyway() -> None:
    graph = communities()
    parts = SelfReliantPartitioner(hops=2).assign(graph, 4)
    assert graph.train_mask is not None
    held = [
        set(close(graph, (graph.train_mask & (parts == p)).nonzero().flatten(), 2).node_ids.tolist())
        for p in range(4)
    ]
    for node in (~graph.train_mask).nonzero().flatten().tolist():
        if any(node in nodes for nodes in held):
            assert node in held[int(parts[node])]


def test_of_equal_parts_the_one_that_holds_less_takes_a_node() -> None:
    # Node 2 reads 0 and 1, which lie apart; 0 reads ten others, 1 reads one.
    ends = [[*range(4, 14), 14, 0, 1], [0] * 10 + [1, 2, 2]]
    graph = Graph.from_edges(ends, num_nodes=15, y=[0] * 15, train_mask=torch.arange(15) < 4)
    parts = SelfReliantPartitioner(hops=1).assign(graph, 2)
    assert parts[0] != parts[1]
    assert parts[2] == parts[1]
