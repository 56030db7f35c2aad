"""How a cut grows with the number of parts: measured on the graph at hand, fitted, extrapolated with its
doubt.

Two things bound it. Of nodes that are dealt out at random into P parts, one with d edges out of it has (P −
1)(1 − (1 − 1/P)^d) rows in the halos of others, and 1 − 1/P of all edges are cut: this is chance, C(P), and
no partitioner is much worse. One that has room to choose leaves surfaces, which grow as a power G(P) = a P^b.
Both together are 1 / H = 1 / G + 1 / C, so that G = H / (1 − H / C) is known where H was measured, and is a
line in logarithms. A partitioner that does as chance does is extrapolated by chance alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.graph.graph import Graph
from weft.graph.parts.assignment import Quality
from weft.partitioners import partition

PARTS = (2, 4, 8, 16, 32)
"""The numbers of parts that are measured."""
# Student's t of a two-sided interval of 90 %, by degrees of freedom.
_T = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860}

_MOST = 0.99  # of chance: what is nearer is chance


@dataclass(frozen=True)
class OutDegrees:
    """How many nodes there are of each number of edges out of them: all that chance needs to know."""

    degree: NDArray[np.int64]
    nodes: NDArray[np.int64]

    @classmethod
    def of(cls, graph: Graph) -> "OutDegrees":
        """Return those of a graph, loops left out."""
        src = graph.indices.numpy()
        dst = np.repeat(np.arange(graph.num_nodes), graph.indptr.diff().numpy())
        found = np.unique(np.bincount(src[src != dst], minlength=graph.num_nodes), return_counts=True)
        return cls(*found)

    def halo_rows(self, parts: int) -> float:
        """Return the rows in the halos of parts that were drawn at random."""
        missed = (1 - 1 / parts) ** self.degree.astype(np.float64)
        return float((self.nodes * (parts - 1) * (1 - missed)).sum())


@dataclass(frozen=True)
class Estimate:
    """A number with the bounds that nine of ten lie within, as the scatter around the line says."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ChanceLine:
    """A count against parts: a line in logarithms that is bent where chance is near."""

    parts: tuple[int, ...]
    found: tuple[float, ...]
    chance: tuple[float, ...]
    """What chance comes to on each number of parts."""

    def at(self, parts: int, chance: float) -> Estimate:
        """Return the count on a number of parts: as measured, where it was, else by the line."""
        if parts in self.parts:
            known = self.found[self.parts.index(parts)]
            return Estimate(known, known, known)
        share = np.minimum(np.array(self.found) / np.maximum(self.chance, 1e-12), _MOST)
        free = np.maximum(np.array(self.chance) * share / (1 - share), 1e-12)
        x, y = np.log(np.array(self.parts, dtype=np.float64)), np.log(free)
        if len(x) < 2:
            return Estimate(*(float(min(each, 1.0) * chance) for each in (share[0], share[0], 1.0)))
        away, spread = math.log(parts) - x.mean(), float(((x - x.mean()) ** 2).sum())
        slope = float(((x - x.mean()) * y).sum()) / spread
        middle, degrees = float(y.mean()) + slope * away, len(x) - 2

        def bent(logarithm: float) -> float:
            return 1 / (math.exp(-min(logarithm, 600.0)) + 1 / chance)

        if not degrees:  # a line through two points tells nothing of its scatter
            return Estimate(bent(middle), bent(middle), chance)
        off = y - y.mean() - slope * (x - x.mean())
        error = math.sqrt(float((off**2).sum()) / degrees * (1 + 1 / len(x) + away**2 / spread))
        wide = _T.get(degrees, 1.7) * error
        return Estimate(bent(middle), bent(middle - wide), bent(middle + wide))


@dataclass(frozen=True)
class CutFound:
    """What a cut into so many parts came to."""

    parts: int
    halo_rows: int
    cut_share: float
    peers: float
    """Other parts that a part takes rows from, on average."""
    spread: Mapping[str, list[float]] = field(default_factory=dict)
    """Of nodes, edges and halo rows, each part's over the mean."""

    @classmethod
    def of(cls, quality: Quality) -> "CutFound":
        """Return what matters of how good a cut is."""
        links = np.array(quality.links)
        told = {"nodes": quality.nodes, "edges": quality.edges, "halo": links.sum(1)}
        spread = {name: (np.array(each) / max(np.mean(each), 1e-9)).tolist() for name, each in told.items()}
        peers = float((links > 0).sum()) / len(links)
        return cls(len(links), int(links.sum()), quality.cut_share, peers, spread)


@dataclass(frozen=True)
class ScalingLaw:
    """Halo rows, cut edges and neighbours against parts, of one partitioner on one graph."""

    partitioner: str
    chance: OutDegrees
    found: tuple[CutFound, ...]

    def halo_rows(self, parts: int) -> Estimate:
        """Return the halo rows of all parts."""
        line = self._line([each.halo_rows for each in self.found], self.chance.halo_rows)
        return line.at(parts, self.chance.halo_rows(parts))

    def cut_share(self, parts: int) -> float:
        """Return the share of edges whose source another part owns."""
        line = self._line([each.cut_share for each in self.found], lambda count: 1 - 1 / count)
        return line.at(parts, 1 - 1 / parts).value

    def peers(self, parts: int) -> int:
        """Return how many others a part takes rows from."""
        line = self._line([each.peers for each in self.found], lambda count: count - 1.0)
        most = min(parts - 1.0, self.halo_rows(parts).value / parts)
        return max(1, round(min(most, line.at(parts, parts - 1.0).value)))

    def spread(self, name: str) -> list[float]:
        """Return how uneven the largest cut is: each part's share over the mean."""
        return list(self.found[-1].spread[name])

    def _line(self, found: Sequence[float], chance: Callable[[int], float]) -> ChanceLine:
        parts = tuple(each.parts for each in self.found)
        return ChanceLine(parts, tuple(map(float, found)), tuple(chance(count) for count in parts))

    def to_dict(self, upto: Sequence[int] = ()) -> dict[str, Any]:
        """Return what was measured, and what is expected of other numbers of parts."""
        return {
            "partitioner": self.partitioner,
            "measured": [
                {
                    "parts": each.parts,
                    "halo_rows": each.halo_rows,
                    "cut_share": each.cut_share,
                    "peers": each.peers,
                }
                for each in self.found
            ],
            "expected": [{"parts": each, **asdict(self.halo_rows(each))} for each in upto if each > 1],
        }


def measured_law(graph: Graph, given: Mapping[str, Any] | str, parts: Sequence[int] = PARTS) -> ScalingLaw:
    """Return the law of a partitioner on a graph, from cuts into a few numbers of parts."""
    options = {"name": given} if isinstance(given, str) else dict(given)
    found = []
    for count in parts:
        if 2 <= count <= graph.num_nodes // 4:
            quality = partition(graph, count, **options).quality
            assert quality is not None
            found.append(CutFound.of(quality))
    return ScalingLaw(str(options["name"]), OutDegrees.of(graph), tuple(found))
