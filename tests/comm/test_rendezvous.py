"""Where a process stands among ranks, told by its environment, and how it reaches the store."""

import os
import threading
import time
from pathlib import Path

import pytest

from weft.comm.rendezvous import RankPlace, bound_socket, connect_store, host_store, join, use_loopback
from weft.comm.run_store import RunStore
from weft.errors import InputError, WorkerLost

PLACE = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def place(**changes: str) -> RankPlace:
    """Return the place of a rank with some of its environment changed."""
    found = RankPlace.from_environment({**PLACE, **changes})
    assert found is not None
    return found


def test_a_process_alone_has_no_place() -> None:
    assert RankPlace.from_environment({}) is None
    assert RankPlace.from_environment({"WORLD_SIZE": "1"}) is None


def test_torchrun_and_our_launcher_are_understood() -> None:
    plain = place()
    assert (plain.rank, plain.size, plain.local_rank, plain.attempt, plain.hosted) == (1, 3, 1, 0, False)
    assert not plain.on_one_machine
    elastic = place(TORCHELASTIC_RESTART_COUNT="2", TORCHELASTIC_USE_AGENT_STORE="True", LOCAL_WORLD_SIZE="3")
    assert (elastic.attempt, elastic.hosted, elastic.on_one_machine) == (2, True, True)
    assert not elastic.told, "torchrun tells each machine its own count"
    ours = place(WEFT_ATTEMPT="1", WEFT_FAILURES="/nowhere", MASTER_ADDR="127.0.0.1")
    assert (ours.attempt, ours.hosted, ours.on_one_machine, ours.told) == (1, True, True, True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"RANK": "3"}, "RANK is 3, but WORLD_SIZE is 3"),
        ({"RANK": "one"}, "RANK must be a number, got 'one'"),
        ({"MASTER_PORT": ""}, "MASTER_PORT must be a number"),
    ],
)
def test_an_environment_that_cannot_be_is_one_line(changes: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        place(**changes)
    with pytest.raises(InputError, match="WORLD_SIZE is set but RANK is not; start with `weft train"):
        RankPlace.from_environment({"WORLD_SIZE": "2"})


def test_loopback_is_chosen_for_one_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    use_loopback(place())
    assert "GLOO_SOCKET_IFNAME" not in os.environ
    use_loopback(place(MASTER_ADDR="127.0.0.1"))
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    use_loopback(place(MASTER_ADDR="127.0.0.1"))
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"


def test_a_store_that_is_not_there_is_told_in_bounded_time() -> None:
    free = bound_socket("127.0.0.1")
    port = free.getsockname()[1]
    free.close()
    began = time.monotonic()
    with pytest.raises(WorkerLost, match=rf"the store of rank 0 at 127.0.0.1, port {port}, within 1 s"):
        connect_store(place(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)), timeout=1.0)
    with pytest.raises(InputError, match=r"rank 1: MASTER_ADDR 'nobody\.invalid' is no address"):
        connect_store(place(MASTER_ADDR="nobody.invalid"), timeout=1.0)
    assert time.monotonic() - began < 60


def test_a_rank_whose_launcher_was_killed_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = bound_socket("127.0.0.1")
    port = free.getsockname()[1]
    free.close()
    monkeypatch.setenv("WEFT_FAILURES", str(tmp_path / "attempt0"))
    monkeypatch.setenv("WEFT_LAUNCHER", "1")
    began = time.monotonic()
    with pytest.raises(WorkerLost, match="the launcher is gone"):
        connect_store(place(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)), timeout=60.0)
    assert time.monotonic() - began < 30


def test_ranks_wait_for_each_other_and_name_who_is_missing() -> None:
    store = RunStore(host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=30.0))
    late = threading.Timer(0.3, lambda: store.set("here/0", "1"))
    late.start()
    with pytest.raises(WorkerLost, match="rank 1 waited 1 s for 3 ranks; missing: 2") as caught:
        join(store, place(), timeout=1.0, check=lambda: None)
    late.join()
    assert caught.value.rank == 2
    store.set("here/2", "1")
    join(store, place(), timeout=30.0, check=lambda: None)


def test_a_failure_elsewhere_ends_the_wait() -> None:
    store = RunStore(host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=30.0))

    def failed() -> None:
        raise WorkerLost("rank 2 died", rank=2)

    with pytest.raises(WorkerLost, match="rank 2 died"):
        join(store, place(), timeout=30.0, check=failed)
