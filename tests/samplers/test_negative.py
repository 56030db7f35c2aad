"""Negatives by counters."""

import pytest
import torch

from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.samplers import NegativeSampler


def random_graph() -> Graph:
    made = torch.Generator().manual_seed(0)
    return Graph.from_edges(torch.randint(40, (2, 300), generator=made), num_nodes=40)


def test_no_negative_is_an_edge_or_the_source() -> None:
    graph = random_graph()
    known = {(int(u), int(v)) for u, v in graph.edge_index.T.tolist()}
    edges = torch.arange(graph.num_edges)
    for by in ("uniform", "degree"):
        drawn = NegativeSampler(graph, 7, by=by).sample(edges)  # type: ignore[arg-type]
        assert drawn.shape == (300, 7)
        for source, targets in zip(graph.indices.tolist(), drawn.tolist()):
            assert all((source, target) not in known and source != target for target in targets)


def test_they_are_a_function_of_seed_epoch_and_edge() -> None:
    graph, edges = random_graph(), torch.arange(300)
    drawn = NegativeSampler(graph, 3, seed=1).sample(edges, epoch=2)
    some = torch.tensor([290, 4])
    assert torch.equal(NegativeSampler(graph, 3, seed=1).sample(some, epoch=2), drawn[some])
    assert not torch.equal(NegativeSampler(graph, 3, seed=1).sample(edges, epoch=3), drawn)
    assert not torch.equal(NegativeSampler(graph, 3, seed=2).sample(edges, epoch=2), drawn)


@pytest.mark.parametrize("by", ["uniform", "degree"])
def test_nodes_are_drawn_as_often_as_they_should_be(by: str) -> None:
    graph = random_graph()
    sampler = NegativeSampler(graph, 500, by=by, exclude=False)  # type: ignore[arg-type]
    counts = torch.bincount(sampler.sample(torch.arange(300)).flatten(), minlength=40).double()
    weight = graph.in_degree().double().pow(0.75) if by == "degree" else torch.ones(40).double()
    expected = weight / weight.sum() * counts.sum()
    chi = float(((counts - expected) ** 2 / expected.clamp(min=1)).sum())
    assert chi < 80  # 39 degrees of freedom: beyond it once in ten thousand


def test_a_source_with_few_nodes_left_gets_them_and_one_with_none_is_named() -> None:
    spokes = torch.tensor([[0] * 49, list(range(1, 50))])
    graph = Graph.from_edges(spokes[:, :-1], num_nodes=50)  # all but node 49
    assert set(NegativeSampler(graph, 3).sample(torch.arange(48)).flatten().tolist()) == {49}
    full = Graph.from_edges(spokes, num_nodes=50)
    with pytest.raises(GraphError, match="node 0 has an edge to every node"):
        NegativeSampler(full).sample(torch.arange(1))
    assert NegativeSampler(full, exclude=False).sample(torch.arange(1)).shape == (1, 1)


def test_targets_are_of_the_type_of_the_edge() -> None:
    graph = Graph.from_types(
        {"a": {"num_nodes": 5}, "b": {"num_nodes": 6}},
        {("a", "to", "b"): [[0, 1, 2], [0, 1, 2]], ("b", "to", "a"): [[3], [4]]},
    )
    drawn = NegativeSampler(graph, 20).sample(torch.arange(4))
    to_b = graph.indices < 5
    assert bool((drawn[to_b] >= 5).all())
    assert bool((drawn[~to_b] < 5).all())


def test_wrong_options_are_refused() -> None:
    for options, message in (({"by": "rank"}, "by must be"), ({"count": 0}, "count must be")):
        with pytest.raises(InputError, match=message):
            NegativeSampler(random_graph(), **options)  # type: ignore[arg-type]
