"""A call that several parts of one process make together: what each gives, what travels, what each gets."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from weft.comm.elastic.busy import Busy

if TYPE_CHECKING:
    from weft.comm.elastic.hub import Carrier

_PAIRWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}


class Meeting:
    """One call: what own parts gave for it, and whether it is done. It is the work of each of them."""

    def __init__(self, timeout: float, busy: Busy | None = None) -> None:
        self.timeout, self.busy = timeout, Busy(1) if busy is None else busy
        self.given: dict[int, Delivery] = {}
        self.sender: int | None = None
        """The part that came last, and sends for all."""
        self.texts: list[str] = []
        self.holds: Any = None
        self.work: Any = None
        self._error = ""
        self._done = threading.Event()
        self._calls: list[Callable[[Any], None]] = []
        self._lock = threading.Lock()

    def join(self, part: int, given: "Delivery") -> None:
        """Take what a part gives; all give the same kind of thing, or calls are out of order."""
        for other, held in self.given.items():
            if type(held) is not type(given):
                kinds = f"{type(held).__name__.lower()} and {type(given).__name__.lower()}"
                raise RuntimeError(f"parts {other} and {part} make different calls: {kinds}")
        self.given[part] = given

    def end(self, error: str = "") -> None:
        """Note that it is done, or why it never will be; the first word counts."""
        with self._lock:
            if self._done.is_set():
                return
            self._error = error
            self._done.set()
            calls, self._calls = self._calls, []
        self.given, self.holds, self.work = {}, None, None
        for call in calls:
            call(self)

    # As torch's work and its future

    def wait(self, seconds: float | None = None) -> None:
        """Return when it is done; raises where it failed or took too long."""
        bound = self.timeout if seconds is None else seconds
        with self.busy.waiting():
            done = self._done.wait(bound)
        if not done:
            raise RuntimeError(f"Timed out after {bound:g} s")
        if self._error:
            raise RuntimeError(self._error)

    def is_completed(self) -> bool:
        """Return whether `wait` would not block."""
        return self._done.is_set()

    def get_future(self) -> "Meeting":
        """Return what tells the end: this."""
        return self

    def add_done_callback(self, call: Callable[[Any], None]) -> None:
        """Have a function called at the end, at once where that was."""
        with self._lock:
            if not self._done.is_set():
                self._calls.append(call)
                return
        call(self)


class Delivery(Protocol):
    """What one part gives for a call."""

    def packed(self, own: Sequence["Delivery"], carrier: "Carrier") -> tuple[Tensor, list[int], list[int]]:
        """Return what goes to other processes, and how many rows to each and from each."""

    def deliver(self, meeting: Meeting, carrier: "Carrier", received: Tensor | None) -> None:
        """Fill what own parts asked for; `received` came from other processes, None where there are none."""


@dataclass(frozen=True)
class Gathered:
    """Words for all members."""

    text: str

    def packed(self, own: Sequence[Delivery], carrier: "Carrier") -> tuple[Tensor, list[int], list[int]]:
        """Words travel through the store."""
        raise NotImplementedError

    def deliver(self, meeting: Meeting, carrier: "Carrier", received: Tensor | None) -> None:
        """Words are read by the part that came last."""


@dataclass(frozen=True)
class MovedRows:
    """A block of rows for each member, and room for one of each."""

    received: Tensor
    rows: Tensor
    recv_counts: list[int]
    send_counts: list[int]
    recv_starts: list[int]
    send_starts: list[int]

    @staticmethod
    def of(
        received: Tensor, rows: Tensor, recv_counts: Sequence[int], send_counts: Sequence[int]
    ) -> "MovedRows":
        """Return it with where each block begins."""
        starts = [list(accumulate(counts, initial=0)) for counts in (recv_counts, send_counts)]
        return MovedRows(received, rows, list(recv_counts), list(send_counts), *starts)

    def block(self, place: int) -> Tensor:
        """Return the rows for the member at a place."""
        return self.rows[self.send_starts[place] : self.send_starts[place + 1]]

    def room(self, place: int) -> Tensor:
        """Return where the rows of the member at a place go."""
        return self.received[self.recv_starts[place] : self.recv_starts[place + 1]]

    def packed(self, own: Sequence[Delivery], carrier: "Carrier") -> tuple[Tensor, list[int], list[int]]:
        """Return the blocks by process, by own part, by their part."""
        held = [each for each in own if isinstance(each, MovedRows)]
        away = {q: places for q, places in carrier.places.items() if q != carrier.hub.me}
        blocks = [each.block(place) for places in away.values() for each in held for place in places]
        sizes = [
            [
                sum(getattr(each, counts)[place] for each in held for place in away.get(q, ()))
                for q in carrier.processes
            ]
            for counts in ("send_counts", "recv_counts")
        ]
        return torch.cat(blocks), sizes[0], sizes[1]

    def deliver(self, meeting: Meeting, carrier: "Carrier", received: Tensor | None) -> None:
        """Fill the room of own parts: blocks come by process, by their part, by own part."""
        held = {part: each for part in carrier.own if isinstance(each := meeting.given[part], MovedRows)}
        at = 0
        for process, places in carrier.places.items():
            for place in places:
                source = held.get(carrier.members[place])
                for part, each in held.items():
                    room = each.room(place)
                    if process == carrier.hub.me:
                        assert source is not None, "an own part gave its rows"
                        room.copy_(source.block(carrier.members.index(part)))
                    else:
                        assert received is not None, "other processes have sent"
                        room.copy_(received[at : at + len(room)])
                        at += len(room)


@dataclass(frozen=True)
class Reduced:
    """A tensor that is reduced over all members in their order, in place."""

    tensor: Tensor
    op: str

    def packed(self, own: Sequence[Delivery], carrier: "Carrier") -> tuple[Tensor, list[int], list[int]]:
        """Return the tensors of own parts, once for each other process."""
        mine = torch.cat([each.tensor.reshape(-1) for each in own if isinstance(each, Reduced)])
        size, me = self.tensor.numel(), carrier.hub.me
        others = [q for q in carrier.processes if q != me]
        out = [0 if q == me else len(mine) for q in carrier.processes]
        back = [0 if q == me else size * len(carrier.places[q]) for q in carrier.processes]
        return mine.repeat(len(others)), out, back

    def deliver(self, meeting: Meeting, carrier: "Carrier", received: Tensor | None) -> None:
        """Reduce in the order of members, and give each own part the result."""
        size, at = self.tensor.numel(), 0
        terms: dict[int, Tensor] = {}
        for process, places in carrier.places.items():
            for place in places:
                if process == carrier.hub.me:
                    given = meeting.given[carrier.members[place]]
                    assert isinstance(given, Reduced), "all members make the same call"
                    terms[place] = given.tensor.reshape(-1)
                else:
                    assert received is not None, "other processes have sent"
                    terms[place] = received[at : at + size]
                    at += size
        total = terms[0]
        for place in range(1, len(terms)):
            total = _PAIRWISE[self.op](total, terms[place])
        for given in list(meeting.given.values()):
            if isinstance(given, Reduced):
                given.tensor.copy_(total.view_as(given.tensor))


@dataclass(frozen=True)
class OneForAll:
    """A tensor that one part fills for all."""

    tensor: Tensor
    root: int

    def packed(self, own: Sequence[Delivery], carrier: "Carrier") -> tuple[Tensor, list[int], list[int]]:
        """One tensor travels, to all."""
        raise NotImplementedError

    def deliver(self, meeting: Meeting, carrier: "Carrier", received: Tensor | None) -> None:
        """Copy it to own parts."""
        held = meeting.given.get(self.root)
        source = held.tensor if isinstance(held, OneForAll) else received
        assert source is not None, "it is here, or was sent"
        for given in meeting.given.values():
            if isinstance(given, OneForAll) and given.tensor is not source:
                given.tensor.copy_(source)
