"""Starts the workers of a run that may come and go, and says who trains: `weft train --workers 2:8`.

The launcher serves the store and is no worker, so nobody whom the run could lose holds it together. A worker
that is lost ends its generation at once; one that comes or leaves in order does so at a boundary.
"""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.comm.elastic.roster import START, Roster, Started
from weft.comm.elastic.start import Home, Size, Spawn, started_here
from weft.comm.failure import FOLDER_PREFIX, INTERRUPTED, STALL, Failure, OutOfMemory, describe_exit, seconds
from weft.comm.launch import ADDRESS, POLL, STOP, Signals, counted_signals, listening, tell_user
from weft.comm.open_files import expect_open_files
from weft.comm.run_store import RunStore, new_token
from weft.comm.scratch import scratch
from weft.errors import WorkerLost

if TYPE_CHECKING:
    from weft.comm.elastic.balance import Decision
    from weft.comm.elastic.growth import Grower

_MENDS = 3  # times in a row that a generation whose workers all live is formed anew, its connections lost
_SETTLE = 2.0  # seconds in which a worker that others lost is found to be gone
_TOGETHER = 20.0  # seconds that one who comes waits for others on their way, to come at the same boundary
_EXIT = 60.0  # seconds that workers have to leave once the run has ended
_DRAW = 600.0  # and the one that writes the end: the report of a long run takes its time on a busy machine


def run_elastic(
    command: Sequence[str],
    size: Size,
    *,
    env: Mapping[str, str],
    wanted: Callable[[], int | None],
    max_restarts: int = 0,
    began: float | None = None,
    moves: Path | None = None,
    grower: "Grower | None" = None,
    say: Callable[[str], None] = tell_user,
    spawn: Spawn | None = None,
    address: str = ADDRESS,
) -> int:
    """Run a command as workers that may come and go; return the exit code of the run.

    It begins with the least number. `spawn` starts a worker, by default the command as a process here;
    elsewhere workers find this process at its `address`. `wanted` is asked now and then for the number
    that the user wants, None: nothing new. A lost worker is replaced up to `max_restarts` times, one that was
    lost with its machine always. Parts move away from a worker that holds the others up, and `moves` is the
    file that keeps why; None: they stay. `grower` says when there are to be more, until a user says a number.
    """
    expect_open_files(size.most)
    with listening(address) as listener, scratch(FOLDER_PREFIX) as folder, counted_signals() as signals:
        run = _Coordinator(list(command), size, env, folder, listener, signals, address)
        run.wanted, run.restarts, run.say = wanted, max_restarts, say
        run.roster.spawn = run.roster.spawn if spawn is None else spawn
        run.home = replace(run.home, began=time.time() if began is None else began)
        run.moves, run.grower = moves, grower
        try:
            return run.run()
        finally:
            run.roster.close()


@dataclass(eq=False)
class _Formed:
    """The latest generation, and who has said what of it."""

    number: int = 0
    members: list[int] = field(default_factory=list)
    holders: dict[int, int] = field(default_factory=dict)
    up: bool = False
    broken: float | None = None


