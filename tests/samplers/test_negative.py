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
    with pytest.raises(GraphError, match="node 0 has an edge to every node that could be drawn"):
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


def test_nodes_are_drawn_by_their_weight_and_those_without_any_never() -> None:
    graph = random_graph()
    weight = torch.arange(40).double() % 5
    sampler = NegativeSampler(graph, 500, by="weight", weight=weight, exclude=False)
    counts = torch.bincount(sampler.sample(torch.arange(300)).flatten(), minlength=40).double()
    assert counts[weight == 0].sum() == 0
    expected = (weight / weight.sum() * counts.sum())[weight > 0]
    chi = float(((counts[weight > 0] - expected) ** 2 / expected).sum())
    assert chi < 70  # 31 degrees of freedom
    few = torch.zeros(40)
    few[:3] = 1.0
    known = {(int(u), int(v)) for u, v in graph.edge_index.T.tolist()}
    free = [e for e in range(300) if any((int(graph.indices[e]), v) not in known for v in (0, 1, 2))]
    free = [e for e in free if int(graph.indices[e]) > 2][:50]
    drawn = NegativeSampler(graph, 4, by="weight", weight=few).sample(torch.tensor(free))
    assert set(drawn.flatten().tolist()) <= {0, 1, 2}


@pytest.mark.parametrize("by", ["uniform", "degree", "weight"])
def test_negatives_have_the_condition_of_the_target(by: str) -> None:
    graph, edges = random_graph(), torch.arange(300)
    condition = (torch.arange(40) * 7) % 4
    weight = torch.arange(40).double() % 3 + 1
    given = {"by": by, "weight": weight if by == "weight" else None, "condition": condition}
    drawn = NegativeSampler(graph, 200, exclude=False, **given).sample(edges)  # type: ignore[arg-type]
    targets = torch.repeat_interleave(graph.indptr.diff())
    assert torch.equal(condition[drawn], condition[targets][:, None].expand(-1, 200))
    chosen = {"uniform": torch.ones(40).double(), "degree": graph.in_degree().double().pow(0.75)}
    share = chosen.get(by, weight)
    for value in range(4):
        counts = torch.bincount(drawn[condition[targets] == value].flatten(), minlength=40).double()
        expected = torch.where(condition == value, share, 0.0)
        expected = (expected / expected.sum() * counts.sum())[condition == value]
        chi = float(((counts[condition == value] - expected) ** 2 / expected).sum())
        assert chi < 35  # 9 degrees of freedom: beyond it once in ten thousand
    part = NegativeSampler(graph, 3, **given).sample(edges, 1)  # type: ignore[arg-type]
    some = torch.tensor([7, 250])
    again = NegativeSampler(graph, 3, **given).sample(some, 1)  # type: ignore[arg-type]
    assert torch.equal(again, part[some])
    known = {(int(u), int(v)) for u, v in graph.edge_index.T.tolist()}
    ends = zip(graph.indices.tolist(), part.tolist())
    assert all((u, v) not in known and u != v for u, row in ends for v in row)


def test_weights_and_conditions_that_cannot_be_are_refused() -> None:
    graph = random_graph()
    for options, message in (
        ({"by": "weight"}, "goes with by='weight'"),
        ({"weight": torch.ones(40)}, "goes with by='weight'"),
        ({"by": "weight", "weight": [1.0] * 3}, r"expected 40 values, one a node, got shape \[3\]"),
        ({"by": "weight", "weight": [-1.0] * 40}, "finite numbers of at least 0"),
        ({"condition": [0.5] * 40}, "expected a whole number per node"),
    ):
        with pytest.raises((GraphError, InputError), match=message):
            NegativeSampler(graph, **options)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="weigh nothing"):
        NegativeSampler(graph, by="weight", weight=torch.zeros(40)).sample(torch.arange(2))
