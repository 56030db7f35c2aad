"""The links of a cluster: those of machines and of racks, and which of them a flow crosses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.simulate.sharing import Rates

Workers = NDArray[np.int64]


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
