"""No edge is later than its seed, and the future changes nothing."""

import pytest
import torch

from weft.errors import GraphError
from weft.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.samplers import NeighborSampler
from weft.samplers.core import reference
from weft.samplers.core.request import request_of
from weft.samplers.edges import EdgeLoader
from weft.samplers.neighbor import run


def temporal_graph(later: int = 0) -> Graph:
    """Return a graph whose edges after time 50 depend on `later`."""
    made = torch.Generator().manual_seed(4)
    edges = torch.randint(30, (2, 600), generator=made)
    time = torch.arange(600) // 6
    made.manual_seed(100 + later)
    edges[:, time > 50] = torch.randint(30, (2, int((time > 50).sum())), generator=made)
    return Graph.from_edges(edges, num_nodes=30, edge_time=time)


def test_no_edge_is_later_than_its_seed() -> None:
    graph = temporal_graph()
    times = torch.tensor([50, 10, 99, 0])
    batch = NeighborSampler(graph, [5, 5], temporal=True).sample([1, 2, 3, 4], times=times)
    assert batch.seed_of is not None
    for block in batch.blocks:
        seed = batch.seed_of[: block.num_dst][block.edge_dst]
        assert (block.edge("time") <= times[seed]).all()
        assert torch.equal(batch.seed_of[block.indices.long()], seed)  # nothing passes from seed to seed
        src = block.src_ids[block.indices.long()]
        assert torch.equal(src, graph.indices[block.edge_ids].long())
        for row in range(block.num_dst):
            into = slice(int(graph.indptr[block.dst_ids[row]]), int(graph.indptr[block.dst_ids[row] + 1]))
            seen = int((graph.edge_data["time"][into] <= times[batch.seed_of[row]]).sum())
            assert block.in_degree()[row] == seen
            assert block.indptr[row + 1] - block.indptr[row] == min(5, seen)


def test_the_future_and_other_seeds_change_nothing() -> None:
    found = []
    for later, others in ((0, [9]), (1, [4, 8])):
        graph = temporal_graph(later)
        sampler = NeighborSampler(graph, [4, 4], temporal=True)
        times = torch.tensor([50] + [70] * len(others))
        batch = sampler.sample([3, *others], times=times)
        block = batch.blocks[0]
        assert batch.seed_of is not None
        own = batch.seed_of[: block.num_dst][block.edge_dst] == 0
        given = graph.edge_ids[block.edge_ids[own]].sort().values
        h = torch.arange(30.0)[block.src_ids][:, None]
        found.append((given, block.aggregate(h)[batch.seed_of[: block.num_dst] == 0]))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1].sort(0).values, found[1][1].sort(0).values)


def test_one_node_at_two_times_is_two_seeds() -> None:
    sampler = NeighborSampler(temporal_graph(), [5], temporal=True)
    block = sampler.sample([3, 3], times=torch.tensor([5, 90])).blocks[0]
    assert block.num_dst == 2
    assert block.in_degree()[0] < block.in_degree()[1]
    with pytest.raises(GraphError, match="twice"):
        sampler.sample([3, 3], times=torch.tensor([5, 5]))
    with pytest.raises(GraphError, match="needs the time of each seed"):
        sampler.sample([3])
    for time in (torch.nan, torch.inf):
        with pytest.raises(GraphError, match="the time of seed 4 is not a finite number"):
            sampler.sample([3, 4], times=torch.tensor([5.0, time]))


@pytest.mark.parametrize("typed", [False, True])
def test_seeds_of_one_time_may_share_rows_where_all_edges_are_taken(typed: bool) -> None:
    graph = temporal_graph()
    if typed:
        kinds, given = torch.arange(600) % 2, graph.given_edge_data()
        graph = Graph.from_edges(graph.edge_index, num_nodes=30, edge_type=kinds, edge_time=given["time"])
    seeds, times = torch.tensor([1, 2, 3, 4, 1]), torch.tensor([50, 10, 50, 50, 99])
    batches = [
        NeighborSampler(graph, [-1, -1], temporal=True, shared=shared).sample(seeds, times=times)
        for shared in (False, True)
    ]
    apart, together = batches
    assert together.num_nodes < 0.6 * apart.num_nodes
    assert together.seed_of is None
    outputs = []
    for batch in batches:
        h = torch.sin(batch.blocks[0].src_ids.double())[:, None]
        for block in batch.blocks:
            h = block.aggregate(h, "mean") + block.in_degree().double()[:, None]
        outputs.append(h)
    assert torch.equal(outputs[0], outputs[1])


