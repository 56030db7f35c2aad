"""The seconds that a call takes each rank, over the links that it crosses and shares with others.

All ranks send at about the same time: what crosses a link is through when the link has carried all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.comm.topology import LinkMap
from weft.plan.wires import MESSAGE, Wires

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class TravelTime:
    """Seconds of each rank."""

    inside: Matrix
    """Between workers of one machine: copies, made by the cores that also compute."""
    outside: Matrix
    """Over links between machines, which carry while the cores compute."""


@dataclass(frozen=True)
class Travel:
    """The links among the ranks of a run."""

    wires: Wires

    def of_call(self, sent: Sequence[Mapping[int, tuple[float, float]]]) -> TravelTime:
        """Return how long a call takes on the way; `sent` are bytes and messages of each rank to others."""
        found = np.zeros((3, self.wires.workers, self.wires.workers))
        for rank, flows in enumerate(sent):
            for peer, (size, messages) in flows.items():
                found[:, rank, peer] = size, messages, 1.0
        inside, outside = (self._at_once(np.where(held, found, 0.0)) for held in (self._near, ~self._near))
        return TravelTime(inside, outside)

    def _at_once(self, sent: Matrix) -> Matrix:
        """Return the seconds of each rank: of the busiest link that its bytes cross, messages and calls."""
        size, messages, calls = sent
        busy = np.append(self._links.seconds(size), 0.0)[self._links.paths].max(axis=2)
        pairs = np.where(size > 0, busy, 0.0)
        # Messages to several peers are on their way together; each takes its sender a moment.
        late = messages * self._delays + calls * self.wires.call
        further = MESSAGE * (messages.sum(axis=1) - messages.max(axis=1))
        spent: Matrix = _both_ways(pairs) + _both_ways(late) + further
        return spent

    @cached_property
    def _links(self) -> LinkMap:
        return self.wires.links()

    @cached_property
    def _delays(self) -> Matrix:
        return self.wires.delays(*np.indices(self._near.shape))

    @cached_property
    def _near(self) -> NDArray[np.bool_]:
        """Which pairs of workers are on one machine."""
        machine = np.arange(self.wires.workers) // self.wires.each
        near: NDArray[np.bool_] = machine[:, None] == machine
        return near


def _both_ways(pairs: Matrix) -> Matrix:
    """Return for each rank the most of what it sends and what it is sent."""
    most: Matrix = np.maximum(pairs.max(axis=1), pairs.max(axis=0))
    return most
