"""Messages between two parts: in this process, to another, and what ends them."""

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from weft.comm.elastic.hub import Hub, PartWire
from weft.comm.rendezvous import bound_socket, host_store
from weft.comm.run_store import RunStore

DEAL = [0, 1, 0]


@pytest.fixture
def hubs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Hub]]:
    """Two processes as threads of this one have them: the first holds parts 0 and 2, the other one 1."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    store = host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=5.0)
    made = [Hub(RunStore(store.clone()), me, DEAL, timeout=20.0) for me in (0, 1)]
    yield made
    for hub in made:
        hub.close()


def wire(hubs: list[Hub], part: int) -> PartWire:
    hub = hubs[DEAL[part]]
    return PartWire(lambda: hub.carrier("main", [0, 1, 2]), part)


def test_a_message_is_copied_when_both_ends_are_there(hubs: list[Hub]) -> None:
    first, last = wire(hubs, 0), wire(hubs, 2)
    sent = [first.send(torch.full((2,), float(number)), 2) for number in range(2)]
    assert not sent[0].is_completed()
    into = [torch.zeros(2), torch.zeros(2)]
    for each in into:
        last.receive(each, 0).wait()
    assert [each.tolist() for each in into] == [[0.0, 0.0], [1.0, 1.0]]
    assert all(each.is_completed() for each in sent)
    early = first.receive(into[0], 2)
    last.send(torch.tensor([5.0, 6.0]), 0).wait()
    early.wait()
    assert into[0].tolist() == [5.0, 6.0]


def test_ends_that_differ_in_shape_are_refused(hubs: list[Hub]) -> None:
    wire(hubs, 0).send(torch.ones(1), 2)
    with pytest.raises(RuntimeError, match=r"part 0 sends \[1\], part 2 expects \[3\]"):
        wire(hubs, 2).receive(torch.zeros(3), 0)


def test_who_writes_first_to_another_process_waits_for_nobody(hubs: list[Hub]) -> None:
    sent = wire(hubs, 0).send(torch.tensor([1.0]), 1)
    late = wire(hubs, 2).send(torch.tensor([2.0]), 1)
    assert not sent.is_completed()
    into = torch.zeros(1)
    for part in (2, 0):  # each sender has an order of its own
        wire(hubs, 1).receive(into, part).wait()
        assert into.tolist() == [1.0 + part / 2]
    sent.wait()
    late.wait()


def test_a_wait_ends_when_others_are_lost_though_the_peer_lives(hubs: list[Hub]) -> None:
    into, told = torch.zeros(1), list[str]()
    here, there = wire(hubs, 0), wire(hubs, 1)
    first = here.receive(into, 1)
    there.send(torch.ones(1), 0).wait()
    first.wait()  # they are connected

    def wait() -> None:
        try:
            here.receive(into, 1).wait()
        except RuntimeError as error:
            told.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    began = time.monotonic()
    hubs[0].give_up("worker 3 was lost")
    thread.join(15.0)
    assert told == ["worker 3 was lost"]
    assert time.monotonic() - began < 10.0, "a wait is bounded by twenty seconds"
    with pytest.raises(RuntimeError, match="worker 3 was lost"):
        here.send(into, 1)


def test_messages_that_are_begun_before_there_is_a_connection_keep_their_order(hubs: list[Hub]) -> None:
    sent = [wire(hubs, 0).send(torch.full((1,), float(number)), 1) for number in range(3)]
    into = torch.zeros(1)
    for number in range(3):
        wire(hubs, 1).receive(into, 0).wait()
        assert into.tolist() == [float(number)]
    for each in sent:
        each.wait()
