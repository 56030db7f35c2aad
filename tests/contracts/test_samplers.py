"""What every sampler must do: the same batch each time, seeds first, degrees of the whole graph."""

from typing import Any

import pytest
import torch

from weft.errors import GraphError
from weft.graph import Graph
from weft.samplers import Batch, Sampler, samplers

OPTIONS: dict[str, dict[str, Any]] = {"neighbor": {"fanout": [4, 3]}, "labor": {"fanout": [4, 3]}}
NAMES = [name for name in samplers.names() if samplers[name].neighbourhoods]


def graph() -> Graph:
    made = torch.Generator().manual_seed(0)
    edges = torch.randint(47, (2, 800), generator=made)
    return Graph.from_edges(edges, num_nodes=50, x=torch.rand(50, 3, generator=made), y=[0, 1] * 25)


def sampler(name: str, **options: Any) -> Sampler:
    kind: Any = samplers[name]
    return kind(graph(), **OPTIONS.get(name, {}), **options)  # type: ignore[no-any-return]


def parts(batch: Batch) -> list[torch.Tensor]:
    listed = [batch.nodes, batch.seeds]
    for block in batch.blocks:
        listed += [block.indptr, block.indices, block.edge_ids, block.src_ids]
    return listed


def equal(one: Batch, other: Batch) -> bool:
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(parts(one), parts(other)))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_a_function_of_seed_epoch_and_seeds(name: str) -> None:
    seeds = [4, 9, 2, 30]
    batch = sampler(name, seed=1, resample="epoch").sample(seeds, 2)
    assert equal(batch, sampler(name, seed=1, resample="epoch").sample(seeds, 2, 7))
    assert not equal(batch, sampler(name, seed=1, resample="step").sample(seeds, 2, 7))
    assert not equal(batch, sampler(name, seed=2).sample(seeds, 2))
    assert not equal(batch, sampler(name, seed=1).sample(seeds, 3))


@pytest.mark.parametrize("name", NAMES)
def test_blocks_fit_each_other_and_the_graph(name: str) -> None:
    whole = graph()
    batch = sampler(name).sample([4, 9, 2, 49])  # the last has no edges
    assert batch.seeds.tolist() == [4, 9, 2, 49]
    assert batch.blocks[-1].num_dst == 4
    assert batch.blocks[-1].indptr[-1] == batch.blocks[-1].indptr[-2]
    for first, second in zip(batch.blocks, batch.blocks[1:]):
        assert torch.equal(first.dst_ids, second.src_ids)
    assert torch.equal(batch.blocks[0].src_ids, batch.nodes)
    assert torch.equal(batch.x, whole.x[batch.nodes])
    assert batch.y is not None
    assert torch.equal(batch.y, whole.y[batch.seeds])  # type: ignore[index]
    for block in batch.blocks:
        ends = block.src_ids[block.indices.long()], block.dst_ids[block.edge_dst]
        assert torch.equal(ends[0], whole.indices[block.edge_ids].long())
        assert torch.equal(ends[1], torch.repeat_interleave(whole.indptr.diff())[block.edge_ids])
        assert torch.equal(block.in_degree(), whole.in_degree()[block.dst_ids])


@pytest.mark.parametrize("name", NAMES)
def test_impossible_seeds_are_refused_in_one_line(name: str) -> None:
    made = sampler(name)
    for seeds, message in (([3, 5, 3], "seed 3 is there twice"), ([3, 50], "seed 50"), ([-1], "seed -1")):
        with pytest.raises(GraphError, match=message):
            made.sample(seeds)
    with pytest.raises(GraphError, match="node ids"):
        made.sample([0.5])


@pytest.mark.parametrize("name", NAMES)
def test_no_seeds_give_an_empty_batch(name: str) -> None:
    batch = sampler(name).sample([])
    assert batch.num_nodes == batch.num_edges == 0
    assert [block.num_dst for block in batch.blocks] == [0] * len(batch.blocks)


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_says_what_it_gives(name: str) -> None:
    assert (samplers[name].__doc__ or "").strip()
