"""Sums and means over drawn edges stand for those of the whole graph."""

from typing import Any

import pytest
import torch
from sampler_graphs import random_graph

from weft.samplers import NeighborSampler


@pytest.mark.parametrize("how", ["uniform", "replace", "weight", "relations"])
def test_sums_and_means_estimate_those_of_the_whole_graph(how: str) -> None:
    made = torch.Generator().manual_seed(3)
    weight = torch.rand(900, generator=made) + 0.1
    graph = random_graph(edge_weight=weight, edge_type=torch.arange(900) % 2)
    options: dict[str, Any] = {"replace": {"replace": True}, "weight": {"weight": "weight"}}.get(how, {})
    fanout: Any = [4] if how != "relations" else [{kind: 2 + k for k, kind in enumerate(graph.edge_types)}]
    sampler = NeighborSampler(graph, fanout, **options)
    h = torch.rand(60, 2, generator=made, dtype=torch.float64) + 0.5
    seeds = torch.arange(60)
    for reduce in ("sum", "mean"):
        whole = graph.block().aggregate(h, reduce)
        total = torch.zeros_like(whole)
        for epoch in range(400):
            block = sampler.sample(seeds, epoch).blocks[0]
            total += block.aggregate(h[block.src_ids], reduce)
        assert (total / 400 - whole).abs().max() < 0.15 * whole.abs().max()
        assert (total.sum() / 400 / whole.sum() - 1).abs() < 0.02


def test_user_messages_are_scaled_like_sums() -> None:
    graph = random_graph(edge_weight=torch.rand(900))
    for options in ({}, {"weight": "weight"}):
        block = NeighborSampler(graph, [4], **options).sample(range(20)).blocks[0]
        h = torch.rand(block.num_src, 3)
        for reduce in ("sum", "mean"):
            made = block.propagate(lambda u: u * 2, src=[h], reduce=reduce)
            torch.testing.assert_close(made, 2 * block.aggregate(h, reduce))
        largest = block.propagate(lambda u: u, src=[h], reduce="max")
        torch.testing.assert_close(largest, block.aggregate(h, "max"))
