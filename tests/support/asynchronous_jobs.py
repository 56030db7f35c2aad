"""What ranks do in the tests of asynchrony, and one process that computes delayed updates in another way."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from halo_jobs import graph_of
from torch import Tensor, nn

from weft.comm.group import Group
from weft.graph.graph import Graph
from weft.graph.parts.shard import make_shards
from weft.strategies.asynchronous import interval_steps
from weft.strategies.asynchronous.asynchronous import Asynchronous
from weft.strategies.asynchronous.board import Board
from weft.strategies.asynchronous.intervals import cut_rows
from weft.strategies.base import Strategy
from weft.strategies.halo.halo import Halo
from weft.strategies.local import LocalGraph
from weft.strategies.pipeline.stage_model import Weights
from weft.train.model import adapt, build_model, ready

EPOCHS = 7
WIDTH = 8


def held(
    kind: str, layer: str, dtype: torch.dtype = torch.float64, dropout: float = 0.5
) -> tuple[Graph, nn.Module]:
    """Return a graph, and a model of two layers with its first weights."""
    graph = adapt(graph_of(kind), layer).to(dtype=dtype)
    model = build_model(graph, layer, {"hidden": WIDTH, "layers": 2, "dropout": dropout}, seed=1)
    return graph, ready(model, device=torch.device("cpu"), dtype=dtype)


class _LateBoard(Board):
    """A board whose intervals are late now and then: they go on when no other can, or some time later."""

    lateness = random.Random(0)

    def enter(self, interval: int, epoch: int) -> tuple[int, Weights]:
        begun = super().enter(interval, epoch)
        if self.lateness.random() < 0.3:
            with self._changed:
                self._turns.wait(interval, (2**31, 0), lambda: True)
            time.sleep(self.lateness.random() * 0.004)
        return begun


@contextmanager
def late_intervals(seed: int) -> Iterator[None]:
    """Have intervals be late at random."""
    _LateBoard.lateness = random.Random(seed)
    with patch.object(interval_steps, "Board", _LateBoard):
        yield


def whole(graph: Graph) -> LocalGraph:
    """Return a graph as the only part of itself."""
    return LocalGraph(make_shards(graph, torch.zeros(graph.num_nodes, dtype=torch.int32))[0])


def trained(
    strategy: Strategy, model: nn.Module, epochs: int = EPOCHS, sgd: float | None = None
) -> dict[str, Tensor]:
    """Train, letting epochs begin ahead, and return losses, weights and scores."""
    strategy.check_model(model)
    parameters = strategy.parameters(model)
    optimizer = torch.optim.Adam(parameters, lr=0.02) if sgd is None else torch.optim.SGD(parameters, lr=sgd)
    strategy.batching.expect(epochs)
    losses = [strategy.epoch(model, optimizer) for _ in range(epochs)]
    scores = strategy.evaluate(model, strategy.task.metrics)
    strategy.close()
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    return {
        "losses": torch.tensor(losses, dtype=torch.float64),
        "test": torch.tensor(scores["test"]["loss"]),
        **weights,
    }


def quarters(graph: Graph, size: int) -> Tensor:
    """Return the part of each node such that each of `size` parts is what an interval of one process is."""
    runs = cut_rows(make_shards(graph, torch.zeros(graph.num_nodes, dtype=torch.int32))[0], size)
    assert len(runs) == size
    return torch.cat([torch.full((stop - start,), part) for part, (start, stop) in enumerate(runs)]).int()


def on_ranks(group: Group, folder: str) -> list[str]:
    """Return what has other numbers on this rank than it must have."""
    exact = [*_as_halo(group), *_replayed(group, Path(folder))]
    wrong = [what for what, found, expected in exact if far(found, expected) != 0.0]
    return wrong + [
        what for what, found, expected in _as_one_process(group) if not far(found, expected) < 1e-12
    ]


def far(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Return the largest distance between two runs."""
    return max(float((found[name] - expected[name]).abs().max()) for name in expected)


def _local(group: Group, graph: Graph) -> LocalGraph:
    return LocalGraph(make_shards(graph, quarters(graph, group.size))[group.rank])


def _as_halo(group: Group) -> list[tuple[str, Any, Any]]:
    found = []
    for kind, layer in (("hub", "gcn"), ("sparse", "sage"), ("directed", "gat")):
        graph, model = held(kind, layer, torch.float32)
        expected = trained(Halo(_local(group, graph), seed=3, group=group), model)
        for options in ({"form": "sync"}, {"intervals": 1}):
            _, model = held(kind, layer, torch.float32)
            made = Asynchronous(_local(group, graph), seed=3, group=group, **options)  # type: ignore[arg-type]
            found.append((f"{layer} {options}", trained(made, model), expected))
    return found


