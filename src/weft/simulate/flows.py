"""Flows under way: bytes that are left, shared links, and when the next one is through."""

import numpy as np
from numpy.typing import NDArray

from weft.plan.wires import Wires
from weft.simulate.sharing import Rates, fair_rates

_ROUNDS = 4  # of progressive filling, where moments are put together
_DUST = 1e-9  # of a flow's bytes: what rounding leaves


class FlowsUnderWay:
    """What travels over the links of a cluster at one time.

    `grain` puts all that happens within so many seconds together: rates are shared anew once, and each flow
    still ends at the moment that its own rate says. 0 is exact.
    """

    def __init__(self, wires: Wires, grain: float = 0.0) -> None:
        self.wires, self.grain, self.now = wires, grain, 0.0
        self.capacity = wires.capacity()
        self.carried = np.zeros(len(self.capacity))
        """Bytes that each link carried."""
        self._size, self._left, self._rate, self._delay = (np.zeros(0) for _ in range(4))
        self._paths = np.zeros((0, 4), dtype=np.int64)
        self._tags = np.zeros((0, 2), dtype=np.int64)  # the shipment, and who receives
        self._coming: list[tuple[int, NDArray[np.int64], NDArray[np.int64], Rates]] = []
        self._stale = False

    def begin(self, shipment: int, src: NDArray[np.int64], dst: NDArray[np.int64], size: Rates) -> None:
        """Have flows begin now."""
        self._coming.append((shipment, src, dst, size))

    @property
    def idle(self) -> bool:
        """Whether nothing travels."""
        return not len(self._left) and not self._coming

    def next_end(self) -> float:
        """Return the moment at which the next flow is through; infinity where none is under way."""
        self._settle()
        return self.now + float((self._left / self._rate).min()) if len(self._left) else np.inf

    def advance(self, until: float) -> tuple[NDArray[np.int64], Rates]:
        """Go on to a moment; return the tags [n, 2] of flows that end by then, and when each is there."""
        self._settle()
        passed, start = until - self.now, self.now
        self.now = max(self.now, until)
        if not len(self._left) or passed < 0:
            return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
        ends = self._left / self._rate
        self._left = self._left - self._rate * passed
        rounding = 1e-12 * passed + 1e-15 * self.now
        done = (ends <= passed + rounding) | (self._left <= _DUST * self._size)
        tags, times = self._tags[done], start + np.minimum(ends[done], passed) + self._delay[done]
        if done.any():
            keep = ~done
            self._size, self._left, self._rate = self._size[keep], self._left[keep], self._rate[keep]
            self._paths, self._tags, self._delay = self._paths[keep], self._tags[keep], self._delay[keep]
            self._stale = True
        return tags, times

    def _settle(self) -> None:
        """Take in what has begun, and share the links anew where something changed."""
        if self._coming:
            numbers = np.concatenate([np.full(len(src), which) for which, src, _, _ in self._coming])
            src, dst, size = (np.concatenate([each[place] for each in self._coming]) for place in (1, 2, 3))
            self._coming = []
            paths = self.wires.paths(src, dst)
            self.carried += np.bincount(
                paths.ravel(), weights=np.repeat(size, 4), minlength=len(self.capacity)
            )
            self._size, self._left = np.append(self._size, size), np.append(self._left, size)
            self._delay = np.append(self._delay, self.wires.delays(src, dst))
            self._paths = np.concatenate([self._paths, paths])
            self._tags = np.concatenate([self._tags, np.stack([numbers, dst], axis=1)])
            self._stale = True
        if self._stale:
            self._rate = fair_rates(self._paths, self.capacity, _ROUNDS if self.grain else None)
            self._stale = False
