"""What ranks do in tests/test_traps.py: each function gives what is wrong, in words; nothing is right."""

from collections.abc import Iterator
from typing import Any

import torch
from halo_jobs import NODES, dense_edges, far, graph_of, local_graph, parts_of
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.base import exchanges, make_exchange
from weft.graph import Graph
from weft.graph.scores import Additive
from weft.graph.shard import make_shards
from weft.strategies.halo import Halo
from weft.strategies.local import LocalGraph
from weft.strategies.single import Single
from weft.train.evaluate import METRICS
from weft.train.model import build_model, ready


def everything(group: Group) -> dict[str, list[str]]:
    """Run all jobs in one launch."""
    jobs = (
        scale_both_ways,
        large_ids,
        more_parts_than_nodes,
        gradients_left_alone,
        first_step_exact,
        exact_evaluation,
    )
    return {job.__name__: list(job(group)) for job in jobs}


def scale_both_ways(group: Group) -> Iterator[str]:
    """1/p weighs rows forward and their gradients backward, and neither in attention."""
    graph, p = graph_of("directed"), 0.5
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    strategy = Halo(local, seed=3, group=group, exchange={"name": "sampled", "p": p})
    block: Any = strategy.training_block()
    own, sources = block.dst_ids, block.src_ids
    remote = ~torch.isin(sources, own)
    kept = ~remote | torch.cat([torch.ones(len(own)).bool(), strategy.exchange.kept])
    edges = dense_edges(graph, own, sources) * kept
    scale = torch.where(remote, 1.0 / p, 1.0).double()
    generator = torch.Generator().manual_seed(group.rank)
    weighting = torch.randn(len(own), 2, dtype=torch.float64, generator=generator)
    h = torch.randn(len(own), 2, dtype=torch.float64, generator=generator).requires_grad_()
    (block.aggregate(h) * weighting).sum().backward()
    assert h.grad is not None
    wanted = _sum_over_ranks(group, (edges * scale).T @ weighting, sources)[own]
    if far(h.grad, wanted) > 1e-12:
        yield "gradients of a sum are not weighed by 1/p"
    # With equal scores attention is the mean over the edges that are left: 1/p would show.
    score = Additive(h.new_zeros(len(own), 1), h.new_zeros(len(own), 1))
    ones = torch.ones(len(own), 1, 1, dtype=torch.float64)
    found = block.attend(score, ones).flatten()
    if far(found, (edges.sum(1) > 0).double()) > 1e-12:
        yield "attention is weighed by 1/p"
    strategy.end_step()


def large_ids(group: Group) -> Iterator[str]:
    """Ids that neither float32 nor float64 can hold arrive as they left, sums of them too."""
    ids = torch.tensor([2**24 + 1, 2**53 + 1, 2**61 + 1]) + 2 * group.rank
    ones = [3] * group.size
    arrived = group.all_to_all(ids.repeat(group.size), ones, ones).wait()
    wanted = torch.cat([ids + 2 * (rank - group.rank) for rank in range(group.size)])
    if arrived.dtype != torch.int64 or not torch.equal(arrived, wanted):
        yield f"{arrived.tolist()} arrived, not {wanted.tolist()}"
    small = torch.tensor([2**53 + 1 + group.rank])
    total = int(group.all_reduce(small).wait())
    if total != sum(2**53 + 1 + rank for rank in range(group.size)):
        yield f"integers add up to {total}"


def more_parts_than_nodes(group: Group) -> Iterator[str]:
    """A rank without a single node takes part in every step."""
    nodes = group.size - 1
    graph = Graph.from_edges(
        torch.tensor([[0, 1, 2], [1, 2, 0]])[:, :nodes] % nodes,
        num_nodes=nodes,
        x=torch.randn(nodes, 4, generator=torch.Generator().manual_seed(0)),
        y=torch.arange(nodes) % 2,
        train_mask=torch.ones(nodes, dtype=torch.bool),
    )
    local = LocalGraph(_shards(graph, torch.arange(nodes).int(), group.size)[group.rank])
    for layer in ("sage", "edgeconv"):
        found, wanted = (
            _losses(strategy, held, layer)
            for strategy, held in (
                (Halo(local, seed=1, group=group), local),
                (Single(graph, seed=1), graph),
            )
        )
        if far(found, wanted) > 1e-5:
            yield f"{layer} with a rank without nodes: losses {found.tolist()}, not {wanted.tolist()}"


