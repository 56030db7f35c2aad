"""What ranks do in the tests of exchanges: importable by name, so that other processes find it."""

import math
from typing import Any

import torch
from comm_jobs import numbers, whole_graph
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges import Exchange, make_exchange
from weft.graph.parts.shard import make_shards


def plan_of(group: Group, kind: str) -> HaloPlan:
    """Return the plan of a graph of 30 nodes, dealt out in turn; made once."""
    if (group, kind) not in _plans:
        parts = (torch.arange(30) % group.size).int()
        _plans[group, kind] = HaloPlan.make(make_shards(whole_graph(kind), parts)[group.rank], group)
    return _plans[group, kind]


_plans: dict[tuple[Group, str], HaloPlan] = {}


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


# What an exchange gives over several steps


EXACT_POINTS: list[dict[str, Any]] = [
    {"name": "exact"},
    {"name": "sampled", "p": 1.0},
    {"name": "sampled", "p": 1.0, "bits": 32},
    {"name": "stale", "lag": 0},
    {"name": "stale", "lag": 0, "bits": 32},
    {"name": "skip", "interval": 1},
    {"name": "skip", "age": 0, "gradients": True},
    {"name": "skip", "change": 0.0},
    {"name": "skip", "interval": 5, "change": 0.0, "gradients": True},
    {"name": "quantised", "bits": 32},
]
APPROXIMATE: list[dict[str, Any]] = [
    {"name": "sampled", "p": 0.4},
    {"name": "sampled", "p": 0.4, "bits": 8},
    {"name": "sampled", "p": 0.0, "bits": 4},
    {"name": "stale"},
    {"name": "stale", "smooth_features": 0.5, "smooth_gradients": 0.9},
    {"name": "stale", "bits": 8},
    {"name": "skip"},
    {"name": "skip", "interval": 2, "gradients": True},
    {"name": "skip", "age": 2},
    {"name": "skip", "change": 0.3, "age": 3, "gradients": True},
    {"name": "quantised"},
    {"name": "quantised", "bits": 2},
    {"name": "quantised", "bits": 4},
    {"name": "quantised", "bits": 16},
]
SHAPES = ((16,), (3, 8), (1,))
EPOCHS = 6


def values(ids: Tensor, epoch: int, slot: int) -> Tensor:
    """Return the rows of some nodes in an epoch: everybody can compute everybody's."""
    width = math.prod(SHAPES[slot])
    columns = torch.arange(width)
    rows = torch.sin(0.7 * ids[:, None] + 1.3 * columns + 0.2 * epoch * (1 + slot))
    return rows.float().reshape(len(ids), *SHAPES[slot])


class Steps:
    """Takes steps of three calls each with one exchange and keeps what they gave."""

    def __init__(self, group: Group, options: Any, kind: str = "random") -> None:
        self.clock = torch.tensor([7, 0, 0])
        self.plan = plan_of(group, kind)
        self.own = _own_ids(group)
        self.exchange = make_exchange(options, self.plan, group, self.clock)

    def step(self, epoch: int, *, replay: bool = False) -> list[Tensor]:
        """Return the rows and the gradients of each call."""
        self.clock[1] = epoch
        self.exchange.begin_step()
        got = self._calls(epoch)
        if replay:
            self.exchange.begin_step()
            for first, again in zip(got, self._calls(epoch)):
                assert torch.equal(first, again), "a step begun anew reads something else"
        self.exchange.end_step()
        return got

    def _calls(self, epoch: int) -> list[Tensor]:
        given = [values(self.own, epoch, slot).requires_grad_() for slot in range(len(SHAPES))]
        rows = [self.exchange.gather(h) for h in given]
        loss = sum((row * values(self.ids, epoch + 50, slot)).sum() for slot, row in enumerate(rows))
        loss.backward()
        return [*(row.detach() for row in rows), *(h.grad for h in given)]

    @property
    def ids(self) -> Tensor:
        """The nodes whose rows exist in the step."""
        kept = self.exchange.kept
        return self.plan.halo_ids if kept is None else self.plan.halo_ids[kept]


def promises(group: Group, whole: bool = True) -> list[str]:
    """Check what every exchange promises, on each graph or by turns on one of them; return what is wrong."""
    for options in (*EXACT_POINTS, {"name": "sampled", "p": 0.3}, {"name": "sampled", "p": 0.0}):
        adjoint(group, options)
    return over_steps(group, whole)


def over_steps(group: Group, whole: bool) -> list[str]:
    """Check every exchange over several steps; return what is wrong."""
    wrong: list[str] = []
    kinds = ("random", "hub", "isolated") if whole or group.size < 4 else ("isolated",)
    for turn, kind in enumerate(kinds):
        truth = [Steps(group, "exact", kind).step(epoch) for epoch in range(EPOCHS)]
        dealt = slice(None) if whole else slice(turn, None, len(kinds))
        for options in EXACT_POINTS[dealt]:
            steps = Steps(group, options, kind)
            for epoch in range(EPOCHS):
                for mine, exact in zip(steps.step(epoch, replay=True), truth[epoch]):
                    if not torch.equal(mine, exact):
                        wrong.append(f"{options} on {kind} is not exact in epoch {epoch}")
        for options in APPROXIMATE[dealt]:
            wrong += _continues(group, options, kind)
    wrong += _pipelined(group)
    wrong += _smoothed(group)
    for options in ({"age": 2}, {"interval": 3, "gradients": True}, {"change": 0.25}):
        wrong += _skipped(group, {"name": "skip", **options})
    for bits in (16, 8, 4, 2):
        wrong += _coded(group, bits)
    return wrong


