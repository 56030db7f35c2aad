"""Clusters: the edges among them and no others, normalised anew."""

from typing import Any

import pytest
import torch

from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.samplers import ClusterSampler, Loader


def graph(**data: Any) -> Graph:
    made = torch.Generator().manual_seed(0)
    edges = torch.randint(30, (2, 200), generator=made)
    train = torch.arange(30) % 3 == 0
    return Graph.from_edges(edges, num_nodes=30, x=torch.rand(30, 3), y=[0, 1] * 15, train_mask=train, **data)


PARTS = torch.arange(30) % 5


def test_a_batch_is_the_subgraph_of_its_clusters_training_nodes_first() -> None:
    whole = graph()
    batch = ClusterSampler(whole, 5, parts=PARTS).sample([1, 4])
    inside = torch.isin(PARTS, torch.tensor([1, 4]))
    assert sorted(batch.nodes.tolist()) == inside.nonzero().flatten().tolist()
    assert batch.seeds.tolist() == (inside & whole.train_mask).nonzero().flatten().tolist()
    (block,) = batch.blocks
    src, dst = whole.edge_index
    expected = torch.stack([src, dst])[:, inside[src] & inside[dst]]
    found = torch.stack([block.src_ids[block.indices.long()], block.dst_ids[block.edge_dst]])
    assert sorted(map(tuple, found.T.tolist())) == sorted(map(tuple, expected.T.tolist()))
    counted = torch.bincount(expected[1], minlength=30)[block.dst_ids]
    assert torch.equal(block.in_degree(), counted.float()), "degrees are those in the batch"


def test_enhancement_adds_a_share_of_the_normalised_diagonal() -> None:
    whole = graph().add_self_loops()
    h = torch.rand(30, 4, dtype=torch.float64)
    sampler = [ClusterSampler(whole, 5, parts=PARTS, enhance=share) for share in (0.0, 0.5)]
    plain, enhanced = (each.sample([0, 2]).blocks[0] for each in sampler)
    held = h[plain.src_ids]
    loops = torch.bincount(plain.edge_dst[plain.indices == plain.edge_dst], minlength=plain.num_dst)
    diagonal = (loops / plain.in_degree()).double()[:, None] * held
    expected = plain.aggregate(held, "mean") + 0.5 * diagonal
    assert torch.allclose(enhanced.aggregate(held, "mean"), expected)
    with pytest.raises(GraphError, match="nodes have no self loop"):
        ClusterSampler(graph(), 5, parts=PARTS, enhance=0.5)


def test_an_epoch_has_each_cluster_once() -> None:
    loader = Loader(ClusterSampler(graph(), 5, parts=PARTS), range(5), batch_size=2, threads=1)
    for _ in range(2):
        nodes = torch.cat([batch.nodes for batch in loader])
        assert nodes.sort().values.tolist() == list(range(30))


def test_metis_cuts_where_nothing_is_given_and_numbers_are_checked() -> None:
    sampler = ClusterSampler(graph(), 3)
    assert sum(len(sampler.sample([each]).nodes) for each in range(3)) == 30
    with pytest.raises(GraphError, match="no cluster 3"):
        sampler.sample([3])
    with pytest.raises(GraphError, match="twice"):
        sampler.sample([1, 1])


def test_parts_and_a_share_of_the_diagonal_are_checked() -> None:
    with pytest.raises(GraphError, match=r"a cluster for each of 30 nodes, got \[29\]"):
        ClusterSampler(graph(), 5, parts=PARTS[:-1])
    for wrong in (5, -1):
        with pytest.raises(GraphError, match=f"parts: node 7 is in {wrong}, clusters are 0 … 4"):
            ClusterSampler(graph(), 5, parts=torch.where(torch.arange(30) == 7, wrong, PARTS))
    for enhance in (-0.5, float("nan"), float("inf"), "much"):
        with pytest.raises(InputError, match="enhance must be a number of at least 0"):
            ClusterSampler(graph().add_self_loops(), 5, parts=PARTS, enhance=enhance)  # type: ignore[arg-type]


def test_a_graph_that_does_not_lie_on_the_cpu_is_refused() -> None:
    with pytest.raises(GraphError, match="lies on meta, but ClusterSampler draws on the CPU"):
        ClusterSampler(graph().to(device="meta"), 5, parts=PARTS)
