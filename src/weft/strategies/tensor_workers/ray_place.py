"""The Ray that has tensor workers: one that runs at an address, or one here for as long as a run."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from weft.comm.elastic.ray_cluster import check_guarded, check_reached, connect
from weft.comm.elastic.ray_home import ray_here
from weft.errors import RecipeError

KEY = "strategy.ray_address"


@contextmanager
def ray_with_room(workers: int, address: str | None, *, sharing: int) -> Iterator[Any]:
    """Give Ray's module, connected to a Ray that has a core for each of so many tensor workers.

    At an address, `sharing` processes of this run want as many; without one each process starts its own Ray.
    """
    with ExitStack() as stack:
        if address is None:
            found = stack.enter_context(ray_here(workers))
        else:
            check_reached(address, KEY)
            found = address
        with _own_signals():
            ray = connect(found, KEY)
        stack.callback(ray.shutdown)
        check_guarded(ray)
        room = int(ray.cluster_resources().get("CPU", 0))
        if address is not None and room < workers * sharing:
            raise RecipeError(
                f"strategy.tensor_workers: {workers} for each of {sharing} workers, and the Ray at {address} "
                f"has {room} CPUs"
            )
        yield ray


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what this process does at the end: Ray sets a handler of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
