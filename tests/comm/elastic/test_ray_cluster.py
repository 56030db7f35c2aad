"""How many workers a Ray is asked for, and what is refused before it is."""

import socket
from typing import Any

import pytest

from weft.comm.elastic.ray_cluster import RayCluster, ray_cluster
from weft.comm.elastic.start import Size
from weft.errors import InputError


class Nodes:
    """What Ray says of its nodes."""

    def __init__(self, *cpus: float) -> None:
        self.cpus = cpus

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": cpus >= 0, "Resources": {"CPU": abs(cpus)}} for cpus in self.cpus]


def test_workers_are_as_many_as_nodes_have_room_for_until_a_user_says() -> None:
    nodes = Nodes(0, 4)
    cluster = RayCluster(nodes, "127.0.0.1", [], Size(1, 4, 8), cpus=2)
    assert cluster.wanted(lambda: None) == 2
    assert cluster.wanted(lambda: None) is None, "nothing has changed"
    nodes.cpus = (0, 4, 3)
    assert cluster.wanted(lambda: None) == 3
    nodes.cpus = (0, 4, -3)  # a node is gone: workers that wait for room have another come
    assert cluster.wanted(lambda: None) is None
    nodes.cpus = (0, 4, 16)
    assert cluster.wanted(lambda: None) == 4, "never more than the most"
    assert cluster.wanted(lambda: 2) == 2
    nodes.cpus = (0, 4, 16, 16)
    assert cluster.wanted(lambda: None) is None, "the user has said"


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:{port}"])
def test_an_address_where_nobody_listens_is_refused_at_once(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with (
        pytest.raises(InputError, match=r"--ray-address .*: expected the HOST:PORT of a Ray that runs"),
        ray_cluster([], Size(1, 2, 2), at=address.format(port=port), listen=None),
    ):
        pass
