"""The seconds of traffic over links: those of the busiest one, of messages and of calls, by hand."""

import pytest

from weft.plan.travel import Travel
from weft.plan.wires import MESSAGE, Wires

Sent = dict[tuple[int, int], tuple[int, int]]
"""Bytes and messages by sender and receiver."""


def travel(sent: Sent, net: Wires) -> tuple[list[float], list[float]]:
    flows: list[dict[int, tuple[float, float]]] = [{} for _ in range(net.workers)]
    for (rank, peer), held in sent.items():
        flows[rank][peer] = held
    told = Travel(net).of_call(flows)
    return told.inside.tolist(), told.outside.tolist()


def racks(**changed: float) -> Wires:
    """Return eight workers, two a machine, two machines a rack."""
    slow = {"inside": 1000.0, "inside_latency": 0.0, "rack": 2, "uplink": 5.0, "far_latency": 0.0}
    return Wires(8, 2, 10.0, 0.0, **{**slow, **changed})  # type: ignore[arg-type]


def test_workers_of_a_machine_share_its_link_and_racks_their_uplink() -> None:
    near = {(0, 2): (100, 1), (1, 3): (100, 1)}  # over one link out, and one in
    inside, outside = travel(near, racks())
    assert inside == [0.0] * 8
    assert outside == [20.0, 20.0, 20.0, 20.0, 0.0, 0.0, 0.0, 0.0]
    assert travel({(0, 4): (100, 1), (2, 6): (100, 1)}, racks())[1][0] == 40.0  # the uplink of both machines
    assert travel({(0, 1): (100, 1)}, racks())[0] == [0.1, 0.1, *[0.0] * 6]


def test_a_faster_link_takes_less_and_latency_counts_by_message() -> None:
    sent = {(0, 2): (100, 3)}
    assert travel(sent, racks())[1][0] == 10.0
    far = Wires(8, 2, 100.0, 0.5, 1000.0, 0.0)
    assert travel(sent, far)[1][0] == pytest.approx(1.0 + 3 * 0.5)
    assert travel({(0, 4): (0, 2)}, racks(far_latency=0.25))[1][0] == 0.5


def test_messages_to_several_go_together_and_each_takes_a_moment() -> None:
    wires = Wires(4, 1, 1e9, 0.5, 1e9, 0.0)
    assert travel({(0, 1): (0, 2), (0, 2): (0, 2), (0, 3): (0, 1)}, wires)[1][0] == 1.0 + 3 * MESSAGE


def test_a_call_is_paid_once_by_all_who_send_or_are_sent_something() -> None:
    wires = Wires(3, 1, 1e9, 0.01, 1e9, 0.0, call=1.0)
    assert travel({(0, 1): (0, 4)}, wires)[1] == pytest.approx([4 * 0.01 + 1.0, 4 * 0.01 + 1.0, 0.0])
