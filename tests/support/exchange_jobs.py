"""What ranks do in the tests of exchanges: importable by name, so that other processes find it."""

from typing import Any

import torch
from comm_jobs import numbers, whole_graph

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges import Exchange, make_exchange
from weft.graph.shard import make_shards


def plan_of(group: Group, kind: str) -> HaloPlan:
    """Return the plan of a graph of 30 nodes, dealt out in turn."""
    parts = (torch.arange(30) % group.size).int()
    return HaloPlan.make(make_shards(whole_graph(kind), parts)[group.rank], group)


def adjoint(group: Group, options: Any) -> list[int]:
    """Check ⟨E x, y⟩ = ⟨x, E* y⟩ over all ranks with the draw fixed, rows in two shapes; give kept counts."""
    clock = torch.tensor([7, 0, 0])
    kept = []
    for kind in ("random", "hub", "isolated"):
        exchange = make_exchange(options, plan_of(group, kind), group, clock)
        for epoch in range(3):
            clock[1] = epoch
            exchange.begin_step()
            for width in (2, 5):
                _check_adjoint(group, exchange, width)
            kept.append(len(exchange.plan.recv_ids))
            exchange.end_step()
    return kept


def _check_adjoint(group: Group, exchange: Exchange, width: int) -> None:
    x = numbers(group, exchange.plan.num_rows, 0, width).requires_grad_()
    rows = exchange.gather(x)
    y = numbers(group, len(rows), 1, width)
    rows.backward(y)
    assert x.grad is not None
    inner = torch.stack([(rows.detach() * y).sum(), (x.detach() * x.grad).sum()])
    left, right = group.all_reduce(inner).wait().tolist()
    assert abs(left - right) < 1e-10 * max(1.0, abs(left))


def rows_of(group: Group, options: Any) -> tuple[list[int], list[float], int]:
    """Return the ids of the rows that exist in the first epoch, what arrived for them, and bytes sent."""
    plan = plan_of(group, "random")
    exchange = make_exchange(options, plan, group, torch.tensor([7, 0, 0]))
    exchange.begin_step()
    group.ledger.clear()
    own = _own_ids(group).double()[:, None]
    rows = exchange.gather(own)
    ids = plan.halo_ids if exchange.kept is None else plan.halo_ids[exchange.kept]
    return ids.tolist(), rows.flatten().tolist(), group.ledger.bytes_sent


def _own_ids(group: Group) -> torch.Tensor:
    return torch.arange(group.rank, 30, group.size)
