"""How many tensor workers pay: some numbers, none among them, are tried for a few epochs each."""

import statistics
import time

TRIED = 3
"""Epochs of each number; the first of them, in which workers start, does not count."""
GAIN = 0.97
"""More workers must need at most this share of the time of fewer."""


class Tuning:
    """Settles a number by the seconds of epochs."""

    def __init__(self, intervals: int) -> None:
        self._left = [0, *(number for number in (1, 2, 4, 8) if number <= max(1, intervals))]
        self.most = self._left[-1]
        self.number = self._left.pop(0)
        self.seconds: dict[int, float] = {}
        self._times: list[float] = []
        self._last: float | None = None
        self.settled = False

    def epoch_ended(self) -> int:
        """Note that an epoch is done, and return how many workers the next one has."""
        now, before = time.monotonic(), self._last
        self._last = now
        if self.settled or before is None:
            return self.number
        self._times.append(now - before)
        if len(self._times) < TRIED:
            return self.number
        self.seconds[self.number], self._times = statistics.median(self._times[1:]), []
        if self._left:
            self.number = self._left.pop(0)
        else:
            self.number, self.settled = self.best(), True
        return self.number

    def best(self) -> int:
        """Return the smallest number that more workers do not clearly beat."""
        chosen = 0
        for number in sorted(self.seconds):
            if self.seconds[number] < GAIN * self.seconds[chosen]:
                chosen = number
        return chosen

    def told(self) -> str:
        """Return what was found, in words."""
        tried = ", ".join(f"{1e3 * took:.1f} ms with {number}" for number, took in self.seconds.items())
        if not self.settled:
            return f"Trying {self.number}." + (f" An epoch took {tried}." if tried else "")
        return f"An epoch took {tried}: {self.number or 'none'} stays."
