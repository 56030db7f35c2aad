"""Machines and racks share their links."""

import numpy as np
import pytest
from step_games import shipment

from weft.simulate.discrete import Play
from weft.simulate.schedule import StepSchedule
from weft.simulate.wires import Wires


def test_a_rack_shares_its_uplink_and_workers_of_one_machine_need_none() -> None:
    net = Wires(8, 2, 10.0, 0.0, inside=100.0, inside_latency=0.0, rack=2, uplink=5.0, far_latency=1.0)
    step = StepSchedule(8)
    step.arrive(step.depart(shipment(8, [(0, 4, 25.0), (2, 6, 25.0), (0, 1, 100.0), (4, 6, 10.0)])))
    found = Play(step, net, steps=1).run()
    # Two flows of 25 over an uplink of 5: 10 seconds, and the latency between racks. The others end before.
    assert found.ends == pytest.approx([11.0])
    assert found.carried[net.paths(np.array([0]), np.array([4]))[0][2]] == 50.0
