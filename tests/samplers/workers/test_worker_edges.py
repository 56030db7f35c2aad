"""The edges that a worker holds are those of the whole graph into its nodes, under the same names."""

import torch

from weft.graph import Graph
from weft.graph.ends import edge_ends, mirrored
from weft.graph.parts.shard import make_shards
from weft.graph.views import EdgeView
from weft.samplers.neighbor import NeighborSampler
from weft.samplers.workers.worker_edges import WorkerEdges

EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 3], [1, 2, 3, 4, 5, 0, 2, 1]])
PARTS = torch.tensor([0, 1, 0, 1, 0, 1], dtype=torch.int32)


def whole() -> Graph:
    return Graph.from_edges(EDGES, y=[0, 1, 0, 1, 0, 1], edge_weight=torch.arange(1.0, 9.0))


def held() -> list[EdgeView]:
    """What two workers hold; the annotation says that it is what samplers draw from."""
    return [WorkerEdges(shard) for shard in make_shards(whole(), PARTS)]


def test_edges_into_own_nodes_are_there_and_no_others() -> None:
    graph = whole()
    found = [{*zip(*(each.tolist() for each in edge_ends(view)[:2]))} for view in held()]
    expected = {*zip(*(each.tolist() for each in edge_ends(graph)[:2]))}
    assert found[0] | found[1] == expected
    assert not found[0] & found[1]
    assert {dst for _, dst in found[0]} == {0, 2, 4}


def test_degrees_are_those_of_the_whole_graph() -> None:
    graph = whole()
    for view in held():
        touched = torch.unique(torch.cat([edge_ends(view)[0], edge_ends(view)[1]]))
        for asked in (("in", None, False), ("out", None, False), ("in", None, True)):
            assert torch.equal(view.degree(*asked)[touched], graph.degree(*asked)[touched])  # type: ignore[arg-type]
        assert torch.equal(view.in_degree()[touched], graph.in_degree()[touched])


def test_node_data_are_those_of_own_nodes() -> None:
    view = held()[1]
    assert view.y is not None
    assert (view.y.tolist(), view.num_nodes, view.num_edges, view.num_classes) == ([1, 1, 1], 6, 4, 2)
    assert view.own_ids is not None
    assert view.own_ids.tolist() == [1, 3, 5]


def test_a_sampler_draws_from_it_as_from_a_graph() -> None:
    view, graph = held()[0], whole()
    drawn = NeighborSampler(view, [-1], seed=3).sample([0, 2, 4])
    same = NeighborSampler(graph, [-1], seed=3).sample([0, 2, 4])
    assert torch.equal(drawn.nodes, same.nodes)
    assert torch.equal(drawn.blocks[0].indices, same.blocks[0].indices)
    assert mirrored(view).tolist() == mirrored(graph).tolist() == [False]
