"""Flows that begin and end at times of their own."""

import numpy as np
import pytest

from weft.plan.wires import Wires
from weft.simulate.flows import FlowsUnderWay


def flows(grain: float = 0.0) -> FlowsUnderWay:
    return FlowsUnderWay(Wires(3, 1, 10.0, 0.5, 1e9, 0.0), grain)


def begin(held: FlowsUnderWay, number: int, src: int, size: float) -> None:
    held.begin(number, np.array([src]), np.array([2]), np.array([size]))


def test_a_flow_that_begins_later_halves_the_speed_of_the_first() -> None:
    held = flows()
    assert held.idle
    begin(held, 0, 0, 50.0)
    assert held.next_end() == 5.0
    held.advance(3.0)
    begin(held, 1, 1, 100.0)
    assert held.next_end() == pytest.approx(7.0)  # 20 left at 5 a second
    tags, times = held.advance(7.0)
    assert tags.tolist() == [[0, 2]]
    assert times.tolist() == pytest.approx([7.5])  # and the latency
    assert held.next_end() == pytest.approx(15.0)
    assert held.advance(20.0)[1].tolist() == pytest.approx([15.5])
    assert held.idle


def test_links_know_what_they_carried() -> None:
    held = flows()
    begin(held, 0, 0, 30.0)
    begin(held, 0, 1, 20.0)
    held.advance(held.next_end())
    assert held.carried[:6].tolist() == [30.0, 20.0, 0.0, 0.0, 0.0, 50.0]
