"""The block of a shard, by hand: what belongs to the exchange is asked of the one that it has now."""

from types import SimpleNamespace
from typing import Any

import torch
from halo_jobs import NODES, graph_of, parts_of

from weft.comm.group import Group
from weft.graph.parts.shard import make_shards
from weft.strategies.halo.block import HaloBlock


def exchange(scale: float, halo: torch.Tensor | None = None) -> Any:
    """Return an exchange that brings these rows, of so much weight."""
    return SimpleNamespace(kept=None, scale=scale, gather=lambda _: halo)


def test_pairs_carry_the_scale_of_the_exchange_that_the_block_has_now() -> None:
    shard = make_shards(graph_of("hub"), parts_of("hub", 2))[0]
    sampled = exchange(1.0)
    block = HaloBlock(shard, sampled, Group.alone())
    pairs = block.by_relation()
    halo = (pairs.rows >= block.num_own).double()[:, None]
    h = torch.randn(len(pairs.rows), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    own, remote = pairs.aggregate(h * (1 - halo)), pairs.aggregate(h * halo)
    assert float(remote.abs().max()) > 0
    for scale in (4.0, 2.0):  # as a budget on the error changes p
        sampled.scale = scale
        assert torch.allclose(pairs.aggregate(h), own + scale * remote)
    block.exchange = exchange(1.0)  # as before an exact evaluation
    assert torch.allclose(block.by_relation().aggregate(h), own + remote)


def test_messages_of_halo_rows_carry_the_scale_in_sums_and_none_in_extremes() -> None:
    shard = make_shards(graph_of("typed"), parts_of("typed", 2))[0]
    table = torch.randn(NODES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    whole = HaloBlock(shard, exchange(4.0, table[shard.halo_ids]), Group.alone())
    h = table[shard.node_ids]
    for block in (whole, whole.relation(0)):  # every edge, and those of a relation
        stands_for = torch.where(block.indices >= whole.num_own, 4.0, 1.0).double()
        assert len(stands_for.unique()) == 2
        weighed = table[block.src_ids[block.indices.long()]] * stands_for[:, None]
        wanted = torch.zeros_like(h).index_add_(0, block.edge_dst, weighed)
        assert torch.allclose(block.propagate(lambda u: u, src=[h]), wanted)
        largest = block.propagate(lambda u: u, src=[h], reduce="max")
        assert torch.equal(largest, block.aggregate(h, "max"))
