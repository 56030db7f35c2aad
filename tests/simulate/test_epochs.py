"""From counted work to the seconds of an epoch, by hand."""

import numpy as np
import pytest
from plan_machine import machine

from weft.plan.rehearse.work import CountedWork
from weft.simulate.conditions import Conditions
from weft.simulate.counted import CountedRun, HeldPart, Volumes
from weft.simulate.epochs import Unevenness, epoch

WORK = {"forward": CountedWork(products=10**9), "optimizer": CountedWork(products=5 * 10**8)}
# On 4 threads of the machine, twice as fast as one: 0.05 and 0.025 seconds.


def run(workers: int, traffic: dict, **options: object) -> CountedRun:  # type: ignore[type-arg]
    part = HeldPart(10, 10, 1)
    return CountedRun(workers, 1, (part,) * workers, (WORK,) * workers, traffic, **options)  # type: ignore[arg-type]


def pair(size: float, messages: float = 1.0) -> Volumes:
    return Volumes(np.array([0, 1]), np.array([1, 0]), np.full(2, size), np.full(2, messages))


def seconds(held: CountedRun, **options: object) -> float:
    told = Conditions(bandwidth=1e6, latency=0.01)
    wires, here = told.wires(machine(), held.workers), told.machine(machine(), held.workers)
    return epoch(held, here, wires, **options).seconds  # type: ignore[arg-type]


def test_work_alone() -> None:
    assert seconds(run(1, {})) == pytest.approx(0.075)
    assert seconds(run(3, {}), uneven=Unevenness(share=0.3, slowdown=3.0)) == pytest.approx(0.225)


def test_rows_of_a_layer_are_hidden_by_local_edges_where_the_strategy_does_so() -> None:
    traffic = {("halo", 0, "forward"): pair(1e4)}  # 10 ms and 10 ms of latency
    assert seconds(run(2, traffic)) == pytest.approx(0.075 + 0.02)
    assert seconds(run(2, traffic, overlaps=("halo",)), local=1.0) == pytest.approx(0.075)
    assert seconds(run(2, traffic, overlaps=("halo",)), local=0.4) == pytest.approx(0.075 + 0.01)
    assert seconds(run(2, traffic, late=True)) == pytest.approx(0.075)


def test_further_messages_take_their_sender_time() -> None:
    few, many = (seconds(run(2, {("halo", 0, "forward"): pair(1e4, count)})) for count in (1, 101))
    assert many - few == pytest.approx(100 * 2e-5)


def test_a_sum_takes_its_rounds() -> None:
    own = np.arange(4)
    ring = Volumes(own, (own + 1) % 4, np.full(4, 6e3), np.full(4, 6.0))
    assert ring.reductions(4) == 1
    assert seconds(run(4, {("gradient", -1, "backward"): ring})) == pytest.approx(0.075 + 0.006 + 6 * 0.01)