def gradients_left_alone(group: Group) -> Iterator[str]:
    """No exchange writes into what it was given: rows, or the gradient that backward hands it."""
    shard = make_shards(graph_of("hub"), parts_of("hub", group.size))[group.rank]
    plan = HaloPlan.make(shard, group)
    for name in _allowed():
        exchange = make_exchange(name, plan, group, torch.tensor([7, 0, 0]))
        for _ in range(2):
            exchange.begin_step()
            x = torch.randn(plan.num_rows, 3, generator=torch.Generator().manual_seed(group.rank))
            before = x.clone()
            x.requires_grad_()
            rows = exchange.gather(x)
            gradient = torch.ones_like(rows)
            rows.backward(gradient)
            exchange.end_step()
            exchange.clock[1] += 1
            if not torch.equal(gradient, torch.ones_like(gradient)):
                yield f"{name} changed the gradient it was given"
            if not torch.equal(x.detach(), before):
                yield f"{name} changed the rows it was given"
        exchange.drain()


def first_step_exact(group: Group) -> Iterator[str]:
    """The first step of an exchange that remembers is a blocking exact one: there is nothing to remember."""
    graph = graph_of("directed")
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    wanted = _losses(Single(graph, seed=3), graph, "gat", steps=1)
    for name in ("stale", "skip"):
        found = _losses(Halo(local, seed=3, group=group, exchange=name), local, "gat", steps=1)
        if far(found, wanted) > 1e-5:
            yield f"the first step of {name} is not exact"


def exact_evaluation(group: Group) -> Iterator[str]:
    """Scores are those of one process whatever the exchange, and scoring changes nothing of what follows."""
    graph = graph_of("directed")
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    for name in _allowed():
        losses = []
        for evaluates in (False, True):
            strategy: Any = Halo(local, seed=3, group=group, exchange=name)
            model = _model(local, "sage")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                last = strategy.epoch(model, optimizer)
                scores = strategy.evaluate(model, METRICS) if evaluates else {}
            losses.append(last)
            strategy.close()
        whole = _model(graph, "sage")
        whole.load_state_dict(model.state_dict())
        wanted = Single(graph, seed=3).evaluate(whole, METRICS)
        for split, held in wanted.items():
            if abs(scores[split]["loss"] - held["loss"]) > 1e-5:
                yield f"{name}: the {split} loss of evaluation is {scores[split]['loss']}, not {held['loss']}"
        if losses[0] != losses[1]:
            yield f"{name}: evaluation changed the training that follows"


def _allowed() -> list[str]:
    return [name for name in Halo.exchanges if name in exchanges]


def _losses(strategy: Any, graph: Any, layer: str, steps: int = 2) -> Tensor:
    model = _model(graph, layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = [strategy.epoch(model, optimizer) for _ in range(steps)]
    strategy.close()
    return torch.tensor(losses, dtype=torch.float64)


def _model(graph: Any, layer: str) -> torch.nn.Module:
    model = build_model(graph, layer, {"hidden": 8, "layers": 2}, seed=1)
    return ready(model, device=torch.device("cpu"), dtype=torch.float32)


def _shards(graph: Graph, parts: Tensor, num_parts: int) -> Any:
    from weft.graph.assignment import Assignment

    return make_shards(graph, Assignment(parts, num_parts))


def _sum_over_ranks(group: Group, rows: Tensor, ids: Tensor) -> Tensor:
    whole = rows.new_zeros(NODES, rows.shape[1]).index_add_(0, ids, rows)
    return group.all_reduce(whole).wait()
