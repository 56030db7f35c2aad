"""Each graph of the proof has what it is there for."""

import pytest
import torch

from weft.graph.sparse import SparseFeatures
from weft.train.proof.graphs import GRAPHS, NODES, edge_parts, make_graph, node_parts, num_parts


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_the_same_in_every_process_and_no_part_is_empty(name: str) -> None:
    graph, again = make_graph(name), make_graph(name)
    assert graph.num_nodes == NODES
    assert torch.equal(graph.edge_index, again.edge_index)
    for workers in (1, 2, 4):
        parts = num_parts(name, workers)
        sizes = torch.bincount(node_parts(name, parts), minlength=parts)
        assert int(sizes.max() - sizes.min()) <= 1
        assert int(sizes.min()) > 0
        assert len(edge_parts(name, graph, parts).unique()) == parts


def test_each_has_what_has_broken_a_system() -> None:
    graphs = {name: make_graph(name) for name in GRAPHS}
    assert int(graphs["hub"].in_degree().max()) >= NODES
    apart = node_parts("disconnected", 4)
    assert torch.equal(*(apart[ends] for ends in graphs["disconnected"].edge_index)), "no edge is cut"
    cut = node_parts("lopsided", 4)
    assert cut[graphs["lopsided"].train_mask].unique().tolist() == [0]
    assert int(graphs["lopsided"].in_degree()[NODES // 2 :].sum()) == 0
    assert isinstance(graphs["sparse"].x, SparseFeatures)
    rare = graphs["relations"].given_edge_type() == 3
    assert node_parts("relations", 4)[graphs["relations"].edge_index[:, rare]].unique().tolist() == [0]
    assert "x" not in graphs["typed"].node_data["venue"]
