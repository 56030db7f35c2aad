"""What all tasks share: heads, whose first weights depend on the seed alone, and losses by name."""

import pytest
import torch
from torch import nn

import weft
from weft.errors import RecipeError
from weft.layers.base import GraphInfo
from weft.tasks.base import chosen_loss, finished, head_of, put_head
from weft.tasks.choose import TaskChoice
from weft.tasks.link_prediction import LinkPrediction
from weft.tasks.loss import own_loss
from weft.tasks.node_classification import NodeClassification
from weft.tasks.node_regression import NodeRegression

GRAPH = weft.Graph.from_edges([[0, 1], [1, 2]], num_nodes=3, x=torch.ones(3, 2), y=[0, 1, 0])


def test_the_first_weights_of_a_head_depend_on_the_seed_and_leave_the_generator_alone() -> None:
    task = TaskChoice.of({"name": "link_prediction", "width": 4, "score": "bilinear"}).make(GRAPH)
    assert isinstance(task, LinkPrediction)
    info, models = GraphInfo.of(GRAPH), [nn.Linear(2, 4) for _ in range(3)]
    before = torch.random.get_rng_state()
    for model, seed in zip(models, (1, 1, 2)):
        put_head(task, model, info, seed=seed)
    assert torch.equal(before, torch.random.get_rng_state())
    weights = [torch.cat([p.flatten() for p in head_of(model).parameters()]) for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    held = head_of(models[0])
    assert head_of(put_head(task, models[0], info, seed=9)) is held, "a model keeps the head it has"


def test_rows_go_through_a_head_of_nodes_and_past_one_of_pairs() -> None:
    rows, plain = torch.ones(3, 1), nn.Identity()
    assert finished(plain, rows) is rows
    model = put_head(NodeRegression(), nn.Identity(), GraphInfo.of(GRAPH), seed=0)
    head_of(model).values.copy_(torch.tensor([10.0, 2.0]))
    assert finished(model, rows).flatten().tolist() == [12.0] * 3
    links = TaskChoice.of({"name": "link_prediction", "width": 1, "score": "bilinear"}).make(GRAPH)
    paired = put_head(links, nn.Identity(), GraphInfo.of(GRAPH), seed=0)
    assert finished(paired, rows) is rows


def test_a_loss_is_the_first_of_the_task_one_of_its_names_or_ones_own() -> None:
    task = NodeClassification()
    first = chosen_loss(task, "auto")
    assert chosen_loss(task, "cross_entropy") is first
    mine = own_loss("mine", lambda outputs, y: outputs.sum())
    assert chosen_loss(task, mine) is mine
    with pytest.raises(RecipeError, match="cross_entropy"):
        chosen_loss(task, "mse")
