"""One step and one epoch: what is counted, what an epoch that is left between steps goes on with."""

import copy
import math

import torch
from numbered_ring import ring
from torch import Tensor, nn

import weft
from weft.strategies.base import Strategy, strategies
from weft.strategies.single import Single
from weft.strategies.step import EpochLoss, fill_gradients, take_epoch, take_step, where_not_finite


def model_of(graph: weft.Graph) -> nn.Module:
    torch.manual_seed(0)
    return weft.nn.Stack(2, 1, layer="sage", hidden=4, layers=1)


def sampled(graph: weft.Graph) -> Strategy:
    made = strategies["sampled"]
    return made(graph, fanout=[2], batch_size=7, prepare=0, seed=3)  # type: ignore[call-arg]


def weights(model: nn.Module) -> list[Tensor]:
    return [each.detach().clone() for each in model.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_loss_of_an_epoch_is_the_mean_over_targets_not_over_steps() -> None:
    tally = EpochLoss()
    tally.add(torch.tensor(1.0), 3)
    tally.add(torch.tensor(5.0), 1)
    tally.add(torch.tensor(9.0), 0)
    assert (float(tally.sum), tally.count) == (8.0, 4)
    again = EpochLoss()
    again.load_state(tally.state())
    tally.add(torch.tensor(1.0), 1)
    assert (float(again.sum), again.count) == (8.0, 4), "a checkpoint keeps what it was made of"


def test_the_first_step_whose_loss_is_not_finite_is_known() -> None:
    tally = EpochLoss()
    for loss, count in ((1.0, 3), (2.0, 0), (math.nan, 1), (1.0, 1)):
        assert tally.first_not_finite(6) == 0
        tally.add(torch.tensor(loss), count)
        if math.isnan(loss):
            break
    tally.add(torch.tensor(1.0), 1)
    assert tally.first_not_finite(6) == 5, "of six steps the first two were another session's"
    assert where_not_finite([0, 5], 6) == ", step 5 of 6, on rank 1"
    assert where_not_finite([2, 0, 2], 1) == ", on ranks 0, 2"
    assert [where_not_finite([1], 1), where_not_finite([1, 1], 1), where_not_finite([0, 0], 9)] == [""] * 3


def test_a_step_goes_downhill_and_forgets_the_gradients_before_it() -> None:
    graph = ring()
    strategy, model = Single(graph), model_of(graph)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss, count = fill_gradients(strategy, model, optimizer, None, 0)
    first = [each.grad.clone() for each in model.parameters() if each.grad is not None]
    before = weights(model)
    again, _ = take_step(strategy, model, optimizer, None, 0)
    assert (float(loss), count) == (float(again), strategy.targets["train"].count)
    for was, gradient, now in zip(before, first, weights(model), strict=True):
        torch.testing.assert_close(now, was - 0.1 * gradient)


def test_an_epoch_that_is_left_between_steps_goes_on_there_and_gives_the_same_weights() -> None:
    graph = ring()
    whole, model = sampled(graph), model_of(graph)
    parts, other = sampled(graph), copy.deepcopy(model)
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.1) for each in (model, other)]
    take_epoch(whole, model, optimizers[0], None)
    asked: list[list[int]] = []
    for left in (True, True, False):
        take_epoch(parts, other, optimizers[1], lambda left=left: asked.append(parts.clock.tolist()) or left)  # type: ignore[misc]
    assert asked == [[3, 0, 1], [3, 0, 2]], "between steps, and not after the last"
    assert parts.clock.tolist() == whole.clock.tolist() == [3, 1, 0]
    assert same(weights(model), weights(other))
    assert (float(parts.tally.sum), parts.tally.count) == (float(whole.tally.sum), whole.tally.count)


def test_where_there_is_no_target_the_weights_stay() -> None:
    graph = ring()
    strategy, model = Single(graph), model_of(graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=1.0)
    take_step(strategy, model, optimizer, None, 0)  # leaves gradients behind
    before = weights(model)
    strategy.batching.loss = lambda *_: (torch.zeros(()), 0)  # type: ignore[method-assign]
    assert take_step(strategy, model, optimizer, None, 0)[1] == 0
    assert same(before, weights(model))
