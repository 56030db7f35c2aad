"""Ray as what finds machines for workers: `weft train --engine ray --workers 2:8`.

Ray starts, places and replaces one keeper for each worker, which starts the ordinary worker's process beside
it. Who trains, and who holds which part, stays with the launcher's generations; tensors go by gloo.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from weft.comm.elastic.ray_home import LOOPBACK, NO_TELEMETRY, ray_here
from weft.comm.elastic.ray_node import WorkerKeeper
from weft.comm.elastic.ray_process import RayProcess
from weft.comm.elastic.start import Process, Size, defaults
from weft.comm.launch import ADDRESS, tell_user
from weft.errors import InputError
from weft.registry import require

OPTION = "--ray-address"
_REACH = 10.0  # seconds in which Ray's address must answer
_PASSED = ("WEFT_", "OMP_", "PYTHONPATH", "ONEDNN_", "THP_")
"""How variables of the launcher begin that workers have, too; all others are those of their nodes."""


class RayCluster:
    """A Ray that this process is connected to, and the workers that it is to place."""

    def __init__(self, ray: Any, address: str, command: Sequence[str], size: Size, cpus: int) -> None:
        """`address` is where workers find this process; each asks for so many `cpus`."""
        self.ray, self.address = ray, address
        self.command, self.size, self.cpus = list(command), size, cpus
        self._out = sys.__stdout__ or sys.stderr
        self._room = 0
        self._scaled = False

    def spawn(self, env: dict[str, str]) -> Process:
        """Have Ray find a node for a worker, as far from others as can be, and start it there."""
        keeper = self.ray.remote(WorkerKeeper).options(
            num_cpus=self.cpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
        given = {**passed, **env}
        return RayProcess(
            self.ray, keeper.remote(), self.command, given, Path.cwd(), say=tell_user, out=self._out
        )

    def wanted(self, asked: Callable[[], int | None]) -> int | None:
        """Return how many workers are wanted: as many as nodes have room for, until a user says a number."""
        number = asked()
        if number is not None or self._scaled:
            self._scaled = True
            return number
        before, self._room = self._room, self._count()
        return min(self.size.most, max(self.size.least, self._room)) if self._room > before else None

    def _count(self) -> int:
        """Return how many workers all nodes have room for."""
        try:
            nodes = self.ray.nodes()
        except self.ray.exceptions.RayError:
            return self._room
        return sum(int(each["Resources"].get("CPU", 0) // self.cpus) for each in nodes if each["Alive"])


@contextmanager
def ray_cluster(
    command: Sequence[str], size: Size, *, at: str | None, listen: str | None
) -> Iterator[RayCluster]:
    """Connect to the Ray `at` an address, or start one here; workers find this process at `listen`."""
    cpus = int(defaults(size).get("OMP_NUM_THREADS") or os.environ["OMP_NUM_THREADS"])
    if at is None:
        with ray_here(size.most * cpus) as started, _connected(started) as ray:
            yield RayCluster(ray, ADDRESS, command, size, cpus)
        return
    check_reached(at)
    with _connected(at) as ray:
        yield RayCluster(ray, _reachable(ray, listen), command, size, cpus)


def check_reached(address: str, option: str = OPTION) -> None:
    """Refuse an address where nobody listens: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{option} {address}: expected the HOST:PORT of a Ray that runs, as `ray start --head` "
            f"tells it ({error})"
        ) from None


def connect(address: str, option: str = OPTION) -> Any:
    """Return Ray's module, connected to one that runs; it reads its environment as it is imported."""
    os.environ |= {**NO_TELEMETRY, **(LOOPBACK if address.startswith("127.") else {})}
    ray = require("ray", "ray")
    try:
        with redirect_stdout(sys.stderr):
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise InputError(f"{option} {address}: {_told(error)}") from None
    return ray


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Give Ray's module, connected to one that runs."""
    ray = connect(address)
    try:
        with redirect_stdout(sys.stderr):  # it prints what it finds, beside the one object of --json
            yield ray
    finally:
        ray.shutdown()


def _told(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines else type(error).__name__


def _reachable(ray: Any, listen: str | None) -> str:
    """Return where workers find this process: where the user says, or on loopback where all are here."""
    others = check_guarded(ray)
    if others and listen is None:
        raise InputError(
            f"--engine ray: nodes at {', '.join(others[:4])} must reach this process; name the address of "
            "this machine that they know by --listen (it listens nowhere else)"
        )
    return ADDRESS if listen is None else listen


def check_guarded(ray: Any) -> list[str]:
    """Return the addresses of other machines' nodes; refuse a Ray of several that asks for no token."""
    others = sorted({each["NodeManagerAddress"] for each in ray.nodes() if each["Alive"]} - {ADDRESS})
    if others and os.environ.get("RAY_AUTH_MODE", "token") != "token":
        raise InputError("RAY_AUTH_MODE: who reaches a Ray without a token runs code on it; set it to token")
    return others
