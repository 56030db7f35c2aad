"""The links of a cluster: those of machines and of racks, and which of them a flow crosses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.comm.topology import Behind, LinkMap
from weft.plan.cluster import Cluster, bytes_a_second
from weft.plan.machine import Machine

Workers = NDArray[np.int64]
Rates = NDArray[np.float64]
MESSAGE = 2e-5
"""Seconds that each further message of a worker takes it, where the link's latency is not less."""
AROUND = ("gradient", "norm")
"""Purposes of what is summed in a ring of workers."""


@dataclass(frozen=True)
class Wires:
    """Workers on machines, machines in racks.

    A machine has one link out and one in, which all its workers share; a rack has one up and one down, which
    all its machines share. Workers of one machine meet in its memory.
    """

    workers: int
    each: int
    """Workers of one machine."""
    bandwidth: float
    """Bytes a second of a machine's link, each way."""
    latency: float
    """Seconds from a sender to a receiver."""
    inside: float
    """Bytes a second between the workers of one machine, all together."""
    inside_latency: float
    call: float = 0.0
    """Seconds of a call that sends or sums, beside those of its messages."""
    rack: int | None = None
    """Machines of one rack; None: all stand in one."""
    uplink: float | None = None
    """Bytes a second of a rack's link to the others, each way."""
    far_latency: float | None = None
    """Seconds between racks."""

    @property
    def machines(self) -> int:
        """How many machines there are."""
        return -(-self.workers // self.each)

    @property
    def racks(self) -> int:
        """How many racks there are."""
        return 1 if self.rack is None else -(-self.machines // self.rack)

    def calls(self, kind: str, messages: Rates) -> Rates:
        """Return the calls that so many messages to one worker are of: a sum goes round the ring twice."""
        return messages / (2 * max(1, self.workers - 1)) if kind in AROUND else messages

    def capacity(self) -> Rates:
        """Return bytes a second of links: machines' out, in, inside; racks' up, down; one that is free."""
        machines, racks = np.ones(self.machines), np.ones(self.racks)
        up = np.inf if self.uplink is None else self.uplink
        ways = [machines * self.bandwidth, machines * self.bandwidth, machines * self.inside]
        return np.concatenate([*ways, racks * up, racks * up, [np.inf]])

    def paths(self, src: Workers, dst: Workers) -> NDArray[np.int64]:
        """Return the links that flows between workers cross, [flows, 4]."""
        machines, racks = self.machines, self.racks
        free = 3 * machines + 2 * racks
        here, there = src // self.each, dst // self.each
        found = np.stack([here, machines + there, np.full_like(here, free), np.full_like(here, free)], axis=1)
        if self.rack is not None:
            low, high = here // self.rack, there // self.rack
            far = low != high
            found[far, 2] = 3 * machines + low[far]
            found[far, 3] = 3 * machines + racks + high[far]
        within = here == there
        found[within, 0] = 2 * machines + here[within]
        found[within, 1] = free
        return found

    def delays(self, src: Workers, dst: Workers) -> Rates:
        """Return the seconds that a byte takes between workers where nothing is in its way."""
        here, there = src // self.each, dst // self.each
        found = np.where(here == there, self.inside_latency, self.latency)
        if self.rack is not None and self.far_latency is not None:
            found = np.where(here // self.rack != there // self.rack, self.far_latency, found)
        return found

    def names(self) -> tuple[str, ...]:
        """Return the names of the links, in the order of `capacity`, without the one that is free."""
        machines, racks = range(self.machines), range(self.racks)
        ways = [f"machine {each} {way}" for way in ("out", "in", "inside") for each in machines]
        return (*ways, *(f"rack {each} {way}" for way in ("up", "down") for each in racks))

    def links(self) -> LinkMap:
        """Return them as what parts are dealt over: the links that messages cross, and bottlenecks."""
        names, each = self.names(), np.arange(self.workers)
        src, dst = (grid.ravel() for grid in np.meshgrid(each, each, indexing="ij"))
        paths = self.paths(src, dst).reshape(self.workers, self.workers, -1)
        paths[paths == len(names)] = -1
        paths[each, each] = -1
        return LinkMap(names, self.capacity()[:-1], paths, tuple(self._bottlenecks()))

    def _bottlenecks(self) -> Iterator[Behind]:
        """Give the workers of each machine and of each rack, with the bandwidth that joins them to others."""
        if self.machines > 1:
            for held in np.array_split(np.arange(self.workers), range(self.each, self.workers, self.each)):
                yield Behind(tuple(held.tolist()), self.bandwidth)
        if self.rack is not None and self.uplink is not None and self.racks > 1:
            size = self.rack * self.each
            for first in range(0, self.workers, size):
                yield Behind(tuple(range(first, min(first + size, self.workers))), self.uplink)


def wires_of(
    cluster: Cluster | None,
    here: Machine,
    workers: int,
    bandwidth: float | None = None,
    *,
    kinds: Sequence[str] = (),
) -> Wires:
    """Return the links among so many workers of a cluster, or of this machine where there is none.

    `bandwidth` stands for that of the cluster's machines, `kinds` say which calls they make. Within a machine
    rows are copied by its cores: so many pairs at a time as there are cores, and who has to wait for one is
    late.
    """
    each = workers if cluster is None else cluster.workers
    cores, near = here.cores if cluster is None else cluster.machines["cores"], min(each, workers)
    turns = max(1.0, near / cores)
    inside, slow, call = here.bandwidth * min(cores, near), here.latency * turns, here.call_among(near, kinds)
    if cluster is None or cluster.within is None:
        return Wires(workers, each, inside, slow, inside, slow, call)
    speed = bandwidth or bytes_a_second(cluster.within["bandwidth"])
    wires = Wires(workers, each, speed, cluster.within["latency"], inside, slow, call)
    if cluster.between is None or cluster.machines["racks"] == 1:
        return wires
    rack = -(-cluster.machines["count"] // cluster.machines["racks"])
    uplink = bytes_a_second(cluster.between["bandwidth"])
    return replace(wires, rack=rack, uplink=uplink, far_latency=cluster.between["latency"])


def wires_apart(
    here: Machine, workers: int, bandwidth: float, latency: float | None = None, *, kinds: Sequence[str] = ()
) -> Wires:
    """Return links of so many bytes a second, one for each worker, wherever their cores are.

    Without a `latency` it is that of this machine. Calls are those of as many workers as share its cores.
    """
    late, call = here.latency if latency is None else latency, here.call_among(here.on_one(workers), kinds)
    return Wires(workers, 1, bandwidth, late, here.bandwidth, here.latency, call)