class _Coordinator:
    def __init__(
        self,
        command: list[str],
        size: Size,
        env: Mapping[str, str],
        folder: Path,
        listener: socket.socket,
        signals: Signals,
        address: str,
    ) -> None:
        self.size, self.memory = size, OutOfMemory()
        # Workers whose launcher was killed remove the folder above that of their records.
        self.records, self.listener, self.signals = folder / "records", listener, signals
        self.records.mkdir()
        self.stall = seconds("WEFT_STALL", STALL)
        self.roster = Roster(
            size, env, patience=seconds("WEFT_JOIN", START), spawn=partial(started_here, command)
        )
        self.home = Home(address, listener.getsockname()[1], self.records, self.stall, new_token())
        self.target = size.least
        self.formed, self.before = _Formed(), _Formed()
        self.restarts, self.mended = 0, 0
        self.moves: Path | None = None
        self.grower: Grower | None = None
        self.wanted: Callable[[], int | None] = lambda: None
        self.say: Callable[[str], None] = tell_user
        self._stopping = 0.0
        self._waited: float | None = None

    def run(self) -> int:
        """Watch over the run until it ends."""
        self.roster.start(self.target, self.home)
        from weft.comm.elastic.balancer import Balancer
        from weft.comm.heartbeat import Watch
        from weft.comm.rendezvous import host_store

        served = host_store(self.listener, self.home.address, timeout=self.stall)
        self.store = RunStore(served, self.home.token)
        self.watch = Watch(self.store.within("members"), [])
        balancer = Balancer(self.moves) if self.moves is not None else None
        looked = 0.0
        while True:
            code = self._turn()
            if code is not None:
                return code
            if time.monotonic() - looked > 1.0:
                looked = time.monotonic()
                self.roster.end_silent(self.watch, self.stall, self.say)
                self._look_at_number()
                if balancer is not None and self._settled():
                    self._move(balancer.look(self.store, self.formed.number, self.formed.holders))
            time.sleep(POLL)

    # One look at everything

    def _turn(self) -> int | None:
        if self.signals.asked:
            ended = self._ask_to_stop()
            if ended is not None:
                return ended
        for worker in list(self.roster.workers.values()):
            code = worker.process.poll()
            if code is None:
                worker.ready = worker.ready or self.store.has(f"ready/{worker.number}")
                self._note_leave(worker)
            elif not worker.ended:
                failed = self._ended(worker, code)
                if failed is not None:
                    return failed
        if self._finished():
            return self._conclude()
        return self._reform()

    def _note_leave(self, worker: Started) -> None:
        why = None if worker.leaving else self.store.read(f"leave/{worker.number}")
        if why is not None:
            worker.leaving = True
            self.target = max(self.target - 1, 0)
            self.say(f"weft: worker {worker.number} leaves at the next boundary ({why})")

    def _ended(self, worker: Started, code: int) -> int | None:
        """Note that a process has ended; return the exit code of a run that ends with it."""
        worker.ended = True
        if code == 0 and worker.number not in self.formed.members:
            worker.left = True
            return None
        told = self._record(worker.number)
        if told is not None and told.kind in ("raised", "refused") and code != INTERRUPTED:
            self._tell(told)
            return told.exit_code if told.kind == "refused" else WorkerLost.exit_code
        trained = worker.number in (*self.formed.members, *self.before.members)
        if worker.process.machine_lost:
            self.say(f"weft: worker {worker.number} was lost with its machine")
        elif trained or (worker.process.placed and not worker.ready):
            self.say(f"weft: worker {worker.number} {describe_exit(code, self.memory)}")
        if worker.leaving or worker.process.machine_lost:  # nobody, or in any case somebody, takes its place
            return None
        if self.restarts > 0:
            self.restarts -= 1
        else:
            self.target = max(self.target - 1, 0)
        return None

    def _record(self, number: int) -> Failure | None:
        with suppress(OSError, ValueError, TypeError):
            return Failure.from_json((self.records / f"{number}.json").read_text(encoding="utf-8"))
        return None

    def _tell(self, failure: Failure) -> None:
        if failure.traceback:
            self.say(f"weft: worker {failure.rank} raised:\n{failure.traceback.rstrip()}")
        told = failure.message if failure.kind == "refused" else failure.told.replace("rank", "worker", 1)
        self.say(f"weft: error: {told}")

    def _look_at_number(self) -> None:
        number = self.wanted()
        if number is not None:
            self.grower = None
            self._scale(number, "as asked for")
        elif self.grower is not None and self._settled() and self.target == len(self.formed.members):
            wish = self.grower.look(self.store, self.formed.number, self.formed.members)
            if wish is not None:
                self._scale(wish.workers, wish.why)

    def _scale(self, number: int, why: str) -> None:
        if number == self.target:
            return
        self.say(f"weft: {number} workers from the next boundary on, {why}")
        self.target = number
        self.roster.let_go(number)

    # Generations

    def _reform(self) -> int | None:
        """Write the next generation where the workers that can train are others; or end the run."""
        if len(self.roster.staying()) < self.size.least and self.target < self.size.least:
            return self._too_few()
        self.roster.start(self.target, self.home)
        members = self.roster.members()
        torn = [each for each in (self.formed, self.before) if self._torn(each)]
        if not self.formed.number and self.roster.coming():
            return None  # the first ones begin together
        if not torn and self.formed.number and not (self.formed.up and self._others(members)):
            return self._mend(members)
        if len(members) >= self.size.least:
            lost = [number for each in torn for number in self.roster.gone(each.members)]
            why = f"worker {lost[0]} was lost" if lost else self._why(members)
            self.mended = 0 if lost else self.mended
            # Who is about to form a generation that never came to be goes on to the next one at once.
            ended = [*torn, *([] if self.formed.up or self.formed in torn else [self.formed])]
            self._form(members, why, [each.number for each in ended])
        return None

    def _others(self, members: list[int]) -> bool:
        """Return whether it is time for other members: those who come together are taken together."""
        if members == self.formed.members:
            self._waited = None
            return False
        self._waited = time.monotonic() if self._waited is None else self._waited
        if self.roster.coming() and time.monotonic() - self._waited < _TOGETHER:
            return False
        self._waited = None
        return True

    def _torn(self, formed: _Formed) -> bool:
        return bool(self.roster.gone(formed.members))

    def _why(self, members: list[int]) -> str:
        came = [number for number in members if number not in self.formed.members]
        left = [number for number in self.formed.members if number not in members]
        told = [f"worker {number} came" for number in came] + [f"worker {number} left" for number in left]
        return ", ".join(told) if self.formed.number else "the run began"

    def _settled(self) -> bool:
        """Return whether the latest generation trains, and nobody is about to come or to leave."""
        stays = all(not self.roster[number].leaving for number in self.formed.members)
        return self.formed.up and self.formed.broken is None and stays and not self._stopping

    def _move(self, decision: "Decision | None") -> None:
        """Have parts go to other workers from the next boundary on."""
        if decision is not None:
            held = {**self.formed.holders, **{move.part: move.target for move in decision.moves}}
            deal = [self.formed.members.index(held[part]) for part in sorted(held)]
            self._form(self.formed.members, decision.told, [], deal=deal, moved=asdict(decision))

    def _form(
        self, members: list[int], why: str, breaks: list[int], *, deal: list[int] | None = None, **told: Any
    ) -> None:
        from weft.comm.elastic.generation import Generation, dealt, write_generation

        number = self.formed.number + 1
        deal = dealt(self.size.parts, members, self.formed.holders) if deal is None else deal
        generation = Generation(number, members, deal, why, breaks, **told)
        runs = self.formed if self.formed.up else self.before
        self.before = _Formed() if self._torn(runs) else runs
        holders = {part: members[place] for part, place in enumerate(deal)}
        self.formed = _Formed(number, members, holders)
        write_generation(self.store, generation)
        if number > 1:
            self.say(f"weft: generation {number}: workers {', '.join(map(str, members))} ({why})")

    def _mend(self, members: list[int]) -> int | None:
        """See how far the latest generation is; form it anew where its workers live but lost each other."""
        formed = self.formed
        if not formed.up and formed.number:
            formed.up = self._all_said("up")
            self.before = _Formed() if formed.up else self.before
        if formed.broken is None and self._any_said("broken"):
            formed.broken = time.monotonic()
        settled = formed.broken is not None and time.monotonic() - formed.broken > _SETTLE
        if settled and len(members) >= self.size.least:
            self.mended += 1
            if self.mended > _MENDS:
                self.say("weft: error: workers lose each other again and again, though all of them live")
                return WorkerLost.exit_code
            self._form(members, "workers lost each other", [formed.number])
        return None

    def _all_said(self, what: str) -> bool:
        return self.store.has(*self._words(what))

    def _any_said(self, what: str) -> bool:
        return any(self.store.has(word) for word in self._words(what))

    def _words(self, what: str) -> list[str]:
        return [f"{what}/{self.formed.number}/{number}" for number in self.formed.members]

    def _too_few(self) -> int | None:
        """End a run that has fewer workers than it may: those that are left save, where they can."""
        if self._stopping or not self.formed.up or self._torn(self.formed):
            saving = self._stopping and self.roster.alive() and not self._torn(self.formed)
            return None if saving else self._lost_too_many()
        self._stopping = time.monotonic()
        self.say(
            f"weft: fewer than {self.size.least} workers would be left; the run saves and ends; continue it "
            "with --resume"
        )
        self._post_stop()
        return None

    def _lost_too_many(self) -> int:
        self.say(
            f"weft: error: fewer than {self.size.least} workers are left; continue from the last checkpoint "
            "with --resume, or have lost workers replaced with --max-restarts K"
        )
        return WorkerLost.exit_code

    # The end

    def _post_stop(self) -> None:
        from weft.comm.elastic.generation import STOP as KEY

        self.store.set(KEY, "1")

    def _ask_to_stop(self) -> int | None:
        if not self._stopping:
            self._stopping = time.monotonic()
            self.say(
                "weft: interrupted; the workers finish their epoch and save; Ctrl-C again stops them at once"
            )
            self._post_stop()
        late = time.monotonic() - self._stopping > STOP
        return INTERRUPTED if late or self.signals.count > 1 or not self.formed.number else None

    def _finished(self) -> bool:
        return self.formed.up and self._all_said("finished")

    def _conclude(self) -> int:
        """Let all workers leave, and return how the run ended: the holder of the first part says."""
        from weft.comm.elastic.generation import END as KEY

        self.store.set(KEY, "1")
        first, began = self.roster[self.formed.holders[0]], time.monotonic()
        alive = self.roster.alive()
        while any(
            each.process.poll() is None and time.monotonic() - began < (_DRAW if each is first else _EXIT)
            for each in alive
        ):
            time.sleep(POLL)
        code = first.process.poll()
        told = self._record(first.number)
        if code is None:
            self.say(
                f"weft: error: worker {first.number}, which writes the end of the run, has not left within "
                f"{_DRAW:g} s and is ended; continue from the last checkpoint with --resume"
            )
        elif told is not None and code not in (0, INTERRUPTED):
            self._tell(told)
        if code not in (0, INTERRUPTED, 2):
            return WorkerLost.exit_code
        return WorkerLost.exit_code if code == INTERRUPTED and not self.signals.asked else int(code)
