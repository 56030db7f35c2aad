"""The ranks of a run as one object: what every distributed part is given. Only this file calls collectives.

Counts of rows come from a plan that both ends verified and are never exchanged at run time: gloo does not
notice split counts that differ between peers, it delivers wrong numbers. Every wait is bounded, and what gloo
raises becomes `WorkerLost` with the guilty rank in it. JSON travels through the store; nothing is pickled.
"""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor

from weft.comm.elastic.hub import Hub
from weft.comm.elastic.part_link import PartLink
from weft.comm.failure import JOIN, LOAD, STALL, Failure, launched, seconds
from weft.comm.heartbeat import PREPARING
from weft.comm.ledger import OTHER, Label, Ledger
from weft.comm.link import Link
from weft.comm.pending import Pending, sum_blocks
from weft.comm.rendezvous import RankPlace
from weft.comm.shared_value import SharedValue
from weft.comm.wire import Transit, Wire
from weft.errors import InputError, WorkerLost

Reduction = Literal["sum", "max", "min"]
TIMEOUT = 30.0


class Group:
    """Some ranks and the calls among them; a group of one needs no network and answers every call."""

    def __init__(
        self,
        rank: int = 0,
        ranks: Sequence[int] = (0,),
        *,
        device: torch.device | str = "cpu",
        timeout: float = TIMEOUT,
        ledger: Ledger | None = None,
        link: Link | PartLink | None = None,
        attempt: int = 0,
        parent: "Group | None" = None,
        processes: int | None = None,
    ) -> None:
        self.parent = parent
        """The group that this one is a part of."""
        self.processes = len(ranks) if processes is None else processes
        """How many processes the members are in; each is one of its own unless parts are the members."""
        self.ranks = list(ranks)
        """The members, as ranks of the whole run."""
        self.rank = rank
        """The place of this process among them."""
        self.size = len(self.ranks)
        self.device = torch.device(device)
        self.timeout = timeout
        self.attempt = attempt
        """How often the run was restarted."""
        self.ledger = ledger if ledger is not None else Ledger()
        self._link = link
        self._parts: dict[tuple[str, tuple[int, ...]], Link | PartLink] = {}
        self._posts: Counter[str] = Counter()

    @staticmethod
    def alone(device: torch.device | str = "cpu") -> "Group":
        """Return a group of this process alone: no sockets, no threads."""
        return Group(device=device)

    @staticmethod
    def connect(
        *,
        timeout: float | None = None,
        stall: float | None = None,
        join_timeout: float | None = None,
        device: torch.device | str = "cpu",
    ) -> "Group":
        """Return the group of all ranks that torchrun or the launcher started; alone where there is one.

        `timeout` bounds every collective, `stall` the silence of a rank, `join_timeout` the wait for all of
        them at the start; the environment's WEFT_TIMEOUT, WEFT_STALL and WEFT_JOIN stand in where they are
        not given.
        """
        place = RankPlace.from_environment(os.environ)
        if place is None:
            return Group.alone(device)
        timeout = timeout if timeout is not None else seconds("WEFT_TIMEOUT", TIMEOUT)
        stall = stall if stall is not None else seconds("WEFT_STALL", STALL)
        if join_timeout is None:
            join_timeout = LOAD if launched() else seconds("WEFT_JOIN", JOIN)
        link = Link.open(place, torch.device(device), timeout=timeout, stall=stall, join_timeout=join_timeout)
        attempt = link.place.attempt
        return Group(
            place.rank, range(place.size), device=device, timeout=timeout, link=link, attempt=attempt
        )

    @staticmethod
    def of_parts(hub: Hub, part: int, *, attempt: int = 0) -> "Group":
        """Return the group of all parts of a run as one of them has it; threads hold the others here."""
        link = PartLink(hub, part, range(len(hub.deal)))
        return Group(
            part,
            range(len(hub.deal)),
            timeout=hub.timeout,
            link=link,
            attempt=attempt,
            processes=hub.processes,
        )

    # Rows

    def all_to_all(
        self,
        rows: Tensor,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        background: bool = False,
        label: Label = OTHER,
    ) -> Pending:
        """Send the first `send_counts[0]` rows to member 0 and so on; get those of all, in member order."""
        assert len(send_counts) == len(recv_counts) == self.size, "one count a member"
        assert sum(send_counts) == len(rows), (
            f"counts add up to {sum(send_counts)}, there are {len(rows)} rows"
        )
        if self._link is None:
            return Pending(self, rows, label)
        rows = rows.detach().contiguous()
        received = rows.new_empty(sum(recv_counts), *rows.shape[1:])
        self._count_rows(rows, send_counts, recv_counts, label)
        work = self._start(
            "all_to_all",
            background,
            lambda wire: wire.all_to_all(received, rows, recv_counts, send_counts),
        )
        return Pending(self, received, label, work=work, holds=rows)

    def all_gather(
        self,
        rows: Tensor,
        counts: Sequence[int] | None = None,
        *,
        background: bool = False,
        label: Label = OTHER,
    ) -> Pending:
        """Get the rows of all members one after the other; `counts` says how many, where unequal."""
        counts = [len(rows)] * self.size if counts is None else counts
        assert counts[self.rank] == len(rows), f"{counts[self.rank]} rows were planned, there are {len(rows)}"
        # Through all-to-all: gloo's gather needs equal counts, and the words on the wire are the same.
        copies = rows.detach().repeat(self.size, *[1] * (rows.dim() - 1)) if self._link is not None else rows
        return self.all_to_all(copies, [len(rows)] * self.size, counts, background=background, label=label)

    def gather_unequal(self, rows: Tensor, *, label: Label = OTHER) -> tuple[Tensor, list[int]]:
        """Return the rows of all members, who may have different numbers of them, and how many each has."""
        counts = self.all_gather(torch.tensor([len(rows)]), label=label).wait().tolist()
        return self.all_gather(rows, counts, label=label).wait(), counts

    def reduce_scatter(
        self, rows: Tensor, counts: Sequence[int], *, background: bool = False, label: Label = OTHER
    ) -> Pending:
        """Get the sum over members of one's own block of rows; `counts` are the rows of each member's block.

        Sums run in member order, so results do not depend on who came first. Integers stay integers.
        """
        own = counts[self.rank]
        moved = self.all_to_all(rows, counts, [own] * self.size, background=background, label=label)
        return moved.then(lambda received: sum_blocks(received, self.size, own))

    def all_reduce(
        self,
        tensor: Tensor,
        op: Reduction = "sum",
        *,
        background: bool = False,
        label: Label = OTHER,
    ) -> Pending:
        """Reduce a tensor over all members, in place; the same bits everywhere."""
        if self._link is None:
            return Pending(self, tensor, label)
        whole = tensor.detach()
        flat = whole if whole.is_contiguous() else whole.contiguous()
        # A ring moves 2 (P − 1) / P of the bytes to the next member.
        volume = 2 * (self.size - 1) * flat.numel() * flat.element_size() // self.size
        after, before = self.ranks[(self.rank + 1) % self.size], self.ranks[self.rank - 1]
        self.ledger.sent(after, volume, label, messages=2 * (self.size - 1))
        self.ledger.received(before, volume, label, messages=2 * (self.size - 1))
        work = self._start(
            "all_reduce",
            background,
            lambda wire: wire.all_reduce(flat, op),
        )
        reduced = Pending(self, flat, label, work=work)
        return reduced if flat is whole else reduced.then(whole.copy_)

    def broadcast(self, tensor: Tensor, root: int = 0, *, label: Label = OTHER) -> Tensor:
        """Fill a contiguous tensor on all members with that of one, and return it."""
        assert tensor.is_contiguous(), "a tensor that is filled in place must be contiguous"
        if self._link is None:
            return tensor
        volume = tensor.numel() * tensor.element_size()
        for peer in self.ranks:
            if self.rank == root and peer != self.ranks[root]:
                self.ledger.sent(peer, volume, label)
        if self.rank != root:
            self.ledger.received(self.ranks[root], volume, label)
        work = self._start(
            "broadcast",
            False,
            lambda wire: wire.broadcast(tensor.detach(), self.ranks[root]),
        )
        Pending(self, tensor, label, work=work).wait()
        return tensor

    def send(self, tensor: Tensor, member: int, *, label: Label = OTHER) -> None:
        """Hand a tensor to a member that is ready to `receive` one of this shape and type."""
        peer, dense = self.ranks[member], tensor.detach().contiguous()
        self.ledger.sent(peer, dense.numel() * dense.element_size(), label)
        self._to_or_from("send", lambda wire: wire.send(dense, peer), label)

    def receive(self, into: Tensor, member: int, *, label: Label = OTHER) -> Tensor:
        """Fill a contiguous tensor with what a member sends, and return it."""
        peer = self.ranks[member]
        self._to_or_from("receive", lambda wire: wire.receive(into, peer), label)
        self.ledger.received(peer, into.numel() * into.element_size(), label)
        return into

    def start_send(self, tensor: Tensor, member: int, *, label: Label = OTHER) -> Pending:
        """Begin to hand a tensor to a member; what is sent to one arrives in the order of these calls."""
        peer, held = self.ranks[member], tensor.detach().contiguous()
        self.ledger.sent(peer, held.numel() * held.element_size(), label)
        work = self._start("send", False, lambda wire: wire.send(held, peer))
        return Pending(self, held, label, work=work, holds=held, between_two=True)

    def start_receive(self, into: Tensor, member: int, *, label: Label = OTHER) -> Pending:
        """Begin to fill a contiguous tensor with what a member sends next."""
        peer = self.ranks[member]
        self.ledger.received(peer, into.numel() * into.element_size(), label)
        work = self._start("receive", False, lambda wire: wire.receive(into, peer))
        return Pending(self, into, label, work=work, between_two=True)

    def barrier(self) -> None:
        """Return when every member has come here."""
        self.all_reduce(torch.zeros(1, dtype=torch.int32, device=self.device), label=Label("barrier")).wait()

    # Words

    def all_gather_json(self, value: Any) -> list[Any]:
        """Return the JSON value that each member gave, in member order; for small things, at set-up."""
        if self._link is None:
            return [json.loads(json.dumps(value))]
        return [json.loads(text) for text in self._link.gather_text(self.rank, self.size, json.dumps(value))]

    def post(self, name: str, value: Any) -> None:
        """Leave a JSON value for all members that `expect` it; one member posts under a name."""
        assert self._link is not None, "a group of one has nobody to tell"
        self._link.store.set(f"post/{name}/{self._posts[name]}", json.dumps(value))
        self._posts[name] += 1

    def expect(self, name: str, *, told: str = "") -> Any:
        """Wait for the next value of a name, as long as every rank lives, and return it.

        `told` is a line for the user where that takes long.
        """
        assert self._link is not None, "a group of one has nobody to hear from"
        text = self._link.wait_for(f"post/{name}/{self._posts[name]}", told=told)
        self._posts[name] += 1
        return json.loads(text)

    def shared_value(self, name: str) -> SharedValue:
        """Return the next value under a name that members change in turn; all of them ask for it."""
        assert self._link is not None, "a group of one has nobody to share it with"
        key = f"shared/{name}/{self._posts[f'shared {name}']}"
        self._posts[f"shared {name}"] += 1
        return SharedValue(self._link.store, key, self._link.heart, timeout=self.timeout)

    def prepare(self, work: Callable[[], None], *, told: str = "") -> None:
        """Have the first member do work that may take long while the others wait, as long as it lives."""
        if self._link is None:
            work()
        elif self.rank == 0:
            self._link.heart.enter(PREPARING)
            work()
            self._link.heart.enter("start")
            self.post("prepared", True)
        else:
            self.expect("prepared", told=told)

    def agree(self, **facts: Any) -> None:
        """Check that all members hold the same facts (recipe, version, partition); name two that differ."""
        mine = {name: _fingerprint(value) for name, value in facts.items()}
        facts_of = self.all_gather_json(mine)
        for member, theirs in enumerate(facts_of):
            for name in sorted({*facts_of[0], *theirs}):
                if theirs.get(name) != facts_of[0].get(name):
                    first, other = (_shown(each.get(name)) for each in (facts_of[0], theirs))
                    raise InputError(
                        f"ranks disagree on {name}: rank {self.ranks[0]} has {first}, rank "
                        f"{self.ranks[member]} has {other}; start every rank with the same recipe, code "
                        "and files"
                    )

    def subgroup(self, ranks: Sequence[int], *, purpose: str = "rows") -> "Group":
        """Return the group of some members (ranks of the whole run) with this one; only they call it.

        Groups of one purpose and the same members share their connections, which are sockets and threads;
        what may overtake other traffic among the same members needs a purpose of its own.
        """
        members = sorted(ranks)
        rank = members.index(self.ranks[self.rank])
        link = self._part(purpose, members) if self._link is not None and len(members) > 1 else None
        return Group(
            rank,
            members,
            device=self.device,
            timeout=self.timeout,
            ledger=self.ledger,
            link=link,
            attempt=self.attempt,
            parent=self,
        )

    # The end

    def complete(self, work: Transit) -> None:
        """Wait for work of this group or a part of it; raises WorkerLost with the guilty rank."""
        try:
            work.wait()
        except RuntimeError as error:
            link = self._link
            assert link is not None, "a group of one waits for nobody"
            raise link.heart.blame(error, link.heart.doing) from None

    def drain(self) -> None:
        """Wait for all that this group and its subgroups sent in the background, as before a checkpoint."""
        if self._link is not None:
            for link in (self._link, *self._parts.values()):
                for work in link.take_background():
                    self.complete(work)

    @property
    def closed(self) -> bool:
        """Whether the ranks have parted."""
        return self._link is not None and self._link.closed

    def close(self) -> None:
        """Drain, leave the other ranks and stop the heartbeat. A second call does nothing."""
        link = self._link
        if link is None or not link.whole or link.closed:
            return
        try:
            self.drain()
        except WorkerLost as error:
            self.abandon(error)
            raise
        link.close()

    def abandon(self, error: BaseException) -> None:
        """Leave because of an error of this rank: the others are told first, then connections close."""
        if self._link is not None and self._link.whole:
            self._link.abandon(None if isinstance(error, WorkerLost) else Failure.of(self.rank, error))

    def __enter__(self) -> "Group":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon(error)

    # Inside

    def _part(self, purpose: str, members: list[int]) -> Link | PartLink:
        assert self._link is not None, "a group of one has no connections"
        key = (purpose, tuple(members))
        if key not in self._parts:
            self._parts[key] = self._link.part(members, purpose)
        return self._parts[key]

    def _start(self, doing: str, background: bool, call: Callable[[Wire], Transit]) -> Transit:
        link = self._link
        assert link is not None, "a group of one starts nothing"
        link.heart.enter(doing)
        try:
            work = call(link.background if background else link.main)
        except RuntimeError as error:
            raise link.heart.blame(error, doing) from None
        if background:
            link.in_flight = [*(each for each in link.in_flight if not each.is_completed()), work]
        return work

    def _to_or_from(self, doing: str, call: Callable[[Wire], Transit], label: Label) -> None:
        """Do one half of a message between two members, in the lane of the background."""
        link = self._link
        assert link is not None, "a group of one has nobody to write to"
        link.heart.enter(doing)
        began = time.perf_counter()
        try:
            call(link.background).wait()
        except RuntimeError as error:
            raise link.heart.blame(error, doing) from None
        self.ledger.waited(time.perf_counter() - began, 0.0, label)

    def _count_rows(
        self, rows: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], label: Label
    ) -> None:
        width = rows.element_size()
        for extent in rows.shape[1:]:
            width *= extent
        for member, peer in enumerate(self.ranks):
            if member != self.rank:
                self.ledger.sent(peer, send_counts[member] * width, label)
                self.ledger.received(peer, recv_counts[member] * width, label)


def _fingerprint(value: Any) -> dict[str, str]:
    text = json.dumps(value, sort_keys=True, default=str)
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "shown": text[:60]}


def _shown(fact: dict[str, str] | None) -> str:
    return "nothing" if fact is None else f"{fact['shown']} ({fact['sha256'][:8]})"
