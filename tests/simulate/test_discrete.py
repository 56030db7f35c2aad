"""Steps of a few workers whose ends are computed by hand."""

import numpy as np
import pytest
from step_games import played, shipment, wires

from weft.simulate.discrete import Play
from weft.simulate.schedule import Shipment, StepSchedule, StepWork, scheduled


def test_two_flows_into_one_worker_share_its_link() -> None:
    step = StepSchedule(3)
    step.arrive(step.depart(shipment(3, [(0, 2, 50.0), (1, 2, 50.0)])))
    assert played(step, wires(3)).ends == pytest.approx([10.0])  # 100 bytes at 10 a second


def test_the_shorter_flow_gives_its_share_back() -> None:
    step = StepSchedule(3)
    step.arrive(step.depart(shipment(3, [(0, 2, 20.0), (1, 2, 50.0)])))
    step.compute(np.array([0.0, 0.0, 1.0]))
    # 5 a second each until 4, then the other's last 30 at 10: 7, and a second of work
    assert played(step, wires(3, latency=0.5)).ends == pytest.approx([8.5])


def test_work_hides_what_travels_beside_it() -> None:
    step = StepSchedule(2)
    number = step.depart(shipment(2, [(0, 1, 30.0), (1, 0, 30.0)]))
    step.compute(np.array([2.0, 5.0]))
    step.arrive(number)
    found = played(step, wires(2))
    assert found.ends == pytest.approx([5.0])
    assert found.waiting["halo"].tolist() == pytest.approx([1.0, 0.0])
    assert found.computing.tolist() == [2.0, 5.0]


def test_a_straggler_delays_a_synchronous_step_by_its_excess() -> None:
    ends = []
    for excess in (0.0, 3.0):
        step = StepSchedule(4)
        step.compute(np.array([2.0, 2.0, 2.0 + excess, 2.0]))
        ring = [(each, (each + 1) % 4, 10.0) for each in range(4)]
        step.arrive(step.depart(shipment(4, ring, joint=True, rounds=6)))
        ends.append(played(step, wires(4, latency=0.1), steps=3).ends)
    assert ends[0] == pytest.approx([3.6, 7.2, 10.8])  # 2 of work, 1 of bytes, 6 latencies
    assert ends[1] == pytest.approx([6.6, 13.2, 19.8])


def test_messages_take_their_sender_time() -> None:
    traffic = shipment(2, [(0, 1, 10.0)])
    slow = Shipment("halo", traffic.src, traffic.dst, traffic.size, np.array([0.25, 0.0]))
    step = StepSchedule(2)
    step.arrive(step.depart(slow))
    assert played(step, wires(2)).ends == pytest.approx([1.25])


def test_moments_put_together_give_nearly_the_same() -> None:
    generator = np.random.default_rng(1)
    src = np.repeat(np.arange(40), 5)
    dst = (src + generator.integers(1, 40, 200)) % 40
    traffic = Shipment("halo", src, dst, generator.uniform(5, 15, 200), np.zeros(40))
    work = StepWork(
        generator.uniform(1, 2, 40), generator.uniform(1, 2, 40), *[np.zeros(40)] * 2, up=[traffic]
    )
    exact, coarse = (
        Play(scheduled(work), wires(40, latency=0.01), steps=2, grain=grain).run().step
        for grain in (0.0, 0.05)
    )
    assert coarse == pytest.approx(exact, rel=0.03)
    assert coarse != exact
