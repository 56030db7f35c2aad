"""What ranks do in the tests of unequal links: importable by name, so that other processes find it."""

from typing import Any

import torch
from exchange_jobs import Steps
from halo_jobs import dense_edges, far, graph_of, local_graph, parts_of
from torch import Tensor

from weft.comm.group import Group
from weft.comm.probe import measure
from weft.strategies.halo.halo import Halo


def unequal(size: int) -> Tensor:
    """Return speeds: what rank 0 sends and gets is slow."""
    speed = torch.full((size, size), 1e9, dtype=torch.float64)
    speed[0], speed[:, 0] = 1e7, 1e7
    return speed.fill_diagonal_(torch.inf)


def everything(group: Group) -> dict[str, Any]:
    """Return what was measured and chosen; check that sums are those of the rows that exist."""
    told = {"speed": measure(group, seconds=0.1).tolist()}
    auto = {"name": "sampled", "p": "auto", "bits": "auto"}
    graph = graph_of("hub")
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    strategy = Halo(local, seed=3, group=group, exchange=auto, speed=unequal(group.size))
    told["chosen"] = strategy.layout.exchange_settings()
    state = strategy.state()
    told["state"] = sorted(state)
    strategy.layout.exchange.codec.links = None  # sums are compared without the error of codes
    strategy.layout.exchange.codec.bits = 32
    for epoch in range(4):
        strategy.clock[1] = epoch
        _compare(graph, strategy)
    other = Halo(local, seed=3, group=group, exchange=auto)
    other.load_state(state)
    assert torch.equal(other.layout.exchange.links, strategy.layout.exchange.links), (
        "links that a run began with"
    )
    one_way = torch.full((group.size, group.size), 1e9, dtype=torch.float64)
    one_way[0] = 1e7  # only what rank 0 sends is slow: rows one way, gradients the other
    other = Halo(local, group=group, exchange={"name": "sampled", "p": "auto"}, speed=one_way)
    told["one way"] = other.layout.exchange_settings()["p"]
    told["coded"] = _coded(group)
    return told


def _compare(graph: Any, strategy: Halo) -> None:
    """Compare sums with those by hand: each row times one over the share of its link."""
    table = torch.randn(36, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    block: Any = strategy.layout.training_block()
    own, exchange = block.dst_ids, strategy.layout.exchange
    shares = torch.repeat_interleave(
        exchange.links[:, strategy.group.rank], torch.tensor(exchange.whole_plan.recv_counts)
    )
    order = exchange.whole_plan.order
    if order is not None:
        shares = torch.empty_like(shares).index_copy_(0, order, shares)
    assert torch.equal(exchange.scale, 1.0 / shares[exchange.kept])
    scale = torch.cat([torch.ones(len(own)).double(), exchange.kept / shares])
    edges, rows = dense_edges(graph, own, block.src_ids) * scale, table[block.src_ids]
    h = table[own].requires_grad_()
    assert far(block.aggregate(h).detach(), edges @ rows) < 1e-12
    messages = block.propagate(lambda u: 2 * u, src=(h,))
    assert far(messages.detach(), 2 * edges @ rows) < 1e-12
    pairs = block.by_relation()
    assert far(pairs.aggregate(block.src(h)[pairs.rows]).detach(), edges @ rows) < 1e-12
    block.aggregate(h).sum().backward()
    strategy.end_step()


def _coded(group: Group) -> float:
    """Return the largest error of rows whose links have 2, 8 and 32 bits."""
    steps, exact = Steps(group, {"name": "quantised", "bits": "auto"}), Steps(group, "exact")
    ranks = torch.arange(group.size)
    steps.exchange.codec.links = torch.tensor([2, 8, 32])[(ranks[:, None] + 2 * ranks) % 3]
    got, true = steps.step(0), exact.step(0)
    return max(float((one - other).abs().max()) for one, other in zip(got, true) if len(other))
