"""Hidden edges are not drawn, and both of their ends have a degree less."""

from typing import Any

import pytest
import torch
from hidden_graphs import removed, weighted_graph

from weft.graph import Graph
from weft.kernels import native
from weft.samplers import NeighborSampler
from weft.samplers.core.hidden import Hidden


@pytest.mark.parametrize(
    "options", [{}, {"replace": True}, {"weight": "weight"}, {"temporal": True}, {"expand": "once"}], ids=str
)
def test_what_is_hidden_is_not_drawn_and_fanouts_stay_whole(options: dict[str, Any]) -> None:
    made = torch.Generator().manual_seed(2)
    graph = weighted_graph(typed=True)
    graph = Graph.from_edges(
        graph.edge_index, num_nodes=30, edge_type=graph.given_edge_type(), num_relations=3,
        edge_weight=graph.given_edge_data()["weight"], edge_time=torch.arange(graph.num_edges) % 7,
    )  # fmt: skip
    gone = torch.randperm(graph.num_edges, generator=made)[:60].sort().values
    seeds = torch.arange(20)
    given = {"times": torch.full((20,), 4)} if "temporal" in options else {}
    sampler = NeighborSampler(graph, sampler_fanout(graph), **options)
    batch = sampler.sample(seeds, hidden=gone, **given)
    with native.disabled():
        same = sampler.sample(seeds, hidden=gone, **given)
    other = NeighborSampler(removed(graph, gone), sampler_fanout(graph), **options).sample(seeds, **given)
    assert torch.equal(batch.nodes, same.nodes)
    for mine, theirs, built in zip(batch.blocks, same.blocks, other.blocks):
        assert torch.equal(mine.edge_ids, theirs.edge_ids)
        assert not torch.isin(mine.edge_ids, gone).any()
        assert torch.equal(mine.edge_scale, theirs.edge_scale)
        if "weight" not in options:  # whose draws are keyed by the ids of edges, which are others there
            assert torch.equal(mine.indices, built.indices)
            assert torch.equal(mine.edge_scale, built.edge_scale)
            assert torch.equal(mine.in_degree(), built.in_degree())
            assert torch.equal(mine.in_degree("src", 1), built.in_degree("src", 1))


def test_both_ends_of_a_hidden_edge_have_a_degree_less() -> None:
    graph = Graph.from_edges([[0, 0, 3], [1, 2, 1]], num_nodes=4)  # nothing leads to 0
    (block,) = NeighborSampler(graph, [-1]).sample(range(4), hidden=torch.tensor([0])).blocks
    assert block.out_degree("src").tolist() == [1, 0, 0, 1]
    assert block.in_degree("src").tolist() == [0, 1, 1, 0]


def sampler_fanout(graph: Graph) -> list[Any]:
    return [3, dict.fromkeys(graph.edge_types, 2)]


@pytest.mark.parametrize("fanout", [2, -1])
def test_degrees_by_relation_are_counted_at_once_as_one_after_the_other(fanout: int) -> None:
    graph = weighted_graph(typed=True)
    gone = torch.arange(0, graph.num_edges, 3)
    for block in NeighborSampler(graph, [fanout, fanout]).sample(torch.arange(12), hidden=gone).blocks:
        assert block.edge_type is not None
        expected = torch.empty(block.num_edges)
        for relation in range(graph.num_relations):
            expected[block.edge_type == relation] = block.edge_in_degree("dst", relation).float()
        assert torch.equal(block.relation_in_degree().float(), expected)
        hidden = block.degree_source
        assert isinstance(hidden, Hidden)
        kinds = block.edge_type.unique()
        assert len(kinds) > 1
        for relation in kinds.tolist():  # and without the hidden ones of that relation alone
            ids = block.dst_ids.unique()
            assert torch.equal(
                hidden.degree_in_relations(ids, torch.full_like(ids, relation)).float(),
                hidden.degree("in", relation, False)[ids].float(),
            )