def _as_one_process(group: Group) -> list[tuple[str, Any, Any]]:
    """One interval a worker computes what as many intervals of one process do, up to the order of sums."""
    found = []
    for staleness in (0, 1, 2):
        graph, model = held("hub", "gat")
        given: dict[str, Any] = {"seed": 3, "staleness": staleness}
        alone = trained(Asynchronous(whole(graph), intervals=group.size, **given), model)
        _, model = held("hub", "gat")
        made = trained(Asynchronous(_local(group, graph), intervals=1, group=group, **given), model)
        found.append((f"as one process, s = {staleness}", made, alone))
    return found


def _replayed(group: Group, folder: Path) -> list[tuple[str, Any, Any]]:
    found = []
    for staleness in (0, 2):
        runs = []
        for replay in (None, str(folder / f"first{staleness}" / "order")):
            graph, model = held("hub", "gcn", torch.float32)
            place = folder / f"{'again' if replay else 'first'}{staleness}"
            made = Asynchronous(
                _local(group, graph),
                seed=3,
                group=group,
                form="free",
                staleness=staleness,
                intervals=3,
                replay=replay,
                folder=place,
            )
            with late_intervals(group.rank):
                runs.append(trained(made, model))
            group.barrier()
        found.append((f"replay, s = {staleness}", runs[1], runs[0]))
    return found


def delayed(graph: Graph, model: nn.Module, count: int, staleness: int, rate: float) -> dict[str, Tensor]:
    """Train two GCN layers in matrices with intervals that read rows and weights `staleness` epochs old."""
    shard = make_shards(graph, torch.zeros(graph.num_nodes, dtype=torch.int32))[0]
    runs = [slice(*run) for run in cut_rows(shard, count)]
    mixing = _normalised(graph)
    x, y, known = graph.x, graph.y, graph.train_mask
    assert isinstance(x, Tensor)
    assert y is not None
    assert known is not None
    known = known & (y >= 0)
    mixed = mixing @ x
    names = [name for name, _ in model.named_parameters()]
    versions = [[value.detach().clone() for value in model.parameters()]]
    rows: list[Tensor] = []
    returned: list[list[Tensor]] = []
    losses = []
    for epoch in range(EPOCHS):
        at = max(0, epoch - staleness)
        weights = [value.clone().requires_grad_() for value in versions[at]]
        first, first_bias, second, second_bias = _by_place(names, weights)
        made = torch.relu(mixed @ first.t() + first_bias) @ second.t()
        rows.append(made.detach())
        total, seeds = 0.0, []
        biases = torch.zeros_like(second_bias)
        for run in runs:
            seen = rows[at].clone()
            seen[run] = made.detach()[run]
            out = (mixing[run] @ seen + second_bias).detach().requires_grad_()
            mine = known[run]
            loss = F.cross_entropy(out[mine], y[run][mine], reduction="sum") / int(known.sum())
            (above,) = torch.autograd.grad(loss, out)
            total += float(loss.detach())
            biases += above.sum(0)
            seeds.append(mixing[run].t() @ above)
        returned.append(seeds)
        towards = torch.zeros_like(made)
        for number, run in enumerate(runs):
            others = sum(of[run] for other, of in enumerate(returned[at]) if other != number)
            towards[run] = returned[epoch][number][run] + others
        found = torch.autograd.grad(made, [first, first_bias, second], towards)
        grads = dict(zip(_places(names), [*found, biases]))
        newest = versions[-1]
        versions.append([held - rate * grads[place] for place, held in enumerate(newest)])
        losses.append(total)
    return {"losses": torch.tensor(losses, dtype=torch.float64), **dict(zip(names, versions[-1]))}


def _places(names: list[str]) -> list[int]:
    wanted = ["layers.0.lin.weight", "layers.0.bias", "layers.1.lin.weight", "layers.1.bias"]
    return [names.index(name) for name in wanted]


def _by_place(names: list[str], weights: list[Tensor]) -> list[Tensor]:
    return [weights[place] for place in _places(names)]


def _normalised(graph: Graph) -> Tensor:
    """Return the matrix of GCN, dense."""
    block = graph.block()
    source, target = block.edge_index()
    weight = block.edge("weight").double()
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    adjacency.index_put_((target, source), weight, accumulate=True)
    scale = adjacency.sum(1).pow(-0.5)
    scale[scale.isinf()] = 0
    return scale[:, None] * adjacency * scale
