"""The single strategy: the loss and scores that one can work out by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft.errors import GraphError, RecipeError
from weft.strategies.base import Strategy, Traffic, strategies
from weft.strategies.call import SameBlock, evaluating, hops_of
from weft.strategies.single import Single
from weft.tasks.choose import TaskChoice
from weft.tasks.metrics import METRICS


class Constant(nn.Module):
    """A model whose output is a parameter: losses and gradients are plain to see."""

    def __init__(self, rows: int, classes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.outputs = nn.Parameter(torch.randn(rows, classes))

    def forward(self, blocks: object, x: object) -> Tensor:
        return self.outputs


def ring(**data: object) -> weft.Graph:
    """Four nodes in a ring: two to train, one to validate, one to test."""
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    given = {
        "x": torch.eye(4),
        "y": torch.tensor([0, 1, 2, 0]),
        "train_mask": torch.tensor([True, True, False, False]),
        "val_mask": torch.tensor([False, False, True, False]),
        "test_mask": torch.tensor([False, False, False, True]),
    }
    return weft.Graph.from_edges(edge_index, num_nodes=4, **(given | data))


def test_loss_is_the_mean_over_training_nodes_and_only_they_get_gradients() -> None:
    graph, model = ring(), Constant(4, 3)
    before = model.outputs.detach().clone()
    loss = Single(graph).epoch(model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert loss == pytest.approx(F.cross_entropy(before[:2], graph.y[:2]).item())
    assert torch.equal(model.outputs[2:], before[2:])
    assert not torch.equal(model.outputs[:2], before[:2])


def test_every_step_goes_by_its_own_gradient() -> None:
    graph, model, plain = ring(), Constant(4, 3), Constant(4, 3)
    strategy, optimizer = Single(graph), torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(3):
        found = strategy.epoch(model, optimizer)
        expected = F.cross_entropy(plain.outputs[:2], graph.y[:2])
        assert found == pytest.approx(expected.item())
        (gradient,) = torch.autograd.grad(expected, [plain.outputs])
        plain.outputs.data -= gradient
    torch.testing.assert_close(model.outputs, plain.outputs)


def test_several_labels_are_trained_with_binary_cross_entropy() -> None:
    y = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]])
    graph, model = ring(y=y), Constant(4, 3)
    expected = F.binary_cross_entropy_with_logits(model.outputs[:2], y[:2].float()).item()
    strategy = Single(graph)
    assert strategy.task.loss.name == "bce"
    assert strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=1.0)) == pytest.approx(expected)


def test_nodes_without_a_label_are_left_out() -> None:
    test = torch.tensor([False, False, True, True])
    targets = Single(ring(y=torch.tensor([0, 1, -1, 0]), val_mask=None, test_mask=test)).targets
    assert {split: held.count for split, held in targets.items()} == {"train": 2, "test": 1}
    assert "val" not in Single(ring(y=torch.tensor([0, 1, -1, 0]))).targets


def test_scores_are_those_of_each_split_alone() -> None:
    graph, model = ring(), Constant(4, 3)
    with torch.no_grad():
        model.outputs.copy_(torch.tensor([[9.0, 0, 0], [9.0, 0, 0], [0, 0, 9.0], [0, 9.0, 0]]))
    scores = Single(graph).evaluate(model, {"accuracy": METRICS["accuracy"]})
    assert {split: held["accuracy"] for split, held in scores.items()} == {
        "train": 0.5,
        "val": 1.0,
        "test": 0.0,
    }
    assert scores["val"]["loss"] == pytest.approx(F.cross_entropy(model.outputs[2:3], graph.y[2:3]).item())


def test_evaluation_changes_nothing() -> None:
    graph = ring()
    model = weft.nn.Stack(4, 3, layer="sage", hidden=8, norm="batch")
    strategy = Single(graph)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    clock, state = strategy.clock.clone(), torch.get_rng_state()
    strategy.evaluate(model, METRICS)
    assert model.training
    assert torch.equal(strategy.clock, clock)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_model_that_fails_in_evaluation_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2), nn.Dropout(0.5)).train()
    model[0].eval()  # as who keeps one part fixed has it

    def fail() -> None:
        with evaluating(model):
            assert not any(module.training for module in model.modules())
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fail()
    assert [module.training for module in model.modules()] == [True, False, True, True]


def test_a_prediction_that_fails_leaves_the_model_training() -> None:
    class Failing(nn.Module):
        def forward(self, blocks: object, x: Tensor) -> Tensor:
            raise RuntimeError("out of memory")

    model = Failing().train()
    with pytest.raises(RuntimeError, match="out of memory"):
        Single(ring()).predict(model)
    assert model.training


def test_one_process_sends_nothing() -> None:
    strategy, model = Single(ring()), Constant(4, 3)
    strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=1.0))
    strategy.evaluate(model, METRICS)
    assert strategy.take_traffic() is None
    assert strategy.traffic() == Traffic()


def test_the_clock_moves_on_with_every_epoch_and_can_be_set() -> None:
    graph, model = ring(), Constant(4, 3)
    strategy = Single(graph, seed=5)
    strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert strategy.clock.tolist() == [5, 1, 0]
    strategy.seek(9)
    assert strategy.clock.tolist() == [5, 9, 0]


def test_the_graph_keeps_no_clock_of_a_strategy() -> None:
    graph, model = ring(), Constant(4, 3)
    Single(graph).epoch(model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert graph.block().clock is None


def test_phases_are_timed() -> None:
    graph, model = ring(), Constant(4, 3)
    strategy = Single(graph)
    strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=1.0))
    strategy.evaluate(model, {})
    assert list(strategy.events.take_seconds()) == ["forward", "backward", "optimizer", "evaluate"]


def test_graphs_that_cannot_be_trained_on_say_what_is_missing() -> None:
    with pytest.raises(GraphError, match="no labels"):
        Single(ring(y=None, train_mask=None, val_mask=None, test_mask=None))
    with pytest.raises(GraphError, match="no train_mask"):
        Single(ring(train_mask=None))


def test_a_loss_that_does_not_fit_the_labels_is_refused() -> None:
    graph = ring()
    with pytest.raises(RecipeError, match=r"use 'auto' or 'cross_entropy'"):
        Single(graph, task=TaskChoice().make(graph, loss="bce"))


def test_a_model_may_index_iterate_or_zip_its_blocks() -> None:
    block = ring().block()
    blocks = SameBlock(block, 2)
    assert list(blocks) == [block, block]
    assert blocks[0] is blocks[1] is blocks[-1] is block
    assert blocks[:1] == [block]
    assert len(blocks) == 2
    assert hops_of(weft.nn.Stack(4, 3, layer="sage", layers=3)) == 3


def test_registry_holds_strategies_by_name() -> None:
    assert strategies["single"] is Single
    assert all(issubclass(strategies[name], Strategy) for name in strategies.names())
