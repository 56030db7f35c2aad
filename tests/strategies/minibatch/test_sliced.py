"""The sliced strategy: the first layer model parallel over columns of features, the steps of `sampled`."""

from pathlib import Path
from typing import Any

import halo_jobs
import pytest
import sliced_jobs
import torch
from ranks import run_ranks
from safetensors.torch import load_file
from torch import nn

import weft
from weft.cli.main import main
from weft.comm.group import Group
from weft.comm.pending import Pending
from weft.config import make_recipe
from weft.errors import GraphError, InputError
from weft.layers.base import gcn_scales, linear
from weft.strategies.minibatch.sliced import Sliced
from weft.train.launch import run_recipe
from weft.train.trainer import Place
from weft.train.workers.worker import prepare

OPTIONS: dict[str, Any] = {"name": "sliced", "fanout": [3, 2], "batch_size": 16, "partitioner": "range"}


@pytest.fixture(scope="module")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=150, degree=8, classes=3, features=8, seed=1)


def test_one_process_takes_the_steps_of_sampled() -> None:
    assert sliced_jobs.equal_to_sampled(Group.alone()) == []


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_take_the_steps_of_sampled_and_send_what_the_formula_says(size: int) -> None:
    for wrong in run_ranks(size, sliced_jobs.equal_to_sampled):
        assert wrong == []


def test_a_recipe_trains_by_slices(graph: weft.Graph) -> None:
    sliced = weft.train(graph, "sage", strategy=OPTIONS, epochs=3, hidden=8)
    sampled = weft.train(graph, "sage", strategy={**OPTIONS, "name": "sampled"}, epochs=3, hidden=8)
    assert sliced.strategy == "sliced"
    assert sliced.loss == pytest.approx(sampled.loss, rel=1e-5)
    late = weft.train(graph, "sage", strategy={**OPTIONS, "delay": 2}, epochs=3, hidden=8)
    assert late.loss != sliced.loss


class OneRelation(nn.Module):
    """A layer that sums the edges of one relation."""

    hops = 1

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 8))

    def forward(self, blocks: Any, x: Any) -> torch.Tensor:
        return linear(blocks[0].aggregate(x, "mean", relation=0), self.weight)


def test_what_columns_cannot_give_is_refused(graph: weft.Graph) -> None:
    with pytest.raises(InputError, match="the max of neighbours"):
        weft.train(graph, "sage", aggregate="max", strategy=OPTIONS, epochs=1)
    relation, mask = torch.arange(graph.num_edges) % 2, graph.train_mask
    related = weft.Graph.from_edges(
        graph.edge_index, x=graph.x, y=graph.y, edge_type=relation, train_mask=mask
    )
    with pytest.raises(InputError, match="the edges of one relation"):
        weft.train(related, OneRelation(), strategy={**OPTIONS, "fanout": [3]}, epochs=1)
    with pytest.raises(InputError, match="without dropout of the input"):
        weft.train(graph, "gcn", input_dropout=0.5, strategy=OPTIONS, epochs=1)
    with pytest.raises(GraphError, match="dense matrix x"):
        weft.train(halo_jobs.graph_of("sparse"), "gcn", strategy=OPTIONS, epochs=1)


def test_an_epoch_can_be_left_with_products_under_way(graph: weft.Graph) -> None:
    local = halo_jobs.local_graph(Group.alone(), graph, torch.zeros(150, dtype=torch.int32), 1)
    model = sliced_jobs.built(local, "sage", {}, torch.float32)
    strategy = Sliced(local, seed=1, fanout=[3, 2], batch_size=16, delay=2)
    optimizer = torch.optim.SGD(strategy.parameters(model), lr=0.1)
    strategy.epoch(model, optimizer, lambda: True)
    assert int(strategy.clock[2]) == 1


