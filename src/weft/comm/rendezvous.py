"""How ranks find each other: the environment that torchrun or our launcher sets, and the store they share."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from weft.comm.failure import clear_orphan, orphaned
from weft.comm.run_store import TOKEN, RunStore
from weft.errors import InputError, WorkerLost

__all__ = [
    "PrefixStore",
    "RankPlace",
    "Store",
    "TCPStore",
    "bound_socket",
    "connect_store",
    "host_store",
    "join",
    "open_store",
    "use_loopback",
]


_LEAST = 5.0


@dataclass(frozen=True)
class RankPlace:
    """Where this process stands among the ranks."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    attempt: int
    hosted: bool
    """Whether a launcher hosts the store; otherwise rank 0 does."""
    told: bool = True
    """Whether all ranks are told the same attempt; torchrun counts the restarts of each machine."""

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> "RankPlace | None":
        """Return the place that the environment tells, None where there are no other ranks."""
        if "WORLD_SIZE" not in environment or environment["WORLD_SIZE"] == "1":
            return None
        read = _Reader(environment)
        size, rank = read.number("WORLD_SIZE"), read.number("RANK")
        if not 0 <= rank < size:
            raise InputError(f"RANK is {rank}, but WORLD_SIZE is {size}: ranks are 0 … {size - 1}")
        attempt = "WEFT_ATTEMPT" if "WEFT_ATTEMPT" in environment else "TORCHELASTIC_RESTART_COUNT"
        hosted = (
            "WEFT_FAILURES" in environment or environment.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
        )
        return RankPlace(
            rank=rank,
            size=size,
            local_rank=read.number("LOCAL_RANK", rank),
            local_size=read.number("LOCAL_WORLD_SIZE", 0),
            address=read.text("MASTER_ADDR"),
            port=read.number("MASTER_PORT"),
            attempt=read.number(attempt, 0),
            hosted=hosted,
            told="WEFT_ATTEMPT" in environment,
        )

    @property
    def host(self) -> str:
        """Who serves the store, in words."""
        who = "the launcher" if self.hosted else "rank 0"
        return f"{who} at {self.address}, port {self.port},"

    @property
    def on_one_machine(self) -> bool:
        """Whether all ranks run here, so that loopback is enough."""
        return self.local_size == self.size or self.address in ("127.0.0.1", "localhost", "::1")


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    def text(self, name: str) -> str:
        if name not in self.environment:
            raise InputError(
                f"WORLD_SIZE is set but {name} is not; start with `weft train --workers N` or torchrun"
            )
        return self.environment[name]

    def number(self, name: str, default: int | None = None) -> int:
        if default is not None and name not in self.environment:
            return default
        text = self.text(name)
        try:
            return int(text)
        except ValueError:
            raise InputError(f"environment variable {name} must be a number, got {text!r}") from None


def use_loopback(place: RankPlace) -> None:
    """Make gloo listen on loopback alone where all ranks are on this machine and nothing else was asked."""
    if place.on_one_machine:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def bound_socket(address: str, port: int = 0) -> socket.socket:
    """Return a listening socket bound to one address, so that the store is not open to every network."""
    family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def host_store(listener: socket.socket, address: str, *, timeout: float) -> TCPStore:
    """Return the store served on a bound socket by a thread of this process."""
    port = listener.getsockname()[1]
    return TCPStore(
        address,
        port,
        is_master=True,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def open_store(place: RankPlace, *, timeout: float) -> TCPStore:
    """Return a connection to the store of this run; rank 0 serves it where no launcher does."""
    if place.rank == 0 and not place.hosted:
        try:
            return host_store(bound_socket(place.address, place.port), place.address, timeout=timeout)
        except OSError as error:
            raise InputError(
                f"rank 0 cannot serve the store on MASTER_ADDR {place.address}, port {place.port}: "
                f"{error.strerror}"
            ) from None
    return connect_store(place, timeout=timeout)


def connect_store(place: RankPlace, *, timeout: float) -> TCPStore:
    """Return a connection of its own to the store: calls on one connection wait for each other."""
    _reach(place, time.monotonic() + timeout, timeout)
    try:
        return TCPStore(
            place.address,
            place.port,
            is_master=False,
            timeout=timedelta(seconds=timeout),
            wait_for_workers=False,
        )
    except RuntimeError:
        raise _unreached(place, timeout) from None


def _reach(place: RankPlace, deadline: float, timeout: float) -> None:
    """Wait until somebody listens there: TCPStore tries for longer than it is told, and gives no reason."""
    while True:
        left = deadline - time.monotonic()
        try:
            socket.create_connection((place.address, place.port), timeout=max(left, 0.1)).close()
            return
        except socket.gaierror as error:
            # A name server may need a while to learn of a new machine.
            if left < max(timeout - _LEAST, 0.0):
                raise InputError(
                    f"rank {place.rank}: MASTER_ADDR {place.address!r} is no address that can be found "
                    f"({error.strerror})"
                ) from None
        except OSError:
            if orphaned():  # it listens before it starts anybody
                clear_orphan()
                raise WorkerLost(f"rank {place.rank}: the launcher is gone") from None
            if left < 0:
                raise _unreached(place, timeout) from None
        time.sleep(0.1)


def _unreached(place: RankPlace, timeout: float) -> WorkerLost:
    return WorkerLost(
        f"rank {place.rank} could not reach the store of {place.host} within {timeout:g} s; check "
        "MASTER_ADDR, MASTER_PORT and the firewall, and that its host still runs",
        rank=-1 if place.hosted else 0,
    )


def join(
    store: RunStore,
    place: RankPlace,
    *,
    timeout: float,
    check: Callable[[], None],
    began: float | None = None,
) -> None:
    """Wait until every rank is here, `timeout` seconds after this one `began`; `check` raises a failure.

    Where names are looked up slowly, most of that time may have gone: a few seconds are always left.
    """
    store.set(f"here/{place.rank}", str(place.attempt))
    everyone = [f"here/{rank}" for rank in range(place.size)]
    now = time.monotonic()
    deadline = max((now if began is None else began) + timeout, now + min(timeout, _LEAST))
    while not store.has(*everyone):
        check()
        if time.monotonic() > deadline:
            missing = [rank for rank in range(place.size) if not store.has(f"here/{rank}")]
            names = ", ".join(map(str, missing))
            others = [rank for rank in missing if store.doubted(f"here/{rank}")]
            if others:
                raise WorkerLost(
                    f"rank {place.rank} waited {timeout:g} s for {place.size} ranks; rank {others[0]} came "
                    f"with another token; set {TOKEN} to the same text on every machine, or on none",
                    rank=others[0],
                )
            raise WorkerLost(
                f"rank {place.rank} waited {timeout:g} s for {place.size} ranks; missing: {names}; start "
                "them, or give them longer with WEFT_JOIN (seconds)",
                rank=missing[0] if missing else -1,
            )
        time.sleep(0.02)
