"""Looks at what workers tell of the time that they take, and has parts move."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from weft.comm.elastic.balance import Decision, Window, decide
from weft.comm.elastic.took import Took, told_by_all
from weft.comm.run_store import RunStore

EPOCHS, SECONDS = 3, 1.0
"""How long a window is at least: short ones tell of chance."""


class Balancer:
    """Looks at what the workers of a generation tell, and says which parts are to move."""

    def __init__(self, log: Path, now: Callable[[], float] = time.monotonic) -> None:
        """`log` is the file that every decision is added to, with what it was made of."""
        self.log, self._now = log, now
        self.past: list[Decision] = []
        self._generation = 0
        self._windows: list[Window] = []
        self._first: dict[int, Took] = {}
        self._began = 0.0

    def look(self, store: RunStore, generation: int, holders: Mapping[int, int]) -> Decision | None:
        """Return the parts that are to move from now on; None where all stay."""
        if generation != self._generation:
            self._generation, self._windows, self._first = generation, [], {}
        took = told_by_all(store, generation, sorted(set(holders.values())))
        if not took:
            return None
        if not self._first:
            self._first, self._began = took, self._now()
            return None
        window = _between(self._first, took)
        if window.last - window.first + 1 < EPOCHS or self._now() - self._began < SECONDS:
            return None
        self._windows.append(window)
        self._first, self._began = took, self._now()
        decision = decide(self._windows, holders, self.past)
        if decision is not None:
            self._keep(decision, holders)
        return decision

    def _keep(self, decision: Decision, holders: Mapping[int, int]) -> None:
        told = {
            "generation": self._generation,
            "holders": [holders[part] for part in sorted(holders)],
            "windows": [asdict(window) for window in self._windows],
            "decision": asdict(decision),
        }
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
        self.past.append(decision)


def _between(first: Mapping[int, Took], last: Mapping[int, Took]) -> Window:
    before, after = (next(iter(told.values())).epoch for told in (first, last))
    epochs = max(after - before, 1)
    busy = {worker: (last[worker].busy - first[worker].busy) / epochs for worker in last}
    parts = {
        part: (ran - first[worker].parts[part]) / epochs
        for worker, took in last.items()
        for part, ran in took.parts.items()
    }
    return Window(before + 1, after, busy, dict(sorted(parts.items())))
