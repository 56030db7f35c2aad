"""Where tensor workers of Ray are looked for, and what is refused."""

import socket

import pytest

from weft.errors import InputError
from weft.strategies.tensor_workers.ray_place import ray_with_room


def test_an_address_where_nobody_listens_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with (
        pytest.raises(
            InputError, match=rf"strategy\.ray_address 127\.0\.0\.1:{port}: expected the HOST:PORT"
        ),
        ray_with_room(1, f"127.0.0.1:{port}", sharing=1),
    ):
        pass
