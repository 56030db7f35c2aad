"""The connections of one part's group: as `Link` has them, through the hub of the process that holds it."""

import math
from collections.abc import Sequence
from typing import Any

from weft.comm.elastic.hub import Hub, PartWire
from weft.comm.wire import Transit
from weft.errors import WorkerLost

_PATIENCE = 20.0  # as `Link` has it, where files are read or written


class PartHeart:
    """What a group asks about the others: they are well for as long as the hub carries."""

    def __init__(self, hub: Hub, part: int) -> None:
        self.hub, self.part = hub, part
        self.doing = "start"
        self.watch = self

    def enter(self, doing: str) -> None:
        """Note what is done now."""
        self.doing = doing

    def check(self) -> None:
        """Raise where a process is lost."""
        if self.hub.broken:
            raise self.blame(RuntimeError(self.hub.broken), self.doing)

    def blame(self, error: Exception, doing: str) -> WorkerLost:
        """Return the error to raise for a failed call; nothing is carried any more."""
        first = next(iter(str(error).strip().splitlines()), "no reason given")
        self.hub.give_up(first)
        return WorkerLost(f"part {self.part} lost others in {doing}: {first}")

    def gone(self) -> list[int]:
        """Nobody leaves before all have."""
        return []


class PartLink:
    """The connections of one group as one part of it has them."""

    def __init__(
        self,
        hub: Hub,
        part: int,
        members: Sequence[int],
        *,
        name: str = "all",
        heart: PartHeart | None = None,
    ) -> None:
        self.hub, self.part_number, self.name = hub, part, name
        self.members = list(members)
        self.heart = PartHeart(hub, part) if heart is None else heart
        self.store = hub.store.within(f"{name}-{'-'.join(map(str, self.members))}")
        self.main, self.background = self._wire("main"), self._wire("background")
        self._words = self._wire("words")
        self.timeout = hub.timeout
        self.whole = heart is None
        self.closed = False
        self.in_flight: list[Transit] = []

    def part(self, ranks: list[int], purpose: str) -> "PartLink":
        """Return connections among some parts; calls on them do not wait for those here."""
        return PartLink(self.hub, self.part_number, ranks, name=f"{self.name} {purpose}", heart=self.heart)

    def gather_text(self, rank: int, size: int, text: str) -> list[str]:
        """Return what every member wrote."""
        self.heart.enter("all_gather_json")
        try:
            return self._words.gather_text(text, patience=_PATIENCE * self.timeout)
        except RuntimeError as error:
            raise self.heart.blame(error, "all_gather_json") from None

    def wait_for(self, key: str, *, told: str = "") -> str:
        """Return what is written under a key; however long that takes, but only while no worker is lost."""
        self.heart.enter("expect")
        try:
            self.hub.check()
            return self.hub.await_values([key], patience=math.inf, told=told, store=self.store)[0]
        except RuntimeError as error:
            raise self.heart.blame(error, "expect") from None

    def take_background(self) -> list[Transit]:
        """Return the background work of this group, and forget it."""
        taken, self.in_flight = self.in_flight, []
        return taken

    def close(self) -> None:
        """Note that this part is done; the process closes connections once all are."""
        self.closed = True

    def abandon(self, failure: Any) -> None:
        """Leave after a failure: no other part can go on either."""
        self.closed = True
        self.hub.give_up("a part has failed" if failure is None else failure.told)

    def _wire(self, kind: str) -> PartWire:
        name = f"{self.name} {kind}"
        return PartWire(lambda: self.hub.carrier(name, self.members), self.part_number)
