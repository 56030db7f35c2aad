"""How long a task may take before it is given to another worker as well: the rule of Dorylus."""

from threading import Lock

LEAST = 0.5
RATIO = 3.0
"""Of the running mean. The paper's own is a setting of its scripts."""
FIRST = 6.0
"""Seconds before anything is known of an operator."""


class Deadlines:
    """A running mean of the seconds of each operator, 0.95 old + 0.05 new."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}
        self._lock = Lock()

    def took(self, name: str, seconds: float) -> None:
        """Take in how long a task took."""
        with self._lock:
            before = self._means.get(name)
            self._means[name] = seconds if before is None else 0.95 * before + 0.05 * seconds

    def of(self, name: str) -> float:
        """Return how long a task of this operator may take."""
        with self._lock:
            mean = self._means.get(name)
        return FIRST if mean is None else max(LEAST, RATIO * mean)
