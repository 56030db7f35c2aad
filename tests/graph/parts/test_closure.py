"""Parts that training never has to leave."""

import pytest
import torch

from weft.errors import GraphError
from weft.graph import Graph
from weft.graph.parts.closure import close
from weft.layers.base import GraphInfo
from weft.layers.stack import Stack


def test_a_part_of_a_line_holds_the_nodes_before_it_and_their_edges() -> None:
    line = Graph.from_edges([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]], x=torch.eye(6), node_ids=list("abcdef"))
    part = close(line, torch.tensor([4]), 2)
    assert part.node_ids.tolist() == [2, 3, 4]
    assert part.own.tolist() == [False, False, True]
    assert part.graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert part.graph.in_degree().tolist() == [1, 1, 1]  # of the whole graph: node 2 has an edge into it
    assert part.graph.node_ids["node"].values.tolist() == ["c", "d", "e"]
    with pytest.raises(GraphError, match="hops"):
        close(line, torch.tensor([4]), 0)


@pytest.mark.parametrize("layer", ["gcn", "sage", "gat"])
def test_outputs_of_its_own_nodes_are_those_of_the_whole_graph(layer: str) -> None:
    made = torch.Generator().manual_seed(0)
    edges = torch.randint(60, (2, 200), generator=made)
    weight = torch.rand(200, generator=made)
    mask = torch.arange(60) % 3 == 0
    whole = Graph.from_edges(
        edges,
        num_nodes=60,
        x=torch.rand(60, 4, generator=made),
        y=[0] * 60,
        train_mask=mask,
        edge_weight=weight,
    ).add_self_loops()
    model = Stack(4, 3, layer=layer, layers=2, hidden=8).eval()
    expected = model(whole.block(), whole.x)
    seeds = torch.tensor([3, 9, 30, 31])
    part = close(whole, seeds, 2)
    assert part.node_ids.numel() < 60
    assert part.graph.train_mask is not None
    assert part.node_ids[part.graph.train_mask].tolist() == [3, 9, 30]
    found = model(part.graph.block(), part.graph.x)
    assert torch.allclose(found[part.own], expected[seeds], atol=1e-6)


def test_typed_graphs_keep_their_types() -> None:
    typed = Graph.from_types(
        {"author": {"num_nodes": 4}, "paper": {"x": torch.rand(5, 3), "y": [0, 1, 0, 1, 0]}},
        {("author", "writes", "paper"): [[0, 1, 2, 3], [0, 1, 2, 4]], ("paper", "by", "author"): [[1], [2]]},
    )
    info = GraphInfo.of(typed)
    part = close(typed, torch.tensor([6]), 2)  # paper 2, by author 2, of paper 1
    assert part.node_ids.tolist() == [2, 5, 6]
    assert part.graph.node_offsets == [0, 1, 3]
    assert part.graph.edge_types == typed.edge_types
    assert GraphInfo.of(part.graph).in_features == info.in_features
