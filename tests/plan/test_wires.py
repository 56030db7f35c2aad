"""Machines and racks share their links."""

import numpy as np
import pytest
from step_games import shipment

from weft.plan.wires import Wires
from weft.simulate.discrete import Play
from weft.simulate.schedule import StepSchedule


def test_a_rack_shares_its_uplink_and_workers_of_one_machine_need_none() -> None:
    net = Wires(8, 2, 10.0, 0.0, inside=100.0, inside_latency=0.0, rack=2, uplink=5.0, far_latency=1.0)
    step = StepSchedule(8)
    step.arrive(step.depart(shipment(8, [(0, 4, 25.0), (2, 6, 25.0), (0, 1, 100.0), (4, 6, 10.0)])))
    found = Play(step, net, steps=1).run()
    # Two flows of 25 over an uplink of 5: 10 seconds, and the latency between racks. The others end before.
    assert found.ends == pytest.approx([11.0])
    assert found.carried[net.paths(np.array([0]), np.array([4]))[0][2]] == 50.0


def test_a_deal_knows_the_links_and_the_bottlenecks() -> None:
    links = Wires(8, 2, 10.0, 0.0, inside=100.0, inside_latency=0.0, rack=2, uplink=5.0).links()
    traffic = np.zeros((8, 8))
    traffic[0, 7], traffic[0, 1], traffic[2, 2] = 30.0, 8.0, 99.0
    load = {name: size for name, size in zip(links.names, links.load(traffic).tolist()) if size}
    assert load == {
        "machine 0 out": 30.0,
        "machine 3 in": 30.0,
        "machine 0 inside": 8.0,
        "rack 0 up": 30.0,
        "rack 1 down": 30.0,
    }
    assert links.seconds(traffic).max() == 6.0
    assert [(cut.workers, cut.bandwidth) for cut in links.cuts] == [
        *(((each, each + 1), 10.0) for each in range(0, 8, 2)),
        ((0, 1, 2, 3), 5.0),
        ((4, 5, 6, 7), 5.0),
    ]
