"""Random subgraphs: what is drawn, and that weights take the bias away."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.samplers import SaintSampler
from weft.samplers.saint import Chances, trial_key

SIZES = {"walk": {"size": 4, "length": 2}, "node": {"size": 8}, "edge": {"size": 6}}


def graph() -> Graph:
    made = torch.Generator().manual_seed(0)
    edges = torch.randint(25, (2, 120), generator=made)
    train = torch.arange(25) % 2 == 0
    return Graph.from_edges(edges, num_nodes=25, x=torch.rand(25, 3), y=[0] * 25, train_mask=train)


def sampler(how: Any, **options: Any) -> SaintSampler:
    return SaintSampler(graph(), how, **SIZES[how], **options)


@pytest.mark.parametrize("how", SIZES)
def test_a_subgraph_is_a_function_of_seed_epoch_and_step(how: str) -> None:
    batch = sampler(how, seed=1).sample((), 2, 3)
    assert torch.equal(batch.nodes, sampler(how, seed=1).sample((), 2, 3).nodes)
    others = [sampler(how, seed=1).sample((), 2, 4), sampler(how, seed=2).sample((), 2, 3)]
    assert all(not torch.equal(batch.nodes, other.nodes) for other in others)
    assert torch.equal(batch.blocks[0].in_degree(), graph().in_degree()[batch.nodes])


@pytest.mark.parametrize("how", SIZES)
def test_weights_make_the_mean_over_subgraphs_right(how: str) -> None:
    whole, made = graph(), sampler(how, coverage=40)
    value = torch.rand(25, dtype=torch.float64)
    trained, sums, seen = 0.0, torch.zeros(25, dtype=torch.float64), torch.zeros(25)
    for number in range(made.chances.num_trials):
        batch: Any = made.subgraph(trial_key(0, number))
        trained += float((batch.weight * value[batch.seeds]).sum()) / made.chances.num_trials
        sums[batch.nodes] += batch.blocks[0].aggregate(value[batch.nodes][:, None]).flatten()
        seen[batch.nodes] += 1
    reached = whole.train_mask & (seen > 0)
    assert trained == pytest.approx(float(value[reached].sum() / whole.train_mask.sum()))
    # A neighbour that never came together with a node cannot be made up for: it is left out on both sides.
    edges = (made.chances.edges > 0).double()
    dst = torch.repeat_interleave(whole.indptr.diff())
    expected = torch.zeros(25, dtype=torch.float64)
    expected.index_add_(0, dst, edges * value[whole.indices.long()])
    assert torch.allclose(sums / seen.clamp(min=1), expected)


def test_walks_go_against_edges_and_stay_where_none_come_in() -> None:
    path = Graph.from_edges([[0, 1, 2], [1, 2, 3]], num_nodes=5, x=torch.ones(5, 1), train_mask=[True] * 5)
    made = SaintSampler(path, "walk", size=1, length=2)
    for step in range(20):
        nodes = sorted(made.sample((), 0, step).nodes.tolist())
        assert nodes in ([0], [0, 1], [0, 1, 2], [1, 2, 3], [4])


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InputError, match="how must be"):
        SaintSampler(graph(), "fly")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="size must be"):
        SaintSampler(graph(), size=0)


def test_a_graph_that_does_not_lie_on_the_cpu_is_refused() -> None:
    with pytest.raises(GraphError, match="lies on meta, but SaintSampler draws on the CPU"):
        SaintSampler(graph().to(device="meta"))


class Whole(TorchDispatchMode):
    """Counts the operators that make or sum as many values as a graph has nodes."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = [each for each in tree_leaves(args) if isinstance(each, torch.Tensor)]
        held = {each.untyped_storage().data_ptr() for each in given}
        made = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        made = [each for each in made if each.untyped_storage().data_ptr() not in held]
        read = given if "sum" in str(func) else []
        self.count += any(each.numel() >= NODES - 1 for each in (*made, *read))
        return out


NODES = 3000


@pytest.mark.parametrize("how", ["walk", "node"])
def test_a_trial_does_not_go_through_the_whole_graph(how: Any) -> None:
    made = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES, (2, NODES), generator=made)
    large = SaintSampler(
        Graph.from_edges(edges, num_nodes=NODES, train_mask=[True] * NODES), how, size=200, coverage=1
    )
    counts = []
    for coverage in (1, 2):
        with Whole() as seen:
            Chances(
                large.draws,
                lambda nodes: large.rows.edges(nodes)[2],
                num_edges=len(large.graph.indices),
                coverage=coverage,
            )
        counts.append(seen.count)
    assert counts[0] == counts[1]
