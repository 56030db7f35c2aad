"""Runs with workers that come and go: the coordinator in a thread, workers forked with torch loaded."""

import multiprocessing as mp
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ranks  # noqa: F401
from run_watch import came_to, events, until

from weft.comm.elastic.coordinator import run_elastic
from weft.comm.elastic.growth import Grower
from weft.comm.elastic.member import Member
from weft.comm.elastic.start import Size
from weft.comm.failure import INTERRUPTED, guarded
from weft.config import make_recipe
from weft.events import Event
from weft.train.resolve import resolve
from weft.train.trainer import Place
from weft.train.workers.elastic import serve
from weft.train.workers.worker import prepare

__all__ = ["Elastic", "came_to", "recipe"]

# The server that `ranks` has load torch.
_CONTEXT = mp.get_context("forkserver")
PARTS = 4
PATIENCE = 120.0


def recipe(epochs: int, strategy: Mapping[str, Any] | None = None, nodes: int = 80) -> dict[str, Any]:
    return {
        "data": {"name": "community", "nodes": nodes, "classes": 3, "features": 8},
        "model": {"name": "sage", "hidden": 4, "dropout": 0.3},
        "strategy": {"name": "halo", "partitioner": "hash", "parts": PARTS, **(strategy or {})},
        "train": {"epochs": epochs, "seed": 3, "checkpoint_every": 1000},
    }


def worker(env: dict[str, str], sections: dict[str, Any], out: str, span: str, resume: bool) -> None:
    """What a worker does, as `weft train --workers 2:4` has it."""
    os.environ.clear()
    os.environ |= {**env, "WEFT_LAUNCHER": str(os.getppid())}

    def run() -> int:
        resolved = resolve(make_recipe(sections), workers=PARTS)
        watch = partial(hold, out=Path(out))
        place = Place(out=Path(out), resume=resume, progress=watch, returns_model=False)
        with Member().present() as member:
            summary = serve(resolved, place, member, span)
        return INTERRUPTED if summary is not None and summary.stopped == "interrupted" else 0

    os._exit(guarded(run))


def hold(event: Event, out: Path) -> None:
    """Stand still at the end of an epoch until the test has the run go on; a boundary follows."""
    deadline = time.monotonic() + PATIENCE
    while event["event"] == "epoch" and time.monotonic() < deadline:
        if event["epoch"] < int((out / "gate").read_text() or 0):
            return
        time.sleep(0.005)


class Forked:
    """A worker's process, as the coordinator has them."""

    placed, machine_lost = True, False

    def __init__(self, process: Any) -> None:
        self.process, self.pid = process, process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> int:
        self.process.join()
        return self.process.exitcode


class Elastic:
    """A run that goes on in a thread of this process; use as a context."""

    def __init__(
        self,
        out: Path,
        sections: dict[str, Any],
        least: int = 2,
        *,
        first: int | None = None,
        most: int = PARTS,
        gate: int = 10**6,
        stall: float = 15.0,
        restarts: int = 0,
        resume: bool = False,
        moves: Path | None = None,
        every: int | None = None,
    ) -> None:
        self.moves = moves
        self.out, self.sections = out, sections
        self.size = Size(least, most, PARTS)
        self.grower = None if every is None else Grower(self.size, every, out.with_suffix(".growth"))
        self.gate, self.restarts, self.resume = gate, restarts, resume
        self.workers: list[Forked] = []
        self.wanted = first
        self.said: list[str] = []
        self.code: int | None = None
        self.stall = stall
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Elastic":
        prepare(make_recipe(self.sections), self.out, workers=PARTS)
        self.go_on(self.gate)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.workers:
            if each.poll() is None:
                each.kill()

    def _run(self) -> None:
        env = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "WEFT_STALL": f"{self.stall:g}"}
        env["WEFT_TIMEOUT"] = "60"
        os.environ["WEFT_STALL"] = f"{self.stall:g}"
        try:
            self.code = run_elastic(
                [],
                self.size,
                env=env,
                wanted=self._take_wanted,
                max_restarts=self.restarts,
                moves=self.moves,
                grower=self.grower,
                say=self.said.append,
                spawn=self._spawn,
            )
        finally:
            del os.environ["WEFT_STALL"]

    def _take_wanted(self) -> int | None:
        taken, self.wanted = self.wanted, None
        return taken

    def _spawn(self, env: dict[str, str]) -> Forked:
        span = f"{self.size.least}:{self.size.most}"
        given = ({**os.environ, **env}, self.sections, str(self.out), span, self.resume)
        process = _CONTEXT.Process(target=worker, args=given, daemon=True)
        process.start()
        self.workers.append(Forked(process))
        return self.workers[-1]

    def signal(self, number: int, which: signal.Signals) -> None:
        os.kill(self.workers[number].pid, which)

    def until(self, condition: Callable[[], bool]) -> None:
        until(
            condition,
            running=self._thread.is_alive,
            told=lambda: (self.code, self.said, self.generations()),
            patience=PATIENCE,
            pause=0.005,
        )

    def go_on(self, epoch: int) -> None:
        """Let the run come to the end of an epoch, and stand still there."""
        part = self.out / "gate.part"
        part.write_text(str(epoch))
        part.replace(self.out / "gate")

    def announced(self, number: int) -> None:
        """Wait until workers know of a generation."""
        self.until(lambda: any(f"generation {number}:" in text for text in self.said))
        time.sleep(0.3)  # they look every twentieth of a second

    def after_epoch(self, epoch: int) -> None:
        self.until(lambda: any(event["epoch"] >= epoch for event in self.epochs()))

    def members(self, *workers: int) -> None:
        """Wait until just these train."""
        self.until(lambda: bool(held := self.generations()) and held[-1]["workers"] == list(workers))

    def end(self) -> int:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), (self.said, self.generations())
        assert self.code is not None, self.said
        assert all(each.poll() is not None for each in self.workers)
        return self.code

    def epochs(self) -> list[Event]:
        return events(self.out, "epoch")

    def generations(self) -> list[Event]:
        return events(self.out, "generation")
