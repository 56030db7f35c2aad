"""Parts dealt to the workers of a cluster: the load of every link before and after, and a bound."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.comm.plan import spread
from weft.comm.topology import LinkMap, best_deal, folded, least_seconds
from weft.graph.parts.assignment import Quality
from weft.plan.forecast import Forecast
from weft.plan.wires import AROUND
from weft.sizes import shown


@dataclass(frozen=True)
class Dealing:
    """Who should hold which part, and what that does to the links."""

    links: LinkMap
    traffic: NDArray[np.float64]
    """Bytes of an epoch from each part (row) to each other."""
    usual: list[int]
    """The worker of each part, dealt in order."""
    chosen: list[int]
    """The worker of each part, dealt so that the busiest link ends first."""

    fixed: NDArray[np.float64]
    """Bytes of an epoch between workers, whoever holds what."""

    @staticmethod
    def of(
        traffic: NDArray[np.float64], links: LinkMap, fixed: NDArray[np.float64] | None = None
    ) -> "Dealing":
        """Choose who holds which part; there are at least as many parts as workers."""
        usual = spread(len(traffic), links.workers)
        always = np.zeros((links.workers, links.workers)) if fixed is None else fixed
        return Dealing(links, traffic, usual, best_deal(traffic, links, usual, fixed=always), always)

    @staticmethod
    def planned(forecast: Forecast, links: LinkMap) -> "Dealing":
        """Choose which worker does what each rank of a configuration would: sums go round as they did."""
        sent, size = np.array(forecast.bytes_by_pair, dtype=np.float64), forecast.workers
        around = sum(forecast.bytes_by_purpose.get(kind, 0.0) for kind in AROUND) / size
        fixed = np.roll(np.eye(size), 1, axis=1) * around
        return Dealing.of(np.maximum(sent - fixed, 0.0), links, fixed)

    def bytes_by_link(self, deal: Sequence[int]) -> NDArray[np.float64]:
        """Return the bytes of an epoch that cross each link under a deal."""
        return self.links.load(folded(self.traffic, deal, self.links.workers) + self.fixed)

    def seconds(self, deal: Sequence[int]) -> float:
        """Return the seconds that the busiest link carries of an epoch under a deal."""
        return float((self.bytes_by_link(deal) / self.links.bandwidth).max(initial=0.0))

    @property
    def bound(self) -> float:
        """Seconds that no deal can be below: those of the sparsest way through a bottleneck."""
        return least_seconds(self.traffic, self.links, self.usual)

    def rows(self) -> Iterator[tuple[str, float, float, float]]:
        """Give the links that carry something: name, bytes in order, bytes as chosen, bytes a second."""
        before, after = self.bytes_by_link(self.usual), self.bytes_by_link(self.chosen)
        for name, one, other, speed in zip(self.links.names, before, after, self.links.bandwidth):
            if one or other:
                yield name, float(one), float(other), float(speed)

    def told(self) -> str:
        """Return one line: the busiest link in order, as chosen, and at best."""
        rows = list(self.rows())
        if not rows:
            return "nothing crosses a link"
        name, _, size, speed = max(rows, key=lambda row: row[2] / row[3])
        return (
            f"the busiest link carries {_seconds(self.seconds(self.usual))} of an epoch with parts in order, "
            f"{_seconds(self.seconds(self.chosen))} as dealt ({name}: {shown(int(size))} at "
            f"{shown(int(speed))} a second); no deal is below {_seconds(self.bound)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "workers": self.links.workers,
            "part_rank": self.chosen,
            "busiest_seconds": self.seconds(self.chosen),
            "busiest_seconds_in_order": self.seconds(self.usual),
            "bound_seconds": self.bound,
            "links": [
                {"name": name, "bytes": after, "bytes_in_order": before, "bytes_a_second": speed}
                for name, before, after, speed in self.rows()
            ],
        }


def part_traffic(quality: Quality) -> NDArray[np.float64]:
    """Return the bytes of an epoch between parts, by the rows that each takes of each other.

    Rows go to who takes them and their gradients back; all together are what the partition predicts.
    """
    taken = np.array(quality.links, dtype=np.float64)
    np.fill_diagonal(taken, 0.0)
    both = taken + taken.T
    whole = max(quality.predicted.values(), default=0)
    return both * (whole / both.sum()) if both.sum() else both


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.2f} ms"
