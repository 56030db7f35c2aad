"""Starts the ranks of a run on this machine, watches them, and ends them together: `weft train --workers N`.

The launcher serves the store, so losing rank 0 is not losing the store, and it sees how every rank ends. A
rank that fails leaves a record; the launcher shows the first cause once, with its rank, and ends the others.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from weft import machine
from weft.comm.failure import (
    FOLDER_PREFIX,
    INTERRUPTED,
    STALL,
    Failure,
    OutOfMemory,
    describe_exit,
    first_cause,
    seconds,
)
from weft.comm.open_files import expect_open_files
from weft.comm.output import RankOutput
from weft.comm.run_store import TOKEN, RunStore, new_token
from weft.comm.scratch import scratch
from weft.errors import InputError, WorkerLost
from weft.process import environment, set_by_user

ADDRESS = "127.0.0.1"
POLL = 0.05
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL, after a failure or a second Ctrl-C."""
STOP = 600.0
"""Seconds that the ranks have after the first Ctrl-C to finish their epoch and save."""
_SETTLE = 1.0  # ranks that fail together leave their records within this time
_CAUSE = 6.0  # survivors may end before the guilty rank does: so long they are not taken for the cause


def run_workers(
    command: Sequence[str],
    workers: int,
    *,
    max_restarts: int = 0,
    env: Mapping[str, str] | None = None,
    stall: float | None = None,
    began: float | None = None,
    tick: Callable[[], None] = lambda: None,
    say: Callable[[str], None] | None = None,
) -> int:
    """Run a command as `workers` ranks and return the exit code of the run.

    0 when all ranks ended well, 2 for the user's mistake, 3 when a rank was lost, 130 when interrupted. A
    lost run is started again up to `max_restarts` times with WEFT_ATTEMPT raised; it is up to the command to
    continue from its last checkpoint. `began` is when the user began to wait for it, by default now. `tick`
    is called every now and then meanwhile, `say` with what there is to tell, by default on standard error.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    stall = seconds("WEFT_STALL", STALL) if stall is None else stall
    expect_open_files(workers)
    with (
        # The socket is bound before the store runs: ranks can start while this process still loads torch.
        listening(ADDRESS) as listener,
        scratch(FOLDER_PREFIX) as folder,
        counted_signals() as signals,
    ):
        launch = _Launch(list(command), workers, env or {}, folder, listener, signals, stall)
        launch.began = time.time() if began is None else began
        launch.tick, launch.say = tick, say or tell_user
        try:
            return launch.run(max_restarts)
        finally:
            launch.close()


def listening(address: str) -> socket.socket:
    """Return a socket that listens on an address of this machine."""
    try:
        family = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, 0), family=family, backlog=1024)
    except OSError as error:
        raise InputError(
            f"{address}: no address of this machine that can be listened on ({error.strerror})"
        ) from None


class _Launch:
    def __init__(
        self,
        command: list[str],
        workers: int,
        env: Mapping[str, str],
        folder: Path,
        listener: socket.socket,
        signals: "Signals",
        stall: float,
    ) -> None:
        self.command, self.workers, self.env = command, workers, env
        self.folder, self.listener, self.signals = folder, listener, signals
        self.stall = stall
        self.port = listener.getsockname()[1]
        self.store: RunStore | None = None
        self.token = new_token()
        self.attempt = 0
        self.began = time.time()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.memory = OutOfMemory()
        self.outputs: list[RankOutput] = []
        self.tick: Callable[[], None] = lambda: None
        self.say: Callable[[str], None] = tell_user

    def run(self, max_restarts: int) -> int:
        """Run up to 1 + max_restarts attempts."""
        while True:
            code = self._attempt()
            if code != WorkerLost.exit_code or self.attempt >= max_restarts or self.signals.asked:
                return code
            self.attempt += 1
            self.began = time.time()  # the checkpoint knows how long it took before
            self.say(f"weft: starting again from the last checkpoint ({self.attempt} of {max_restarts})")

    def close(self) -> None:
        """Leave nothing behind."""
        self._end(kill=True)
        self.store = None

    def _attempt(self) -> int:
        self.records = self.folder / f"attempt{self.attempt}"
        self.records.mkdir()
        try:
            self._start()
            ended = self._watch()
            if self.signals.asked:
                self._stop()
                return INTERRUPTED
            if ended is None:
                for output in self.outputs:
                    output.finish(show=True)
                return 0
            if self.processes[ended].returncode == INTERRUPTED:
                self.say("weft: interrupted: a worker was asked to stop, and the others with it")
                return INTERRUPTED
            failures = self._failures()
            cause = self._judge(failures)
            self._stacks(cause)
            self._tell(cause, failures)
            return _exit_code(failures)
        finally:
            self._end()

    # Starting

    def _start(self) -> None:
        self.processes, self.outputs, self.memory = [], [], OutOfMemory()
        for rank in range(self.workers):
            # Rank 0 keeps the terminal: its progress bar, and the one object that --json prints.
            pipes = {} if rank == 0 else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(
                self.command,
                env={**os.environ, **self._defaults(), **self.env, **self._place(rank)},
                stdin=subprocess.DEVNULL,
                **pipes,  # type: ignore[call-overload]
            )
            self.processes.append(process)
            if process.stdout is not None:
                self.outputs.append(RankOutput(rank, process.stdout))
        if self.workers > 1 and self.store is None:
            from weft.comm.rendezvous import host_store

            self.store = RunStore(host_store(self.listener, ADDRESS, timeout=self.stall), self.token)

    def _defaults(self) -> dict[str, str]:
        """Return the environment of ranks where the user has not set it."""
        chosen = {
            **environment(),
            "OMP_NUM_THREADS": str(max(1, machine.usable_cores() // self.workers)),
            # A lost store is told in one line; c10d would add the stack of its own socket as a warning.
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        return {name: value for name, value in chosen.items() if not set_by_user(name)}

    def _place(self, rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.workers),
            "LOCAL_WORLD_SIZE": str(self.workers),
            "MASTER_ADDR": ADDRESS,
            "MASTER_PORT": str(self.port),
            "GLOO_SOCKET_IFNAME": "lo",
            "WEFT_ATTEMPT": str(self.attempt),
            "WEFT_LAUNCHER": str(os.getpid()),
            "WEFT_BEGAN": f"{self.began:.3f}",
            "WEFT_FAILURES": str(self.records),
            "WEFT_STALL": f"{self.stall:g}",
            TOKEN: self.token,
        }

    # Watching

    def _watch(self) -> int | None:
        """Return the first rank that did not end well, None when all did; also returns on Ctrl-C.

        A rank that was asked to stop, as a scheduler may do, has the others stop with it: that is no failure
        while none of them fails.
        """
        beats = _Beats(self.store, self.attempt, self.workers, self.stall)
        while not self.signals.asked:
            codes = [process.poll() for process in self.processes]
            for rank, code in enumerate(codes):
                if code and code != INTERRUPTED:
                    return rank
            if None not in codes:
                return codes.index(INTERRUPTED) if INTERRUPTED in codes else None
            stalled = beats.look()
            if stalled is not None:
                self._record(Failure(stalled, "stalled", f"stalled: no heartbeat for {self.stall:g} s"))
                return stalled
            for output in self.outputs:
                output.turn()
            self.tick()
            time.sleep(POLL)
        return None

    def _failures(self) -> list[Failure]:
        """Return what is known of the failure, after the time that ranks need to say it."""
        began = time.monotonic()
        while True:
            for output in self.outputs:
                output.quiet = True
            known = self._known()
            waited = time.monotonic() - began
            guilty = any(failure.kind != "lost" for failure in known)
            if (guilty and waited > _SETTLE) or waited > _CAUSE or self._all_ended():
                return known
            time.sleep(POLL)

    def _known(self) -> list[Failure]:
        """Return the records of ranks, and of each rank that ended without one what its exit code says."""
        known = []
        for path in sorted(self.records.glob("*.json")):
            with suppress(ValueError, TypeError):
                known.append(Failure.from_json(path.read_text(encoding="utf-8")))
        told = {path.stem for path in self.records.glob("*.json")}
        for rank, process in enumerate(self.processes):
            code = process.poll()
            if code and str(rank) not in told:
                failure = Failure(rank, "died", describe_exit(code, self.memory))
                self._record(failure, f"{rank}.json")
                known.append(failure)
        return known

    def _record(self, failure: Failure, name: str = "launcher.json") -> None:
        """Keep a failure that the launcher found, and tell the ranks that still run."""
        (self.records / name).write_text(failure.to_json(), encoding="utf-8")
        if self.store is not None:
            from weft.comm.heartbeat import post_failure

            with suppress(RuntimeError):
                post_failure(self.store.within(f"attempt{self.attempt}"), failure)

    def _all_ended(self) -> bool:
        return all(process.poll() is not None for process in self.processes)

    # Telling

    def _judge(self, failures: list[Failure]) -> Failure:
        cause = first_cause(failures)
        return cause if cause is not None else Failure(-1, "lost", "a worker was lost")

    def _stacks(self, cause: Failure) -> None:
        """Ask a stalled rank where it stands: the others have written their stacks themselves."""
        if cause.kind != "stalled" or not (self.records / f"{cause.rank}.stacks").exists():
            return
        process = self.processes[cause.rank]
        if process.poll() is None:
            process.send_signal(signal.SIGUSR2)
            process.send_signal(signal.SIGCONT)  # a stopped process takes no other signal
            time.sleep(0.3)
            process.kill()

    def _tell(self, cause: Failure, failures: list[Failure]) -> None:
        if cause.kind == "refused":
            same = all(failure.message == cause.message for failure in failures if failure.kind == "refused")
            alone = sum(failure.kind == "refused" for failure in failures) == 1
            self.say(f"weft: error: {cause.message if same and not alone else cause.told}")
            return
        if cause.traceback:
            self.say(f"weft: rank {cause.rank} of {self.workers} raised:\n{cause.traceback.rstrip()}")
        for output in self.outputs:
            output.finish(show=output.rank == cause.rank and not cause.traceback)
        for path in sorted(self.records.glob("*.stacks")) if cause.kind == "stalled" else ():
            text = path.read_text(encoding="utf-8", errors="replace").rstrip()
            if text:
                self.say(f"weft: stacks of rank {path.stem}:\n{text}")
        self.say(f"weft: error: {cause.told}; all {self.workers} workers were ended")

    # Ending

    def _stop(self) -> None:
        """Ask the ranks to stop, and wait until they did, until one failed, or until a second signal."""
        self.say(
            "weft: interrupted; the workers finish their epoch and save; Ctrl-C again stops them at once"
        )
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + STOP
        while self.signals.count == 1 and not self._all_ended() and time.monotonic() < deadline:
            if any(process.poll() not in (None, 0, INTERRUPTED) for process in self.processes):
                break
            for output in self.outputs:
                output.turn()
            self.tick()
            time.sleep(POLL)
        failed = [failure for failure in self._known() if failure.kind in ("raised", "refused")]
        cause = first_cause(failure for failure in failed if failure.exit_code != INTERRUPTED)
        if cause is not None:
            self.say(f"weft: error: {cause.told}")

    def _end(self, *, kill: bool = False) -> None:
        """End every rank that still runs: SIGTERM, after a while SIGKILL, always by id."""
        running = [process for process in self.processes if process.poll() is None]
        for process in running:
            if kill:
                process.kill()
            else:
                process.terminate()
        deadline = time.monotonic() + GRACE
        while any(process.poll() is None for process in running):
            if time.monotonic() > deadline or self.signals.count > 1:
                for process in running:
                    process.kill()
            time.sleep(POLL)
        for output in self.outputs:
            output.finish(show=False)


class _Beats:
    """The heartbeats as the launcher sees them: it must notice when every rank was stopped."""

    def __init__(self, store: RunStore | None, attempt: int, workers: int, stall: float) -> None:
        self.watch = None
        # Ranks come first: they name the stalled one and write their stacks.
        self.stall = stall + 3.0
        self.due = 0.0
        if store is not None:
            from weft.comm.heartbeat import Watch

            self.watch = Watch(store.within(f"attempt{attempt}"), list(range(workers)))

    def look(self) -> int | None:
        """Return a rank that is silent for too long; reads once a second."""
        if self.watch is None or time.monotonic() < self.due:
            return None
        self.due = time.monotonic() + 1.0
        self.watch.look()
        return next(iter(self.watch.silent(self.stall)), None)


class Signals:
    """Ctrl-C and SIGTERM, counted: the first has the workers stop in order, the second at once."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def asked(self) -> bool:
        return self.count > 0

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def counted_signals() -> Iterator[Signals]:
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals  # only the main thread may set handlers
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signals.receive) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_code(failures: list[Failure]) -> int:
    """Return 2 when every rank that failed by itself says that it is the user's mistake, else 3."""
    own = [failure for failure in failures if failure.kind != "lost"]
    return InputError.exit_code if own and all(f.kind == "refused" for f in own) else WorkerLost.exit_code


def tell_user(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
