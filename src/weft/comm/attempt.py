"""Which attempt of a run the ranks are in, where nobody tells them all the same.

torchrun tells each machine how often its own ranks were restarted, and these numbers differ: a rank that was
restarted would look for the others where they are not. So the first rank counts attempts in the store, which
may outlive it, and the others ask for the number. Each asks under its own name, since the store may still
hold the words of an attempt before.
"""

import time
import uuid
from dataclasses import replace

from weft.comm.rendezvous import RankPlace
from weft.comm.run_store import RunStore
from weft.errors import WorkerLost

_POLL = 0.02


class Attempts:
    """The number of this attempt, as one rank of it learns it and the first one tells it."""

    def __init__(self, store: RunStore, place: RankPlace) -> None:
        self.place = place
        self._store = store.within("attempts")
        self._answered: set[str] = set()
        self._number = place.attempt if place.told else -1
        if not place.told and place.rank == 0:
            self._number = self._store.plain.add("number", 1) - 1

    def find(self, *, timeout: float) -> int:
        """Return a number that no other attempt on this store has; ranks beside the first wait for it."""
        if self._number < 0:
            key = uuid.uuid4().hex
            self._store.set(f"ask/{self.place.rank}", key)
            self._number = int(self._await(f"answer/{key}", timeout))
        return self._number

    def answer(self) -> None:
        """Tell those who ask, as the first rank; it does so until all are here."""
        if self.place.told or self.place.rank:
            return
        for rank in range(1, self.place.size):
            key = self._store.read(f"ask/{rank}")
            if key is not None and key not in self._answered:
                self._answered.add(key)
                self._store.set(f"answer/{key}", str(self._number))

    def agreed(self, here: RunStore) -> RankPlace:
        """Return the place with an attempt that all ranks have; all are `here`, and said how often restarted.

        A store that rank 0 serves begins anew with it, so that its count alone would hide a restart.
        """
        if self.place.told:
            return self.place
        counts = [int(here.read(f"here/{rank}") or 0) for rank in range(self.place.size)]
        return replace(self.place, attempt=max(self._number, *counts))

    def _await(self, key: str, timeout: float) -> str:
        deadline = time.monotonic() + timeout
        while (answer := self._store.read(key)) is None:
            if time.monotonic() > deadline:
                raise WorkerLost(
                    f"rank {self.place.rank} waited {timeout:g} s for {self.place.size} ranks; missing: 0; "
                    "start it, or give it longer with WEFT_JOIN (seconds)",
                    rank=0,
                )
            time.sleep(_POLL)
        return answer
