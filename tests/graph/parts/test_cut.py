"""Who holds what: by nodes, by edges and on a grid; each edge once, each node with one root."""

import pytest
import torch

from weft.errors import GraphError
from weft.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.cut import EdgeRun, Piece, as_assignment, pieces, replicas

GRAPH = Graph.from_edges([[0, 1, 2, 3, 0], [1, 2, 0, 0, 3]], num_nodes=5)  # node 4 has no edges


def held(piece: Piece) -> EdgeRun:
    """Return the edges of a part, of all runs."""
    run = EdgeRun(*(torch.cat(ends) for ends in zip(*piece.runs())))
    assert len(run.edges) == piece.num_edges
    assert torch.equal(run.src, GRAPH.indices[run.edges].long())
    return run


def test_a_part_of_nodes_holds_the_edges_into_them() -> None:
    first, second = pieces(GRAPH, Assignment(torch.tensor([0, 1, 0, 1, 1]), 2))
    assert (first.node_ids.tolist(), second.node_ids.tolist()) == ([0, 2], [1, 3, 4])
    assert (held(first).dst.tolist(), held(second).dst.tolist()) == ([0, 0, 2], [1, 3])
    assert torch.cat([held(first).edges, held(second).edges]).sort().values.tolist() == list(range(5))


def test_a_part_of_edges_holds_a_replica_of_each_of_their_ends_and_one_is_the_root() -> None:
    parts = (torch.arange(5) % 2).int()
    copies = replicas(GRAPH, parts, 2)
    assert torch.bincount(copies.node, minlength=5)[4] == 1, "a node without edges lies in one part"
    for part, piece in enumerate(pieces(GRAPH, Assignment(parts, 2, cuts="edges"))):
        run = held(piece)
        assert run.edges.tolist() == list(range(part, 5, 2))
        ends = {*run.src.tolist(), *run.dst.tolist()}
        assert ends <= {*piece.node_ids.tolist()} <= ends | {4}
        assert torch.equal(piece.node_part, copies.root[piece.node_ids])
    pairs = set(zip(copies.node.tolist(), copies.part.tolist()))
    assert all((node, root) in pairs for node, root in enumerate(copies.root.tolist()))


def test_a_cell_of_a_grid_holds_edges_from_its_column_to_its_row() -> None:
    parts = torch.tensor([0, 1, 2, 3, 0], dtype=torch.int32)
    seen = []
    for number, piece in enumerate(pieces(GRAPH, Assignment(parts, 4, cuts="grid", grid=(2, 2)))):
        run = held(piece)
        assert bool((parts[run.dst] // 2 == number // 2).all())
        assert bool((parts[run.src] % 2 == number % 2).all())
        seen += run.edges.tolist()
    assert sorted(seen) == list(range(5))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (torch.zeros(4).int(), r"the part of each of 5 nodes, got shape \(4,\); was the partition made for"),
        (Assignment(torch.zeros(4).int(), 1, cuts="edges"), "the part of each of 5 edges"),
        (Assignment(torch.full((5,), 2).int(), 2), r"parts must be in 0 … 1"),
        (torch.tensor([0, -1, 0, 0, 0]), r"parts must be in 0 … 0"),
        (Assignment(torch.zeros(5).int(), 3, cuts="grid", grid=(2, 2)), "does not have 3 parts"),
        (Assignment(torch.zeros(5).int(), 3, cuts="grid"), "a grid of None"),
    ],
)
def test_parts_that_cannot_be_of_the_graph_are_refused(parts: Assignment | torch.Tensor, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        as_assignment(GRAPH, parts)


def test_a_tensor_is_the_part_of_each_node() -> None:
    made = as_assignment(GRAPH, torch.tensor([0, 2, 1, 0, 0]))
    assert (made.num_parts, made.cuts, made.parts.dtype) == (3, "nodes", torch.int32)