def test_rows_are_not_shared_where_something_is_drawn_by_the_seed() -> None:
    graph, seeds, times = temporal_graph(), torch.tensor([1, 2]), torch.tensor([50, 50])
    for fanout in ([5, -1], [-1, 5]):
        plain, asked = (
            NeighborSampler(graph, fanout, temporal=True, shared=shared).sample(seeds, times=times)
            for shared in (False, True)
        )
        assert torch.equal(plain.nodes, asked.nodes)
        assert asked.seed_of is not None


def test_both_forms_of_the_core_share_rows_alike() -> None:
    graph, seeds, times = temporal_graph(), torch.arange(8), torch.tensor([50, 10, 50, 50, 99, 10, 10, 50])
    sampler = NeighborSampler(graph, [-1, -1], temporal=True, shared=True)
    ranks, group = torch.unique(sampler.times.ranks(seeds, times), return_inverse=True)  # type: ignore[union-attr]
    asked = request_of(sampler, sampler.slots, seeds, sampler.keys(0, 0), seed_time=ranks, seed_group=group)
    for one, two in zip(run(asked).hops, reference.sample(asked).hops, strict=True):
        assert torch.equal(one.indices, two.indices)
        assert torch.equal(one.edge_ids, two.edge_ids)
    assert torch.equal(run(asked).seed_of, reference.sample(asked).seed_of)  # type: ignore[arg-type]


def test_pairs_that_see_the_same_share_rows_whatever_their_times() -> None:
    """Pairs after the last edge see all of them; so do those between two times."""
    edges = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    graph = Graph.from_edges(edges, num_nodes=5, edge_time=torch.tensor([10, 20, 30, 40, 50, 60]))
    time = torch.tensor([5, 35, 38, 100, 200])
    pairs = Pairs(torch.tensor([0, 0, 0, 3, 3]), torch.tensor([2, 3, 3, 0, 0]), time=time)
    outputs, rows = [], []
    for shared in (False, True):
        sampler = NeighborSampler(graph, [-1, -1], temporal=True, shared=shared)
        batch = EdgeLoader(sampler, None, pairs, batch_size=5, hide=False, shuffle=False).batch(0, 0)
        h = torch.sin(batch.blocks[0].src_ids.double())[:, None]
        for block in batch.blocks:
            h = block.aggregate(h) + block.in_degree().double()[:, None]
        outputs.append(torch.cat([h[batch.src], h[batch.dst]], 1))
        rows.append(batch.nodes.num_nodes)
    assert torch.equal(outputs[0], outputs[1])
    assert rows[1] < rows[0]


def test_one_node_at_two_times_that_see_the_same_is_two_seeds_also_where_rows_are_shared() -> None:
    sampler = NeighborSampler(temporal_graph(), [-1], temporal=True, shared=True)
    batch = sampler.sample([3, 3], times=torch.tensor([500, 900]))
    assert batch.blocks[0].num_dst == 2
    assert batch.seed_of is not None


@pytest.mark.parametrize("time", [torch.tensor([3, 7]), torch.tensor([3.0, 7.0]), torch.tensor([1e17, 2e17])])
def test_moments_are_the_times_of_the_last_edges_before(time: torch.Tensor) -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=3, edge_time=time)
    sampler = NeighborSampler(graph, [-1], temporal=True, shared=True)
    asked = torch.stack([time[0] - 1 if time[0] < 1e9 else time[0] / 2, time[0], time[1], 2 * time[1]])
    found = sampler.moments(asked)
    assert found[0] < time[0]
    assert found[1:].tolist() == [time[0], time[1], time[1]]
