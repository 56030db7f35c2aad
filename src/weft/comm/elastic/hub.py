"""The parts that a process holds, each a member of the run's group, and what carries their calls.

Every part runs in a thread of its own and makes the calls that a rank makes. A call meets here: when all own
parts have made it, one of them sends for all. Sums run over parts in their order, so that results are the
same bits whoever holds which part.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor

from weft.comm.elastic.busy import Busy
from weft.comm.elastic.letters import Letter, Letters
from weft.comm.elastic.meeting import Delivery, Gathered, Meeting, MovedRows, OneForAll, Reduced
from weft.comm.rendezvous import PrefixStore
from weft.comm.run_store import RunStore
from weft.comm.shutdown import bounded

_POLL = 0.002
_TELL = 5.0  # seconds after which a user is told what a part waits for


class Hub:
    """One generation as a process sees it: `deal` names the process, by its place, that holds each part."""

    def __init__(self, store: RunStore, me: int, deal: Sequence[int], *, timeout: float) -> None:
        self.store, self.me, self.deal, self.timeout = store, me, list(deal), timeout
        self.parts = [part for part, process in enumerate(self.deal) if process == me]
        """Those that are held here."""
        self.processes = 1 + max(self.deal)
        self.busy = Busy(len(self.parts))
        """How long this process computes, while others wait for it."""
        self._carriers: dict[tuple[str, tuple[int, ...]], Carrier] = {}
        self._lock = threading.Lock()
        self._broken = ""
        self._groups: list[Any] = []

    @property
    def broken(self) -> str:
        """Why nothing is carried any more; empty while all is well."""
        return self._broken

    def check(self) -> None:
        """Raise where nothing is carried any more."""
        if self._broken:
            raise RuntimeError(self._broken)

    def give_up(self, why: str) -> None:
        """End all calls under way, and refuse others; the first reason stays."""
        with self._lock:
            self._broken = self._broken or why
            carriers = list(self._carriers.values())
        for carrier in carriers:
            carrier.give_up(self._broken)

    def close(self) -> None:
        """Close all connections; what is under way ends. A thread of theirs must not be the one to do it."""
        self.give_up("the generation has ended")
        with self._lock:
            held, self._groups = self._groups, []
            for carrier in self._carriers.values():
                carrier.forget()
        # It waits for their threads, and one of these may wait for a peer that is stopped.
        bounded(held.clear, seconds=2.0)

    def carrier(self, name: str, members: Sequence[int]) -> "Carrier":
        """Return what carries the calls of that name among some parts, the same for all own parts."""
        key = (name, tuple(members))
        with self._lock:
            if key not in self._carriers:
                self._carriers[key] = Carrier(self, f"{name}-{'-'.join(map(str, members))}", members)
            return self._carriers[key]

    def connect(self, name: str, processes: Sequence[int], *, patience: float | None = None) -> Any:
        """Return connections among some processes, this one of them; all of them call it.

        They are waited for as long as for a call, or with a patience of its own.
        """
        patience = self.timeout if patience is None else patience
        place, bound = list(processes).index(self.me), timedelta(seconds=self.timeout)
        # The constructor waits for the others with Python's lock held: nobody calls it before all are here.
        self.store.set(f"here/{name}/{self.me}", "1")
        self.await_values([f"here/{name}/{process}" for process in processes], patience=patience)
        # A connection of its own: the constructor waits for the others on it, and calls on one wait for each
        # other, so that two that are opened in different orders would never come to an end.
        store = PrefixStore(name, self.store.plain.clone())  # type: ignore[attr-defined]
        group = dist.ProcessGroupGloo(store, place, len(processes), bound)
        self._groups.append(group)
        return group

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """Fill a tensor with that of a process, by its place; all of them call it."""
        if self.processes > 1:
            group = self.connect("broadcast", range(self.processes))
            meeting = Meeting(self.timeout, self.busy)
            work = group.broadcast([tensor], _from(source))
            work.get_future().add_done_callback(lambda future: meeting.end(_problem(future)))
            meeting.wait()

    def await_values(
        self, keys: list[str], *, patience: float, told: str = "", store: RunStore | None = None
    ) -> list[str]:
        """Return the values of keys of the store, or of a part of it, once all are there.

        It waits for so long at most; who waits for long is `told`.
        """
        began = time.monotonic()
        deadline = began + patience
        while (values := (store or self.store).read_all(keys)) is None:
            if told and time.monotonic() > began + _TELL:
                sys.stderr.write(f"weft: {told}\n")
                told = ""
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"Timed out after {patience:g} s")
            time.sleep(_POLL)
        return values


class Carrier:
    """Carries one sequence of calls among some parts; own ones meet before anything is sent."""

    def __init__(self, hub: Hub, name: str, members: Sequence[int]) -> None:
        self.hub, self.name, self.members = hub, name, list(members)
        self.own = [part for part in self.members if hub.deal[part] == hub.me]
        self.processes = sorted({hub.deal[part] for part in self.members})
        self.places = {
            process: [place for place, part in enumerate(self.members) if hub.deal[part] == process]
            for process in self.processes
        }
        """The members, by their place among them, that each process holds."""
        self.letters = Letters(hub, name)
        """What two of the members write to each other, which others do not meet for."""
        self._group: Any = None
        self._meetings: dict[int, Meeting] = {}
        self._under_way: set[Meeting] = set()
        # Sends leave in the order of calls, on every process: who completes a call sends under this lock.
        self._lock = threading.Lock()

    def enter(self, number: int, part: int, given: Delivery) -> Meeting:
        """Give what a part has for the call of that number; the last of the own parts sends."""
        with self._lock:
            meeting = self._meetings.setdefault(number, Meeting(self.hub.timeout, self.hub.busy))
            self._under_way.add(meeting)
            self.hub.check()  # after it is listed: who gives up meanwhile ends what is listed
            meeting.join(part, given)
            if len(meeting.given) == len(self.own):
                del self._meetings[number]
                meeting.sender = part
                self._depart(meeting, given)
        return meeting

    def gather_text(self, number: int, part: int, text: str, *, patience: float) -> list[str]:
        """Return what every member wrote, in member order."""
        meeting = self.enter(number, part, Gathered(text))
        if meeting.sender == part:
            try:
                self._gather(number, meeting, patience)
                self._end(meeting)
            except RuntimeError as error:
                self._end(meeting, str(error))
        meeting.wait(patience)
        return meeting.texts

    def give_up(self, why: str) -> None:
        """End the calls under way."""
        for meeting in list(self._under_way):
            self._end(meeting, why)
        self.letters.give_up(why)

    def forget(self) -> None:
        """Let go of the connections, which the hub closes."""
        self._group = None
        self.letters.forget()

    # Inside

    def _given(self, meeting: Meeting) -> dict[int, Delivery]:
        """Return what own parts gave; who gives up meanwhile takes it away, and that is what is raised."""
        given = dict(meeting.given)
        self.hub.check()
        return given

    def _depart(self, meeting: Meeting, given: Delivery) -> None:
        if isinstance(given, Gathered):
            return  # the sender carries it, in its own time
        held = self._given(meeting)
        own = [held[part] for part in self.own]
        if len(self.processes) == 1:
            self._deliver(meeting, given, None)
            return
        if self._group is None:
            self._group = self.hub.connect(self.name, self.processes)
        if isinstance(given, OneForAll):
            root = self.processes.index(self.hub.deal[given.root])
            # Who holds the part that spreads it sends that one's; others receive into any of their own.
            spread = held.get(given.root, given)
            assert isinstance(spread, OneForAll), "all members make the same call"
            work = self._group.broadcast([spread.tensor], _from(root))
            self._after(work, meeting, given, spread.tensor)
            return
        sent, out_sizes, in_sizes = given.packed(own, self)
        received = sent.new_empty(sum(in_sizes), *sent.shape[1:])
        work = self._group.alltoall_base(received, sent, in_sizes, out_sizes)
        meeting.holds = sent
        self._after(work, meeting, given, received)

    def _after(self, work: dist.Work, meeting: Meeting, given: Delivery, received: Tensor) -> None:
        def done(future: object) -> None:
            problem = _problem(future)
            if problem:
                self.hub.give_up(problem)
            else:
                self._deliver(meeting, given, received)

        meeting.work = work
        work.get_future().add_done_callback(done)

    def _deliver(self, meeting: Meeting, given: Delivery, received: Tensor | None) -> None:
        try:
            given.deliver(meeting, self, received)
            self._end(meeting)
        except Exception as error:
            self._end(meeting, f"{type(error).__name__}: {error}")

    def _end(self, meeting: Meeting, error: str = "") -> None:
        self._under_way.discard(meeting)
        meeting.end(error)

    def _gather(self, number: int, meeting: Meeting, patience: float) -> None:
        """Exchange the words of own parts with those of other processes, through the store."""
        given = self._given(meeting)
        own = {part: held.text for part, held in given.items() if isinstance(held, Gathered)}
        words = {self.hub.me: own}
        if len(self.processes) > 1:
            keys = {process: f"text/{self.name}/{number}/{process}" for process in self.processes}
            self.hub.store.set(keys[self.hub.me], json.dumps(own))
            with self.hub.busy.waiting():
                said = self.hub.await_values(list(keys.values()), patience=patience)
            for process, text in zip(keys, said):
                words[process] = {int(p): t for p, t in json.loads(text).items()}
            if number:  # by now all have read those of the call before
                self.hub.store.delete(f"text/{self.name}/{number - 1}/{self.hub.me}")
        meeting.texts = [words[self.hub.deal[part]][part] for part in self.members]


def _from(root: int) -> Any:
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = root, 0
    return options


def _problem(future: Any) -> str:
    """Return what is wrong with a call that has ended; empty where it ended well."""
    try:
        future.value()
    except Exception as error:
        return str(error) or "a connection was lost"
    return ""


class PartWire:
    """The calls of one part, as `Wire` has them."""

    def __init__(self, make: Callable[[], Carrier], part: int) -> None:
        self._make, self.part = make, part
        self._number = 0

    def all_to_all(
        self, received: Tensor, rows: Tensor, recv_counts: Sequence[int], send_counts: Sequence[int]
    ) -> Meeting:
        """Send a block of rows to each member, and fill `received` with those of all."""
        return self._enter(MovedRows.of(received, rows, recv_counts, send_counts))

    def all_reduce(self, tensor: Tensor, op: str) -> Meeting:
        """Reduce a contiguous tensor over all members, in their order, in place."""
        return self._enter(Reduced(tensor, op))

    def broadcast(self, tensor: Tensor, rank: int) -> Meeting:
        """Fill a contiguous tensor with that of a part."""
        return self._enter(OneForAll(tensor, rank))

    def send(self, tensor: Tensor, rank: int) -> Letter:
        """Hand a tensor to a part."""
        return self._make().letters.send(tensor, self.part, rank)

    def receive(self, into: Tensor, rank: int) -> Letter:
        """Fill a tensor with what a part sends."""
        return self._make().letters.receive(into, self.part, rank)

    def gather_text(self, text: str, *, patience: float) -> list[str]:
        """Return what every member wrote."""
        number, self._number = self._number, self._number + 1
        return self._make().gather_text(number, self.part, text, patience=patience)

    def _enter(self, given: Delivery) -> Meeting:
        number, self._number = self._number, self._number + 1
        return self._make().enter(number, self.part, given)
