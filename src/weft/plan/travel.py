"""The seconds that traffic takes each rank, over the links that it crosses and shares with others.

All ranks send at about the same time: what crosses a link is through when the link has carried all of it.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.comm.topology import LinkMap
from weft.events import Event
from weft.plan.wires import MESSAGE, Wires

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class TravelTime:
    """Seconds of each rank."""

    inside: Matrix
    """Between workers of one machine: copies, made by the cores that also compute."""
    outside: Matrix
    """Over links between machines, which carry while the cores compute."""

    @property
    def all(self) -> Matrix:
        """Of both."""
        return self.inside + self.outside


@dataclass(frozen=True)
class Travel:
    """The links among the ranks of a run."""

    wires: Wires

    def seconds(self, events: Sequence[Event], kinds: Collection[str], *, turns: bool = False) -> TravelTime:
        """Return how long traffic of some purposes takes; `events` are those of an epoch, one a rank.

        With `turns` one rank sends to all others, down a tree, and then the next.
        """
        sent = self._sent(events, kinds)
        spent = self._in_turns if turns else self._at_once
        inside, outside = (spent(np.where(held, sent, 0.0)) for held in (self._near, ~self._near))
        return TravelTime(inside, outside)

    def _sent(self, events: Sequence[Event], kinds: Collection[str]) -> Matrix:
        """Return bytes, messages and calls from each rank to each other, [3, ranks, ranks]."""
        found = np.zeros((3, self.wires.workers, self.wires.workers))
        for rank, event in enumerate(events):
            for volume in event["volumes"]:
                if volume["kind"] in kinds:
                    number = volume["messages_sent"]
                    calls = self.wires.calls(volume["kind"], number)
                    found[:, rank, volume["peer"]] += volume["bytes_sent"], number, calls
        return found

    def _at_once(self, sent: Matrix) -> Matrix:
        """Return the seconds of each rank: of the busiest link that its bytes cross, messages and calls."""
        size, messages, calls = sent
        busy = np.append(self._links.seconds(size), 0.0)[self._links.paths].max(axis=2)
        pairs = np.where(size > 0, busy, 0.0)
        # Messages to several peers are on their way together; each takes its sender a moment.
        late = (messages * self._delays + calls * self.wires.call).max(axis=1)
        further = MESSAGE * (messages.sum(axis=1) - messages.max(axis=1))
        spent: Matrix = np.maximum(pairs.max(axis=1), pairs.max(axis=0)) + late + further
        return spent

    def _in_turns(self, sent: Matrix) -> Matrix:
        """Return the seconds of all ranks' sending, each by itself, for every rank."""
        workers = self.wires.workers
        tree = math.ceil(math.log2(workers)) / (workers - 1) if workers > 1 else 0.0
        whole = 0.0
        for rank in range(workers):
            alone = (np.arange(workers) == rank)[:, None] * tree
            whole += float(self._at_once(sent * alone)[rank])
        return np.full(workers, whole)

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
