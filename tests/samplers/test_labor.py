"""LaborSampler: chances that keep the variance, few distinct nodes, means that stay right."""

import numpy as np
import pytest
import torch
from skewed_graph import skewed_graph

from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.kernels import native
from weft.samplers import LaborSampler, NeighborSampler


def test_batches_have_fewer_nodes_the_more_iterations() -> None:
    whole, seeds = skewed_graph(), torch.arange(40)
    sizes = [NeighborSampler(whole, [5, 5]).sample(seeds).num_nodes]
    sizes += [LaborSampler(whole, [5, 5], iterations=i).sample(seeds).num_nodes for i in (0, 3)]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize("iterations", [0, 2])
def test_means_are_those_of_the_whole_graph_on_average(iterations: int) -> None:
    whole = skewed_graph(100, 3000)
    h = torch.arange(100.0, dtype=torch.float64)[:, None] / 100 + 1
    expected = whole.block().aggregate(h, "mean")
    total, sampler = torch.zeros_like(expected), LaborSampler(whole, [6], iterations=iterations)
    for step in range(300):
        block = sampler.sample(torch.arange(100), 0, step).blocks[0]
        total += block.aggregate(h[block.src_ids], "mean")
    torch.testing.assert_close(total / 300, expected, rtol=0.05, atol=0)


def related() -> Graph:
    """Return a graph of three relations, some edges of which are there twice."""
    made = np.random.default_rng(3)
    edges = made.integers(25, size=(2, 500))
    edges = np.concatenate([edges, edges[:, :100]], 1)
    return Graph.from_edges(edges, num_nodes=25, edge_type=np.arange(600) % 3)


OWN = [1, 2, 4]  # fanouts of the relations


def estimates(iterations: int, steps: int, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the means of each relation in each step [steps, relations, rows], and the true ones."""
    whole = related()
    fanout = [dict(zip(whole.edge_types, OWN))]
    sampler, found = LaborSampler(whole, fanout, seed=5, iterations=iterations), []
    for step in range(steps):
        batch = sampler.sample(torch.arange(25), 0, step)
        block = batch.blocks[0]
        found.append(
            torch.stack([block.aggregate(h[batch.nodes], "mean", relation=r)[:, 0] for r in range(3)])
        )
    true = torch.stack([whole.block().aggregate(h, "mean", relation=r)[:, 0] for r in range(3)])
    return torch.stack(found), true


@pytest.mark.parametrize("iterations", [0, 2])
def test_the_mean_of_ones_is_one_for_every_row_and_relation_at_any_fanout(iterations: int) -> None:
    found, true = estimates(iterations, 20, torch.ones(25, 1, dtype=torch.float64))
    torch.testing.assert_close(found, true.expand_as(found), rtol=1e-6, atol=0)
    assert set(true.unique().tolist()) <= {0.0, 1.0}


def test_means_of_random_features_are_unbiased_with_a_fanout_for_each_relation() -> None:
    h = torch.randn(25, 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64) + 3
    found, true = estimates(0, 600, h)
    error, spread = found.mean(0) - true, found.std(0)
    z = (error / (spread / 600**0.5))[spread > 1e-6]
    assert len(z) > 50
    assert float(z.abs().max()) < 4.5
    assert abs(float(z.mean())) < 4.5 / len(z) ** 0.5
    assert float(z.square().mean()) < 1.7
    # The spread is about that of so many uniform draws: relations have their own fanouts.
    by_relation = found.var(0).mean(1)
    assert by_relation[0] > 1.5 * by_relation[1] > 2 * by_relation[2]


def test_with_iterations_the_bias_of_means_falls_with_the_fanout() -> None:
    h = torch.randn(25, 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64) + 3
    found, true = estimates(2, 600, h)
    one, two, four = (found.mean(0) - true).abs().max(1).values.tolist()
    assert one > two > four
    assert four < 0.1  # features differ by 1


def test_all_edges_are_all_edges() -> None:
    whole = skewed_graph(50, 600)
    block = LaborSampler(whole, [-1]).sample(range(50)).blocks[0]
    assert block.num_edges == 600
    assert block.edge_scale is not None
    assert block.edge_scale.unique().tolist() == [1.0]
    assert LaborSampler(whole, [0]).sample(range(50)).num_edges == 0


@pytest.mark.parametrize("shared_hops", [False, True])
def test_the_native_core_draws_the_same_bits(shared_hops: bool) -> None:
    whole = skewed_graph()
    typed = Graph.from_types(
        {"a": {"num_nodes": 150}, "b": {"num_nodes": 250}},
        {("a", "to", "b"): {"edge_index": torch.randint(150, (2, 3000))}, ("b", "to", "a"): {
            "edge_index": torch.randint(150, (2, 2000))}},
    )  # fmt: skip
    own = [dict(zip(typed.edge_types, counts)) for counts in ((2, 5), (-1, 1), (4, 0))]
    cases = [(made, fanout) for made in (whole, typed) for fanout in ([5, 5], [3, -1, 2], [0, 4], [1, 1])]
    for made, fanout in [*cases, (typed, own)]:
        sampler = LaborSampler(made, fanout, seed=2, shared_hops=shared_hops)
        mine = sampler.sample(torch.arange(7, 60), 1, 3)
        with native.disabled():
            theirs = sampler.sample(torch.arange(7, 60), 1, 3)
        assert torch.equal(mine.nodes, theirs.nodes)
        for a, b in zip(mine.blocks, theirs.blocks):
            for name in ("indptr", "indices", "edge_ids", "edge_scale", "src_ids"):
                assert torch.equal(getattr(a, name), getattr(b, name)), name


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InputError, match="iterations"):
        LaborSampler(skewed_graph(), iterations=-1)


def test_a_graph_that_does_not_lie_on_the_cpu_is_refused() -> None:
    with pytest.raises(GraphError, match="lies on meta, but LaborSampler draws on the CPU"):
        LaborSampler(skewed_graph().to(device="meta"), [2])


def test_hops_share_their_random_numbers_only_where_asked() -> None:
    shared, own = (
        LaborSampler(skewed_graph(), [2, 2], shared_hops=each).keys(0, 0) for each in (True, False)
    )
    assert (shared[0] == shared[1]).all()
    assert (own[0] != own[1]).all()
