"""Generations of a run: who trains together from one change of workers to the next, and who holds which part.

They live in the launcher's store, and the launcher alone writes them. A worker has a number for as long as
its process lives; no number is given twice.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from weft.comm.run_store import RunStore
from weft.errors import WorkerLost

LATEST, STOP, END = "generation", "stop", "end"


@dataclass(frozen=True)
class Generation:
    """Who trains together."""

    number: int
    """From 1."""
    members: list[int]
    """The numbers of the workers."""
    deal: list[int]
    """The place among the members of who holds each part."""
    why: str = ""
    breaks: list[int] = field(default_factory=list)
    """Earlier generations that end where they stand: a member of them is lost. Others end at a boundary."""
    decided: float = field(default_factory=time.time)
    moved: dict[str, Any] = field(default_factory=dict)
    """The decision to move parts, as `balance.Decision` has it; empty where workers changed."""

    def holds(self, worker: int) -> list[int]:
        """Return the parts of a worker."""
        place = self.members.index(worker)
        return [part for part, holder in enumerate(self.deal) if holder == place]


def write_generation(store: RunStore, generation: Generation) -> None:
    """Make a generation the latest."""
    store.set(f"{LATEST}/{generation.number}", json.dumps(asdict(generation)))
    store.set(LATEST, str(generation.number))


def latest_number(store: RunStore) -> int:
    """Return the number of the latest generation, 0 before the first."""
    return int(store.read(LATEST) or 0)


def read_generation(store: RunStore, number: int) -> Generation:
    """Return the generation of that number."""
    text = store.read(f"{LATEST}/{number}")
    if text is None:
        raise WorkerLost(f"the store of this run no longer says who trains in generation {number}")
    return Generation(**json.loads(text))


def dealt(parts: int, members: Sequence[int], before: Mapping[int, int]) -> list[int]:
    """Return who of the members, by place, holds each part: about as many each, and as few moved as can be.

    `before` names the worker that held each part, where one did.
    """
    held: dict[int, list[int]] = {worker: [] for worker in members}
    for part in range(parts):
        if before.get(part) in held:
            held[before[part]].append(part)
    fewest, more = divmod(parts, len(members))
    # Those that hold most already keep one more than others where parts do not divide evenly.
    larger = sorted(members, key=lambda worker: (-len(held[worker]), worker))[:more]
    room = {worker: fewest + (worker in larger) for worker in members}
    kept = {part: worker for worker in members for part in held[worker][: room[worker]]}
    for worker in kept.values():
        room[worker] -= 1
    free = iter([worker for worker in members for _ in range(room[worker])])
    places = {worker: place for place, worker in enumerate(members)}
    return [places[kept[part] if part in kept else next(free)] for part in range(parts)]
