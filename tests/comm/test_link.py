"""Connections that cannot be opened: the error names the guilty rank, and no thread stays behind."""

import threading

import pytest
import torch
from torch.distributed import HashStore

from weft.comm import link
from weft.comm.link import Link
from weft.comm.rendezvous import RankPlace
from weft.comm.run_store import RunStore
from weft.errors import WorkerLost

PLACE = RankPlace(
    rank=0, size=2, local_rank=0, local_size=2, address="127.0.0.1", port=1, attempt=0, hosted=True
)


@pytest.mark.parametrize("error", [RuntimeError("Connection reset by peer"), WorkerLost("rank 1 is gone", 1)])
def test_a_start_that_fails_names_the_rank_and_stops_the_heartbeat(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    store = HashStore()
    here = RunStore(store).within("attempt0")
    here.set("beat/1", "done 0 end")
    monkeypatch.setattr(link, "open_store", lambda *_, **__: store)
    monkeypatch.setattr(link, "connect_store", lambda *_, **__: store)
    monkeypatch.setattr(link, "join", lambda *_, **__: None)

    def meet(*_: object) -> Link:
        raise error

    monkeypatch.setattr(Link, "_meet", meet)
    with pytest.raises(WorkerLost) as caught:
        Link.open(PLACE, torch.device("cpu"), timeout=5.0, stall=60.0, join_timeout=5.0)
    assert caught.value.rank == 1
    assert "weft-heartbeat" not in {thread.name for thread in threading.enumerate()}
    assert here.read("beat/0") == "done 0 end", "the others learn that it left"