def _continues(group: Group, options: Any, kind: str) -> list[str]:
    """Compare steps in a row with steps that were interrupted by a state taken and given back."""
    whole, first = Steps(group, options, kind), Steps(group, options, kind)
    expected = [whole.step(epoch) for epoch in range(EPOCHS)]
    again = [first.step(epoch, replay=True) for epoch in range(3)]
    first.exchange.drain()
    state = {name: value.clone() for name, value in first.exchange.state().items()}
    second = Steps(group, options, kind)
    second.exchange.load_state(state)
    again += [second.step(epoch) for epoch in range(3, EPOCHS)]
    wrong = [
        f"{options} on {kind} differs in epoch {epoch} after its state was given back"
        for epoch in range(EPOCHS)
        for one, other in zip(expected[epoch], again[epoch])
        if not torch.equal(one, other)
    ]
    if bool(state) != (options["name"] in ("stale", "skip")):
        wrong.append(f"{options}: state of {len(state)} tensors")
    return wrong


def _pipelined(group: Group) -> list[str]:
    """Rows and gradients of the step before."""
    exact = [Steps(group, "exact").step(epoch) for epoch in range(EPOCHS)]
    stale = Steps(group, "stale")
    group.ledger.clear()
    wrong = []
    for epoch in range(EPOCHS):
        for mine, before in zip(stale.step(epoch), exact[max(epoch - 1, 0)]):
            if not torch.equal(mine, before):
                wrong.append(f"stale, epoch {epoch}: not what was sent the epoch before")
    calls = len(SHAPES) * (stale.plan.num_halo + len(stale.plan.send_rows))
    expected = {0: calls, 1: calls * (EPOCHS - 1)} if calls else {}
    if {age: rows for age, rows in group.ledger.staleness.items() if rows} != expected:
        wrong.append(f"stale: ages {dict(group.ledger.staleness)}, expected {expected}")
    return wrong


def _smoothed(group: Group) -> list[str]:
    exact = [Steps(group, "exact").step(epoch) for epoch in range(EPOCHS)]
    smooth = Steps(group, {"name": "stale", "smooth_features": 0.5})
    wrong = []
    for epoch in range(EPOCHS):
        sent = range(max(epoch, 1))
        weights = torch.tensor([0.5 ** (len(sent) - each) for each in sent])
        mean = sum(w * exact[each][0] for w, each in zip(weights / weights.sum(), sent))
        if not torch.allclose(smooth.step(epoch)[0], mean, atol=1e-6):
            wrong.append(f"stale, smoothed: not the mean of what was sent before epoch {epoch}")
    return wrong


def _skipped(group: Group, options: Any) -> list[str]:
    """Rows are those of one step for each source; their age is bounded; the ledger knows what was skipped."""
    steps = Steps(group, options)
    group.ledger.clear()
    wrong, ages = [], set()
    for epoch in range(EPOCHS):
        rows = steps.step(epoch)[0]
        for source, (ids, mine) in enumerate(zip(*(_by_owner(steps.plan, t) for t in (steps.ids, rows)))):
            fits = [e for e in range(epoch + 1) if torch.equal(mine, values(ids, e, 0))]
            if not fits:
                wrong.append(f"{options}: in epoch {epoch} rows of {source} are of no epoch")
            elif len(ids):
                ages.add(epoch - fits[-1])
    ledger = group.ledger
    bound = options.get("age", options.get("interval", 0) - 1)
    if group.size > 1 and "change" not in options and max(ages) != bound:
        wrong.append(f"{options}: rows are {sorted(ages)} steps old")
    if group.size > 1 and not (ledger.decisions["skipped"] and ledger.decisions["made"]):
        wrong.append(f"{options}: decisions {dict(ledger.decisions)}")
    return wrong


def _by_owner(plan: HaloPlan, rows: Tensor) -> list[Tensor]:
    arrived = rows if plan.order is None else rows[plan.order]
    return list(torch.split(arrived, plan.recv_counts))


def _coded(group: Group, bits: int) -> list[str]:
    """Rows arrive within a step of what they were, gradients too, in as many bytes as codes have."""
    wrong = []
    steps = Steps(group, {"name": "quantised", "bits": bits})
    exact = Steps(group, "exact").step(0)
    group.ledger.clear()
    got = steps.step(0)
    for slot, (mine, true) in enumerate(zip(got, exact)):
        readers = 1 if slot < len(SHAPES) else group.size
        if len(true) and float((mine - true).abs().max()) > 2.001 * readers / (2**bits - 1):
            wrong.append(f"{bits} bits, call {slot}: off by {float((mine - true).abs().max())}")
    if not torch.equal(got[2], exact[2]):
        wrong.append(f"{bits} bits: a row of one value travels as it is")
    rows = len(steps.plan.send_rows) + steps.plan.num_halo
    sizes = [min(8 + -(-width * bits // 8), 4 * width) for width in map(math.prod, SHAPES)]
    sent = sum(each.bytes_sent for (label, _), each in group.ledger.volumes.items() if label.kind == "halo")
    if sent != rows * sum(sizes):
        wrong.append(f"{bits} bits: {sent} bytes, expected {rows * sum(sizes)}")
    again = Steps(group, {"name": "quantised", "bits": bits})
    if any(not torch.equal(a, b) for a, b in zip(again.step(0), got)):
        wrong.append(f"{bits} bits: other codes for the same clock")
    return wrong
