"""Subgraphs: the training nodes first, all edges among the nodes, and tables that are used again."""

import torch

from weft.graph import Graph
from weft.samplers.core.subgraph import Rows

MASK = torch.tensor([False, True, False, True, False])
GRAPH = Graph.from_edges(
    [[0, 1, 2, 3, 4, 1], [1, 2, 3, 4, 0, 3]], x=torch.rand(5, 2), y=[0, 1, 0, 1, 0], train_mask=MASK
)


def test_training_nodes_come_first_each_by_id() -> None:
    nodes, seeds = Rows(GRAPH).ordered(torch.tensor([4, 3, 0, 1]))
    assert (nodes.tolist(), seeds) == ([1, 3, 0, 4], 2)


def test_edges_among_the_nodes_are_found_and_no_others_also_the_second_time() -> None:
    rows = Rows(GRAPH)
    for nodes in (torch.tensor([1, 3, 2]), torch.tensor([3, 4, 0]), torch.tensor([1, 3, 2])):
        indptr, src, edges = rows.edges(nodes)
        dst = torch.repeat_interleave(indptr.diff())
        found = set(zip(nodes[src.long()].tolist(), nodes[dst].tolist()))
        given = set(zip(*GRAPH.edge_index.tolist()))
        assert found == {(u, v) for u, v in given if {u, v} <= {*nodes.tolist()}}
        assert torch.equal(GRAPH.indices[edges].long(), nodes[src.long()])
    assert len(rows._tables) == 1, "one table was made, and used again"


def test_a_batch_counts_its_seeds_and_has_one_block_for_every_layer() -> None:
    rows = Rows(GRAPH)
    nodes, seeds = rows.ordered(torch.tensor([1, 2, 3]))
    batch = rows.batch(nodes, seeds, rows.edges(nodes))
    assert (batch.count, batch.rows, batch.seeds.tolist()) == (2, slice(2), [1, 3])
    assert torch.equal(batch.x, GRAPH.x[nodes])
    (block,) = batch.blocks
    assert block.aggregate(torch.ones(3, 1)).flatten().tolist() == block.in_degree().tolist()
