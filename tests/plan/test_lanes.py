"""Batches that threads make beside the training: what they hide, and what they cannot."""

import pytest
from plan_machine import machine

from weft.plan.lanes import lanes_of, played
from weft.plan.rehearse.course import Stretch
from weft.plan.rehearse.work import CountedWork
from weft.plan.travel import Travel
from weft.plan.wires import Wires
from weft.strategies.strategy_cost import Preparing, cost_of

SECOND = CountedWork(calls=100_000)
"""A second of one thread."""


def course(steps: int, making: int, training: int) -> list[Stretch]:
    """Return an epoch of so many steps, whose batches and training take so many seconds of one thread."""
    one = [Stretch(CountedWork(calls=100_000 * making), phase="wait")]
    one.append(Stretch(CountedWork(calls=100_000 * training), phase="forward"))
    return one * steps


def seconds(held: list[Stretch], preparing: Preparing | None, workers: int = 4) -> dict[str, float]:
    """Return the seconds of a rank of four, each of which has one of four cores."""
    links = Travel(Wires(workers, workers, 1e9, 0.0, inside=1e9, inside_latency=0.0))
    (first, *_) = played([held, *[[]] * (workers - 1)], machine(), links, preparing)
    return dict(first.working)


def test_batches_are_made_while_the_steps_before_run() -> None:
    held = course(4, making=1, training=2)
    assert seconds(held, None) == {"wait": pytest.approx(4.0), "forward": pytest.approx(8.0)}
    ahead = seconds(held, Preparing(1, 2, together=True))
    assert ahead == {"wait": pytest.approx(1.0), "forward": pytest.approx(8.0)}  # but for the first


def test_a_step_waits_for_a_batch_that_takes_longer_and_threads_share_them() -> None:
    held = course(4, making=3, training=1)
    assert seconds(held, Preparing(1, 3)) == {"wait": pytest.approx(9.0), "forward": pytest.approx(4.0)}
    # Two threads make batches 0 and 1 by 3, 2 and 3 by 6.
    assert seconds(held, Preparing(2, 4)) == {"wait": pytest.approx(4.0), "forward": pytest.approx(4.0)}


def test_no_more_batches_are_made_ahead_than_a_run_makes() -> None:
    held = [*course(1, making=1, training=9), *course(3, making=1, training=0)]
    # One ahead, begun when one is asked for: each is waited for.
    assert seconds(held, Preparing(1, 1))["wait"] == pytest.approx(4.0)
    # Begun when one is taken: that of the second step is there after the first.
    assert seconds(held, Preparing(1, 1, together=True))["wait"] == pytest.approx(3.0)
    assert seconds(held, Preparing(1, 3))["wait"] == pytest.approx(2.0)


def test_threads_that_make_batches_share_cores_with_the_training() -> None:
    held = course(2, making=1, training=1)
    alone = seconds(held, Preparing(1, 2, together=True), workers=1)
    # 4 threads train, twice as fast as one; while a batch is made beside them all have 4 cores for 5 threads.
    assert alone["forward"] == pytest.approx(0.5 * 5 / 4 + 0.5)
    assert alone["wait"] == pytest.approx(1.0 + 0.5)


def test_stretches_of_one_rank_are_all_in_one_lane_each() -> None:
    held = course(3, making=1, training=1)
    training, first, second = lanes_of(held, 0, Preparing(2, 4))
    assert [each.stretch.phase for each in training.stretches] == ["wait", "forward"] * 3
    assert [len(each.stretches) for each in (first, second)] == [2, 1]
    assert (first.alone, training.alone) == (True, False)


def test_a_strategy_tells_how_it_makes_batches() -> None:
    assert cost_of("halo").preparing({}, 2) is None
    assert cost_of("sampled").preparing({"prepare": 0}, 1) is None
    assert cost_of("sampled").preparing({}, 1) == Preparing(2, 4)
    assert cost_of("sampled").preparing({}, 2) == Preparing(1, 2, together=True)
    assert cost_of("clustered").preparing({"prepare": 3}, 2) == Preparing(1, 3, together=True)
