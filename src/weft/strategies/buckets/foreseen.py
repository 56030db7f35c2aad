"""What a run of `buckets` takes, counted before anything is read: partitions of rows that come and go."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from inspect import Parameter, signature
from typing import Any

from weft.config import bind
from weft.sizes import shown
from weft.strategies.buckets.buckets import Buckets
from weft.strategies.buckets.chunks import Candidates
from weft.strategies.buckets.division import Division
from weft.strategies.buckets.orders import OrderName, epoch_rounds, swaps
from weft.strategies.buckets.room import FILED, Room, room_with, summed


@dataclass(frozen=True)
class Foreseen:
    """What a run of one process takes, and an epoch after the first."""

    room: Room
    order: str
    visits: int
    swaps: int
    """Partitions that are read after the buffer was filled."""
    bytes_read: int
    bytes_written: int

    def told(self) -> list[str]:
        """Return it in lines."""
        moved = f"reads {shown(self.bytes_read)} and writes {shown(self.bytes_written)}"
        epoch = f"{self.visits:,} visits in the order {self.order!r}, {self.swaps:,} swaps, {moved} at most"
        return [
            f"memory: {summed(self.room.memory)}",
            f"disk: {summed(self.room.disk)}",
            f"an epoch: {epoch}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "room": {"memory": {**self.room.memory}, "disk": {**self.room.disk}}}


def foresee(
    names: Sequence[str], offsets: Sequence[int], edges: int, *, width: int, options: Mapping[str, Any]
) -> Foreseen:
    """Return what learning rows of some nodes from so many edges takes, by the options of a strategy."""
    given = signature(Buckets.__init__).parameters.items()
    usual = {name: each.default for name, each in given if each.default is not Parameter.empty}
    chosen = {**usual, **options}
    order: OrderName = "buffered" if chosen["order"] == "auto" else chosen["order"]
    division = Division(names, offsets, chosen["partitions"])
    how = Candidates(**bind(Candidates, chosen["negatives"] or {}, "strategy.negatives"))
    shape = {name: chosen[name] for name in ("buffer", "batch", "chunk")}
    room = room_with(division, width, edges, how, order=order, **shape)
    rounds = epoch_rounds(order, division.divided, shape["buffer"], epoch=1, common=division.common)
    visits = [visit.partitions for each in rounds for visit in each]
    capacity = shape["buffer"] + (division.common is not None)
    read = [one for loaded, _ in swaps(visits, capacity) for one in loaded]
    moved = sum(division.size(one) for one in read) * (width + 1) * 4
    if division.divided <= shape["buffer"]:
        read, moved = [], 0  # they stay from epoch to epoch
    filled = min(capacity, division.partitions)
    return Foreseen(room, order, len(visits), max(len(read) - filled, 0), moved + edges * FILED, moved)
