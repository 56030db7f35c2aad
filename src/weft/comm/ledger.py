"""What crossed the network: bytes and messages by purpose, exchange and peer, and the seconds it cost.

Only payload to *other* ranks counts; what a rank hands to itself is free. Seconds are exposed when a rank
stood waiting and hidden when it worked while the rows travelled.
"""

import threading
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class Label(NamedTuple):
    """What a transfer is for."""

    kind: str = "other"
    """"halo", "gradient" (of parameters), "evaluate", "plan", …"""
    slot: int = -1
    """The number of the exchange within a step, from 0; −1 where there is one alone."""
    direction: str = "forward"
    """"forward" or "backward"."""


OTHER = Label()
# Waits kept one by one between two snapshots, for a picture of the epoch; sums count all of them.
_MOST_WAITS = 1000
_SHORTEST = 2e-5


@dataclass
class Volume:
    """Bytes and messages to and from one peer."""

    bytes_sent: int = 0
    messages_sent: int = 0
    bytes_received: int = 0
    messages_received: int = 0


@dataclass
class Seconds:
    """Time of transfers: exposed while the rank stood waiting, hidden behind its own work."""

    exposed: float = 0.0
    hidden: float = 0.0


class Ledger:
    """Counts the traffic of one rank; peers are ranks of the whole run, also for subgroups."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Start again from zero."""
        self.volumes: dict[tuple[Label, int], Volume] = defaultdict(Volume)
        self.seconds: dict[Label, Seconds] = defaultdict(Seconds)
        self.staleness: Counter[int] = Counter()
        self.decisions: Counter[str] = Counter()
        self.waits: list[tuple[str, float, float]] = []

    def sent(self, peer: int, num_bytes: int, label: Label = OTHER, *, messages: int = 1) -> None:
        """Add what went to a peer; nothing is added for zero bytes, which no message carries."""
        if num_bytes:
            with self._lock:
                volume = self.volumes[label, peer]
                volume.bytes_sent += num_bytes
                volume.messages_sent += messages

    def received(self, peer: int, num_bytes: int, label: Label = OTHER, *, messages: int = 1) -> None:
        """Add what came from a peer."""
        if num_bytes:
            with self._lock:
                volume = self.volumes[label, peer]
                volume.bytes_received += num_bytes
                volume.messages_received += messages

    def waited(self, exposed: float, hidden: float, label: Label = OTHER) -> None:
        """Add the seconds of one transfer, whose wait has just ended."""
        with self._lock:
            self.seconds[label].exposed += exposed
            self.seconds[label].hidden += hidden
            if exposed >= _SHORTEST and len(self.waits) < _MOST_WAITS:
                self.waits.append((label.kind, time.perf_counter() - exposed, exposed))

    def used(self, age: int, rows: int = 1) -> None:
        """Add rows that were used `age` steps after they were computed."""
        with self._lock:
            self.staleness[age] += rows

    def decided(self, skipped: bool) -> None:
        """Add one exchange that could be skipped, and whether it was."""
        with self._lock:
            self.decisions["skipped" if skipped else "made"] += 1

    @property
    def bytes_sent(self) -> int:
        """Payload bytes to all other ranks."""
        return sum(volume.bytes_sent for volume in self.volumes.values())

    @property
    def messages(self) -> int:
        """Messages to all other ranks."""
        return sum(volume.messages_sent for volume in self.volumes.values())

    @property
    def exposed_seconds(self) -> float:
        """Seconds that this rank stood waiting for others or for the network."""
        return sum(seconds.exposed for seconds in self.seconds.values())

    @property
    def hidden_seconds(self) -> float:
        """Seconds of transfers during which this rank did something else."""
        return sum(seconds.hidden for seconds in self.seconds.values())

    def snapshot(self, *, clear: bool = False) -> dict[str, Any]:
        """Return everything as plain values for an event; `clear` starts again, so that events add up.

        `waits` are (kind, start on the clock of time.perf_counter, seconds).
        """
        with self._lock:
            taken = {
                "bytes_sent": self.bytes_sent,
                "messages": self.messages,
                "exposed_seconds": self.exposed_seconds,
                "hidden_seconds": self.hidden_seconds,
                "volumes": [
                    {**label._asdict(), "peer": peer, **asdict(volume)}
                    for (label, peer), volume in sorted(self.volumes.items())
                ],
                "seconds": [
                    {**label._asdict(), **asdict(seconds)} for label, seconds in sorted(self.seconds.items())
                ],
                "staleness": {str(age): rows for age, rows in sorted(self.staleness.items())},
                "skipped": self.decisions["skipped"],
                "made": self.decisions["made"],
                "waits": list(self.waits),
            }
            if clear:
                self.clear()
        return taken
