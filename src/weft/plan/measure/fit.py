"""Rates from runs: ridge regression over counted work, in relative errors, around what is known already.

As ROC learns the cost of a partition (Jia et al., 2020), from features that are counted before a run. Errors
are relative, so that a phase of a millisecond counts as much as one of a second, and rates stay positive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.plan.rehearse.work import CountedWork

RIDGE = 0.05
"""How much a rate that is off by all of itself weighs against an observation that is."""


@dataclass(frozen=True)
class Observation:
    """CountedWork that was counted, and the seconds it took."""

    work: CountedWork
    seconds: float


def fitted(
    known: Mapping[str, float], seen: Sequence[Observation], *, ridge: float = RIDGE
) -> dict[str, float]:
    """Return rates that explain what was seen, close to those known where little was.

    >>> seen = [Observation(CountedWork(calls=100), 2e-3), Observation(CountedWork(calls=200), 4e-3)]
    >>> round(fitted({"calls": 1e-5}, seen, ridge=1e-6)["calls"], 7)
    2e-05
    """
    names = list(known)
    kept = [each for each in seen if each.seconds > 0]
    if not kept:
        return dict(known)
    scale = np.array([known[name] for name in names])
    counts = np.array([[each.work.to_dict()[name] for name in names] for each in kept], dtype=np.float64)
    seconds = np.array([each.seconds for each in kept])
    rows = counts * scale / seconds[:, None]  # of rates as multiples of what is known
    left = rows.T @ rows + ridge * np.eye(len(names))
    right = rows.T @ np.ones(len(kept)) + ridge * np.ones(len(names))
    return dict(zip(names, (scale * _positive(left, right)).tolist()))


def _positive(left: np.ndarray, right: np.ndarray, turns: int = 2000) -> np.ndarray:
    """Return the solution of a ridge regression that has no rate below a hundredth of what was known."""
    found = np.ones(len(right))
    for _ in range(turns):
        for place in range(len(right)):
            rest = right[place] - left[place] @ found + left[place, place] * found[place]
            found[place] = max(0.01, rest / left[place, place])
    return found