def test_products_that_are_begun_early_are_waited_for_in_their_own_step(
    graph: weft.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    send, wait = Group.reduce_scatter, Pending.wait

    def sent(self: Group, *args: Any, **options: Any) -> Pending:
        pending = send(self, *args, **options)
        pending.step = sum(event.startswith("sent") for event in events)  # type: ignore[attr-defined]
        events.append(f"sent {pending.step}")  # type: ignore[attr-defined]
        return pending

    def waited(self: Pending) -> torch.Tensor:
        if hasattr(self, "step"):
            events.append(f"waited {self.__dict__.pop('step')}")
        return wait(self)

    monkeypatch.setattr(Group, "reduce_scatter", sent)
    monkeypatch.setattr(Pending, "wait", waited)
    local = halo_jobs.local_graph(Group.alone(), graph, torch.zeros(150, dtype=torch.int32), 1)
    model = sliced_jobs.built(local, "gcn", {}, torch.float32)
    strategy = Sliced(local, seed=1, fanout=[3, 2], batch_size=16, delay=2)
    strategy.epoch(model, torch.optim.SGD(strategy.parameters(model), lr=0.1))
    steps = len(strategy.batching.loader)
    ahead = [[f"waited {step}", f"sent {step + 3}"] for step in range(steps - 3)]
    left = [f"waited {step}" for step in range(steps - 3, steps)]
    assert events == ["sent 0", "sent 1", "sent 2", *(event for pair in ahead for event in pair), *left]


def test_a_run_on_two_workers_goes_on_where_it_was_saved_and_its_weights_are_whole(tmp_path: Path) -> None:
    def sections(name: str, epochs: int) -> dict[str, Any]:
        data = {"name": "community", "nodes": 150, "degree": 8, "classes": 3, "features": 7, "seed": 1}
        train = {"epochs": epochs, "weight_decay": 0.01}
        strategy = {**OPTIONS, "name": name}
        return {"data": data, "model": {"name": "sage", "hidden": 8}, "strategy": strategy, "train": train}

    rows, half = tmp_path / "rows", tmp_path / "half"
    run_recipe(make_recipe(sections("sampled", 4)), Place(out=rows))
    prepare(make_recipe(sections("sliced", 2)), half, workers=2)
    run_ranks(2, sliced_jobs.in_two_sessions, sections("sliced", 2), str(half), 4)
    by_rows, resumed = (load_file(folder / "model.safetensors") for folder in (rows, half))
    assert {name: value.shape for name, value in resumed.items()} == {n: v.shape for n, v in by_rows.items()}
    for name, value in by_rows.items():
        assert torch.allclose(resumed[name], value, atol=1e-4), name
    assert main(["infer", str(half), "--out", str(tmp_path / "predictions")]) == 0


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_a_step_uses_the_first_weights_of_so_many_steps_before(delay: int) -> None:
    """Against a plain loop in which the first product of step t has the weights after t − delay steps."""
    graph = halo_jobs.graph_of("directed").add_self_loops().to(dtype=torch.float64)
    local = halo_jobs.local_graph(Group.alone(), graph, torch.zeros(halo_jobs.NODES, dtype=torch.int32), 1)
    models = [sliced_jobs.built(local, "gcn", {"dropout": 0.0}, torch.float64) for _ in range(2)]
    strategy = Sliced(local, seed=1, fanout=-1, batch_size=3, delay=delay)
    strategy.epoch(models[0], torch.optim.SGD(strategy.parameters(models[0]), lr=0.5))
    strategy.gather_weights(models[0])

    first, second = models[1].layers
    optimizer, block = torch.optim.SGD(models[1].parameters(), lr=0.5), graph.block()
    inputs = block.aggregate(graph.x, "sum", **gcn_scales(block, graph.x.dtype))
    weights, losses = [first.lin.weight.detach().clone()], []
    for step in range(len(strategy.batching.loader)):
        seeds = strategy.batching.loader.seeds_of(0, step)
        now = inputs @ first.lin.weight.T  # what gradients go to; the numbers are of before
        late = inputs @ weights[max(0, step - delay)].T
        outputs = second(block, (late + now - now.detach() + first.bias).relu())
        loss = nn.functional.cross_entropy(outputs[seeds], graph.y[seeds])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        weights.append(first.lin.weight.detach().clone())
        losses.append(loss.item() * len(seeds))
    assert len(losses) > 4
    assert float(strategy.tally.sum) == pytest.approx(sum(losses), rel=1e-9)
    for mine, theirs in zip(*(model.parameters() for model in models)):
        assert halo_jobs.far(mine.detach(), theirs.detach()) < 1e-9
