"""What ranks do in tests/test_traps.py: each function gives what is wrong, in words; nothing is right."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from delayed_jobs import follows_schedule
from halo_jobs import NODES, dense_edges, far, graph_of, local_graph, parts_of
from layout_jobs import cell, replicas
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.base import exchanges, make_exchange
from weft.graph import Graph
from weft.graph.message.scores import Additive
from weft.graph.parts.shard import make_shards
from weft.strategies.halo.halo import Halo
from weft.strategies.local import LocalGraph
from weft.strategies.merged.grid import Grid
from weft.strategies.merged.vertex_cut import VertexCut
from weft.strategies.sequential.sequential import Sequential
from weft.strategies.single import Single
from weft.tasks.metrics import METRICS
from weft.train.model import build_model, ready


def everything(group: Group) -> dict[str, list[str]]:
    """Run all jobs in one launch."""
    jobs = (
        scale_both_ways,
        large_ids,
        more_parts_than_nodes,
        whole_degrees,
        gradients_left_alone,
        first_step_exact,
        later_steps_as_told,
        exact_evaluation,
    )
    return {job.__name__: list(job(group)) for job in jobs}


def scale_both_ways(group: Group) -> Iterator[str]:
    """1/p weighs rows forward and their gradients backward, and neither in attention."""
    graph, p = graph_of("directed"), 0.5
    local = local_graph(group, graph, parts_of("directed", group.size), group.size)
    strategy = Halo(local, seed=3, group=group, exchange={"name": "sampled", "p": p})
    block: Any = strategy.layout.training_block()
    own, sources = block.dst_ids, block.src_ids
    remote = ~torch.isin(sources, own)
    kept = ~remote | torch.cat([torch.ones(len(own)).bool(), strategy.layout.exchange.kept])
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


class Setting(NamedTuple):
    """A strategy with an exchange, and the part of the graph that this rank holds."""

    strategy: Any
    exchange: str
    local: LocalGraph
    options: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.strategy.name} with {self.exchange}"

    def make(self, group: Group) -> Any:
        """Return the strategy, ready to train."""
        return self.strategy(self.local, seed=3, group=group, exchange=self.exchange, **self.options)


def settings(group: Group, graph: Graph) -> list[Setting]:
    """Return every strategy over parts of the whole graph with every exchange that it allows."""
    nodes = parts_of("directed", group.size)
    local = local_graph(group, graph, nodes, group.size)
    column, square = (cell(group, graph, nodes, shape) for shape in ((group.size, 1), (2, group.size // 2)))
    split = replicas(group, graph, "directed", group.size)
    by_rows, by_both = {"rows": group.size, "columns": 1}, {"rows": 2, "columns": group.size // 2}
    held: list[tuple[Any, LocalGraph, dict[str, Any]]] = [
        (Halo, local, {}),
        (Sequential, local, {}),
        (Grid, column, by_rows),
        (VertexCut, split, {}),
    ]
    found = [Setting(kind, name, part, options) for kind, part, options in held for name in kind.exchanges]
    return [*found, Setting(Grid, "exact", square, by_both)]


def whole_degrees(group: Group) -> Iterator[str]:
    """Degrees, and what a mean divides by, are the whole graph's, except where a part is to stand alone."""
    graph = graph_of("directed")
    for setting in settings(group, graph):
        strategy = setting.make(group)
        block = strategy.layout.training_block()
        ids = block.dst_ids
        mine = far(block.in_degree().double(), graph.in_degree()[ids].double())
        mine += far(block.out_degree("dst").double(), graph.out_degree()[ids].double())
        if (mine == 0) == (setting.exchange == "none"):
            yield f"{setting}: degrees are off by {mine}"
        if setting.exchange not in ("none", "sampled"):
            ones = torch.ones(len(ids), 1, dtype=torch.float64, requires_grad=True)
            mean = block.aggregate(ones, "mean")
            mean.sum().backward()
            if far(mean.detach().flatten(), (graph.in_degree()[ids] > 0).double()) > 1e-12:
                yield f"{setting}: the mean of ones is not one"
        strategy.end_step()
        strategy.close()


def gradients_left_alone(group: Group) -> Iterator[str]:
    """No exchange and no block writes into what it was given: rows, or the gradient of a result."""
    shard = make_shards(graph_of("hub"), parts_of("hub", group.size))[group.rank]
    plan = HaloPlan.make(shard, group)
    for name in exchanges.names():
        exchange = make_exchange(name, plan, group, torch.tensor([7, 0, 0]))
        for _ in range(2):
            exchange.begin_step()
            yield from (f"{name} {told}" for told in _changed(exchange.gather, plan.num_rows))
            exchange.end_step()
            exchange.clock[1] += 1
        exchange.drain()
    for setting in settings(group, graph_of("directed")):
        strategy = setting.make(group)
        for _ in range(2):
            block = strategy.layout.training_block()
            for reduce in ("sum", "max"):
                run = partial(block.aggregate, reduce=reduce)
                yield from (f"{setting}, {reduce}, {told}" for told in _changed(run, len(block.dst_ids)))
            strategy.end_step()
            strategy.clock[1] += 1
        strategy.close()


def _changed(run: Callable[[Tensor], Tensor], count: int) -> Iterator[str]:
    """Give what was written into when rows went through a function and back."""
    x = torch.randn(count, 3, dtype=torch.float64)
    before = x.clone()
    x.requires_grad_()
    rows = run(x)
    gradient = torch.ones_like(rows)
    rows.backward(gradient)
    if not torch.equal(gradient, torch.ones_like(gradient)):
        yield "changed the gradient it was given"
    if not torch.equal(x.detach(), before):
        yield "changed the rows it was given"


def first_step_exact(group: Group) -> Iterator[str]:
    """The first step of an exchange that remembers is a blocking exact one: there is nothing to remember."""
    graph = graph_of("directed")
    for layer in ("gat", "sage"):
        wanted = _first_step(Single(graph, seed=3), graph, layer)
        for setting in settings(group, graph):
            if not exchanges[setting.exchange].carries_over:
                continue
            found = _first_step(setting.make(group), setting.local, layer)
            if far(found, wanted) > 1e-5:
                yield f"the first step of {setting} is not exact for {layer}"


def _first_step(strategy: Any, graph: Any, layer: str) -> Tensor:
    """Return the loss of a step and the weights after it."""
    model = _model(graph, layer)
    loss = strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    strategy.close()
    return torch.cat([torch.tensor([loss]), *(held.detach().flatten() for held in model.parameters())])


def later_steps_as_told(group: Group) -> Iterator[str]:
    """What a delayed exchange reads after that, with several leaves a node, is what its schedule says."""
    yield from follows_schedule(group, 2)


def exact_evaluation(group: Group) -> Iterator[str]:
    """Scores are those of one process whatever the exchange, and scoring changes nothing of what follows."""
    graph = graph_of("directed")
    for setting in settings(group, graph):
        losses = []
        for evaluates in (False, True):
            strategy = setting.make(group)
            model = _model(setting.local, "sage")
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
                yield f"{setting}: the {split} loss is {scores[split]['loss']}, not {held['loss']}"
        if losses[0] != losses[1]:
            yield f"{setting}: evaluation changed the training that follows"


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
    from weft.graph.parts.assignment import Assignment

    return make_shards(graph, Assignment(parts, num_parts))


def _sum_over_ranks(group: Group, rows: Tensor, ids: Tensor) -> Tensor:
    whole = rows.new_zeros(NODES, rows.shape[1]).index_add_(0, ids, rows)
    return group.all_reduce(whole).wait()
