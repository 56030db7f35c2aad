"""A call that parts make together ends once, in time, with its first word."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch

from weft.comm.elastic.hub import Carrier
from weft.comm.elastic.meeting import Meeting, OneForAll, Reduced


def test_a_wait_is_bounded_and_tells_the_first_failure() -> None:
    meeting = Meeting(0.05)
    with pytest.raises(RuntimeError, match=r"Timed out after 0\.05 s"):
        meeting.wait()
    meeting.end("a peer is gone")
    meeting.end()
    with pytest.raises(RuntimeError, match="a peer is gone"):
        meeting.wait()


def test_whoever_asks_is_called_at_the_end_or_at_once() -> None:
    meeting, called = Meeting(1.0), list[str]()
    meeting.add_done_callback(lambda _: called.append("before"))
    assert not meeting.is_completed()
    meeting.end()
    meeting.add_done_callback(lambda _: called.append("after"))
    assert called == ["before", "after"]
    meeting.wait()


def test_calls_out_of_order_are_noticed() -> None:
    meeting = Meeting(1.0)
    meeting.join(0, Reduced(torch.ones(1), "sum"))
    with pytest.raises(RuntimeError, match="parts 0 and 1 make different calls: reduced and oneforall"):
        meeting.join(1, OneForAll(torch.ones(1), 0))


def test_sums_go_by_members_whoever_holds_them() -> None:
    """The middle one of three is elsewhere: in float32 another order gives another sum."""
    terms = [torch.tensor([value]) for value in (1e8, 1.0, -1e8)]
    hub = SimpleNamespace(me=0)
    carrier = cast(Carrier, SimpleNamespace(hub=hub, members=[0, 1, 2], places={0: [0, 2], 1: [1]}))
    meeting = Meeting(1.0)
    for part in (2, 0):
        meeting.join(part, Reduced(terms[part].clone(), "sum"))
    meeting.given[0].deliver(meeting, carrier, terms[1])
    expected = terms[0] + terms[1] + terms[2]
    assert not torch.equal(expected, terms[0] + terms[2] + terms[1])
    for given in meeting.given.values():
        assert isinstance(given, Reduced)
        assert torch.equal(given.tensor, expected)
