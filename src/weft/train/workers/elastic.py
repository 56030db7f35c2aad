"""A worker of a run whose workers come and go: a thread for each part it holds, generation after generation.

What a worker keeps in memory at every boundary is the run's: weights, optimiser, how far it is. Whoever is
furthest gives it to those who have less. What belongs to a part alone, as old rows of an exchange, goes by
the checkpoint of the run's folder, whose files are by part.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.comm.elastic.generation import Generation, read_generation
from weft.comm.elastic.hub import Hub
from weft.comm.elastic.member import Member
from weft.comm.elastic.took import Stopwatch
from weft.comm.failure import leave
from weft.comm.group import Group
from weft.errors import WorkerLost
from weft.train.resolve import Resolved
from weft.train.saved.checkpoint import Checkpoint
from weft.train.saved.saving import Handover, Moved
from weft.train.saved.summary import Summary
from weft.train.trainer import Place
from weft.train.workers.draws import DrawCheck
from weft.train.workers.worker import KeptGraph, train_parts

_CLOSE = 10.0  # seconds that workers wait for each other to have ended a generation
_PATIENCE = 20.0  # of a collective's bound: how long work under way may take to notice that others are gone


@dataclass
class _FromBefore:
    """What a worker has from one generation to the next."""

    state: Checkpoint | None = None
    graphs: KeptGraph = field(default_factory=KeptGraph)


def serve(resolved: Resolved, place: Place, member: Member, span: str) -> Summary | None:
    """Train in every generation that lists this worker; return the summary where it held the first part."""
    held, number, summary = _FromBefore(), 0, None
    while (generation := member.next(number)) is not None:
        number = generation.number
        run = _Generation(resolved, place, member, generation, held, span)
        ended = run.run()
        summary = run.summary
        member.say(ended)
        if ended == "done":
            member.meet("done", patience=_CLOSE)
        if ended == "finished":
            member.meet("finished", patience=math.inf)
        run.hub.close()
    return summary


class _Generation:
    """One generation as this worker takes part in it."""

    def __init__(
        self,
        resolved: Resolved,
        place: Place,
        member: Member,
        generation: Generation,
        held: _FromBefore,
        span: str,
    ) -> None:
        self.resolved, self.place, self.member = resolved, place, member
        self.generation, self.held, self.span = generation, held, span
        self.hub = member.form(generation)
        self.summary: Summary | None = None
        self._errors: list[BaseException] = []
        self._moved = False
        self._draws = DrawCheck(resolved.settings.seed)
        self._watch = Stopwatch(member.store.set, self.hub.busy, len(self.hub.parts))

    def run(self) -> str:
        """Train; return done where another generation follows, broken where it must, or finished."""
        try:
            resumed = self._agree()
        except (RuntimeError, WorkerLost) as error:
            self.hub.give_up(str(error))
            return "broken"
        self.member.say("up")
        self.member.up = True
        graphs = self.held.graphs.parts
        for part in [part for part in graphs if part not in self.hub.parts]:
            del graphs[part]
        threads = [
            threading.Thread(target=self._part, args=(part, resumed), name=f"part-{part}", daemon=True)
            for part in self.hub.parts
        ]
        for thread in threads:
            thread.start()
        self._join(threads)
        own = [error for error in self._errors if not isinstance(error, WorkerLost)]
        if own:
            raise own[0]
        if self._errors:
            return "broken"
        return "done" if self._moved else "finished"

    def _join(self, threads: list[threading.Thread]) -> None:
        """Wait for the threads; where others are gone, for as long as work under way may take."""
        deadline = None
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)
                if self.hub.broken and deadline is None:
                    deadline = time.monotonic() + _PATIENCE * self.member.timeout
                if deadline is not None and time.monotonic() > deadline:
                    leave(WorkerLost.exit_code)  # it hangs: the launcher sees this worker go

    # The state that all begin with

    def _agree(self) -> Checkpoint | None:
        """Return what the run goes on from: the furthest that a worker has in memory; None: the folder's."""
        hub, state = self.hub, self.held.state
        hub.store.set(f"have/{hub.me}", str(-1 if state is None else state.epoch))
        keys = [f"have/{process}" for process in range(hub.processes)]
        # Others may be in the middle of an epoch; the hub notices where they are gone.
        have = [int(epoch) for epoch in hub.await_values(keys, patience=math.inf)]
        furthest = max(have)
        if furthest < 0:
            return None
        if min(have) < furthest:
            state = self._shared(hub, state, have.index(furthest))
        assert state is not None, "who had none was given one"
        self.held.state = state
        return state

    def _shared(self, hub: Hub, state: Checkpoint | None, source: int) -> Checkpoint | None:
        """Give the state of one worker to all."""
        data = state.to_bytes() if hub.me == source and state is not None else b""
        if data:
            hub.store.set("bytes", str(len(data)))
        size = int(hub.await_values(["bytes"], patience=self.member.timeout)[0])
        tensor = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy()) if data else None
        tensor = torch.empty(size, dtype=torch.uint8) if tensor is None else tensor
        hub.broadcast(tensor, source)
        return state if data else Checkpoint.from_bytes(tensor.numpy().tobytes(), Path("memory"))

    # One part

    def _part(self, part: int, resumed: Checkpoint | None) -> None:
        number = self.generation.number
        self.hub.busy.enrol()
        group = Group.of_parts(self.hub, part, attempt=number - 1)
        place = self._place(part, None if resumed is None else resumed.copied())
        try:
            summary = train_parts(self.resolved, place, group, self.held.graphs)
            if part == 0:
                self.summary = summary
        except Moved:
            self._moved = True
        except BaseException as error:  # handed to the thread that started this one
            self._errors.append(error)
            self.hub.give_up(str(error))

    def _place(self, part: int, resumed: Checkpoint | None) -> Place:
        handover = Handover(
            resumed,
            asked=self.member.following,
            keep=partial(self._keep, part),
            by_disk=self._by_disk,
            span=self.span,
            told=self._told,
        )
        began = self.place.began if self.generation.number == 1 else self.generation.decided
        return replace(
            self.place,
            progress=self.place.progress if part == 0 else None,
            stop=lambda: self.member.stopping,
            began=began,
            handover=handover,
        )

    def _keep(self, part: int, epoch: int, take: Callable[[], Checkpoint | None]) -> None:
        self._watch.note(self.generation.number, self.member.number, part, epoch)
        if part == self.hub.parts[0]:  # it is the same for all of them
            self._draws.check()
            self.held.state = take()

    def _by_disk(self, following: int) -> bool:
        """Return whether nobody of this generation is in that one, to hand over from memory."""
        then = read_generation(self.member.store, following)
        return not set(then.members) & set(self.generation.members)

    def _told(self) -> dict[str, Any]:
        generation = self.generation
        return {
            "generation": generation.number,
            "workers": generation.members,
            "parts": [generation.members[process] for process in generation.deal],
            "why": generation.why,
            "seconds": max(0.0, time.time() - generation.decided),
            **({"moved": generation.moved} if generation.moved else {}),
        }
