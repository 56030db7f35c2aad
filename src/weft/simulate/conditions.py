"""What runs are simulated under: machines, links, how uneven workers are, and how often something fails."""

from dataclasses import dataclass, field, replace

from weft.plan.cluster import Cluster
from weft.plan.machine import Machine
from weft.plan.wires import Wires, wires_apart, wires_of
from weft.simulate.epochs import Unevenness


@dataclass(frozen=True)
class Conditions:
    """What runs are simulated under."""

    cluster: Cluster | None = None
    bandwidth: float = 1.25e9
    latency: float = 1e-4
    uneven: Unevenness = field(default_factory=Unevenness)
    failures_an_hour: float = 0.0
    checkpoint_every: int = 10
    leave_an_hour: float = 0.0
    away: float = 600.0
    epochs: int = 100

    def machine(self, here: Machine, workers: int) -> Machine:
        """Return the machine that each of so many workers is on."""
        if self.cluster is not None:
            return self.cluster.machine(here, workers)
        return replace(here, workers_each=1)

    def wires(self, here: Machine, workers: int, bandwidth: float | None = None) -> Wires:
        """Return the links among so many workers."""
        if self.cluster is not None:
            return wires_of(self.cluster, here, workers, bandwidth)
        return wires_apart(self.machine(here, workers), workers, bandwidth or self.bandwidth, self.latency)
