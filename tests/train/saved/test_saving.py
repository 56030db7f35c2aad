"""What a checkpoint puts back: weights, optimiser, schedule, clock, random state, and how far the run was."""

import math
from pathlib import Path

import torch
from torch import nn

import weft
from weft.layers.learned import LearnedRows
from weft.strategies.single import Single
from weft.train.optim import Best, Schedule, make_optimizer
from weft.train.saved.run_folder import RunFolder
from weft.train.saved.saving import Progress, Rhythm, Saver, not_finite


def saver(graph: weft.Graph, folder: Path, *, resume: bool = False) -> Saver:
    torch.manual_seed(1)
    model = nn.Linear(2, 2)
    opened = RunFolder(folder, recipe={"train": {}}, resume=resume)
    opened.create()
    if not resume:
        opened.continue_events()
    schedule = Schedule("plateau", lr=0.1, epochs=10)
    return Saver(
        opened, model, make_optimizer("adam", list(model.parameters()), lr=0.1), schedule, Single(graph)
    )


def step(run: Saver) -> torch.Tensor:
    run.optimizer.zero_grad()
    run.model(torch.rand(3, 2)).sum().backward()
    run.optimizer.step()
    return run.model.weight.detach().clone()


def test_a_run_goes_on_from_its_checkpoint_as_if_never_stopped(graph: weft.Graph, tmp_path: Path) -> None:
    first = saver(graph, tmp_path)
    assert first.restore() is None
    step(first)
    first.schedule.drops = 2
    best = Best(epoch=3, value=0.5, loss=1.0, waited=1, seen=4)
    first.save(Progress(4, 0.25, best, {"weight": torch.ones(2, 2)}), elapsed=7.0)
    expected = step(first)
    second = saver(graph, tmp_path, resume=True)
    found = second.restore()
    assert found is not None
    assert (found.epoch, found.loss, found.best) == (4, 0.25, best)
    assert found.best_weights is not None
    assert torch.equal(found.best_weights["weight"], torch.ones(2, 2))
    assert (second.schedule.drops, int(second.strategy.clock[1])) == (2, 4)
    assert torch.equal(step(second), expected), "moments and random numbers too"


def test_no_best_and_no_loss_yet_come_back_as_none_and_nan(graph: weft.Graph, tmp_path: Path) -> None:
    saver(graph, tmp_path).save(Progress(0, math.nan, Best()), elapsed=0.0)
    found = saver(graph, tmp_path, resume=True).restore()
    assert found is not None
    assert (found.best, found.best_weights, math.isnan(found.loss)) == (Best(), None, True)


def test_a_weight_that_is_not_finite_is_named() -> None:
    model = nn.BatchNorm1d(2)  # with a count that is an integer
    assert not_finite(model) is None
    with torch.no_grad():
        model.bias[1] = math.inf
    assert not_finite(model) == "bias"


def test_a_slow_disk_is_written_to_less_often() -> None:
    clock = [0.0]
    rhythm = Rhythm(lambda: clock[0])
    clock[0] = 9.0
    assert not rhythm.due()
    clock[0] = 10.0
    assert rhythm.due()
    with rhythm.writing():
        clock[0] += 30.0
    clock[0] += 599.0
    assert not rhythm.due(), "else the run would mostly write"
    clock[0] += 1.0
    assert rhythm.due()


def test_learned_rows_that_are_not_finite_are_named() -> None:
    table = LearnedRows(range(3), 2)
    table.lend(torch.tensor([[0.0, torch.inf]]), lambda ids, own: ids)
    assert not_finite(nn.ModuleDict({"rows": table})) == "rows.weight"
