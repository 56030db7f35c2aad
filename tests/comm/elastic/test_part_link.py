"""The connections of a part: what it says when others are gone."""

import pytest

from weft.comm.elastic.hub import Hub
from weft.comm.elastic.part_link import PartLink
from weft.comm.rendezvous import bound_socket, host_store
from weft.comm.run_store import RunStore
from weft.errors import WorkerLost


def test_a_part_waits_for_words_until_the_hub_gives_up() -> None:
    store = host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=5.0)
    hub = Hub(RunStore(store), 0, [0, 1], timeout=5.0)
    link = PartLink(hub, 0, [0, 1])
    link.store.set("post/cut/0", "true")
    assert link.wait_for("post/cut/0") == "true"
    link.heart.check()
    hub.give_up("worker 1 was lost")
    hub.give_up("something else")
    for wait in (link.heart.check, lambda: link.wait_for("post/never"), lambda: link.gather_text(0, 2, "a")):
        with pytest.raises(WorkerLost, match="worker 1 was lost"):
            wait()
