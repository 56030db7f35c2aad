"""Link prediction as PyG's users write it: the same first weights give the same losses, step by step."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import weft
from weft.strategies.single import Single
from weft.tasks.choose import TaskChoice
from weft.train.model import build_model

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed")


def test_sage_on_links_takes_the_steps_of_a_loop_with_pyg() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=150, features=12, seed=1)
    task: Any = TaskChoice.of({"name": "link_prediction", "width": 8}).make(graph)
    task.hides(batches=False)
    shown = task.prepared(graph)
    options = {"hidden": 16, "layers": 2, "dropout": 0.0, "input_dropout": 0.0}
    model = build_model(shown, "sage", options, task=task, seed=0)
    theirs = torch.nn.ModuleList([pyg.SAGEConv(12, 16), pyg.SAGEConv(16, 8)])
    names = {name.removeprefix("layers."): value for name, value in model.state_dict().items()}
    theirs.load_state_dict(names)
    strategy = Single(shown, task=task, seed=0)
    mine, other = (torch.optim.Adam(each.parameters(), lr=0.01) for each in (model, theirs))
    pairs = task.pairs["train"]
    for epoch in range(10):
        loss = strategy.epoch(model, mine)
        negative = task.draw(pairs, epoch).nodes[:, 0]
        h = theirs[1](F.relu(theirs[0](shown.x, shown.edge_index)), shown.edge_index)
        true, false = (h[pairs.src] * h[pairs.dst]).sum(1), (h[pairs.src] * h[negative]).sum(1)
        expected = (F.softplus(-true).mean() + F.softplus(false).mean()) / 2
        other.zero_grad()
        expected.backward()
        other.step()
        assert loss == pytest.approx(expected.item(), rel=1e-4), epoch


def test_first_weights_of_sage_have_the_range_of_pygs() -> None:
    torch.manual_seed(0)
    mine, theirs = weft.nn.layers["sage"](300, 200), pyg.SAGEConv(300, 200)
    held = dict(theirs.named_parameters())
    assert held.keys() == dict(mine.named_parameters()).keys()
    for name, value in mine.named_parameters():
        assert value.abs().max() <= 1 / math.sqrt(300), name
        assert value.std().item() == pytest.approx(held[name].std().item(), rel=0.15), name
