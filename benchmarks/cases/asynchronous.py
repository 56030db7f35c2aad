"""Bounded asynchrony: epochs to the same accuracy, and how much of a straggler's delay is hidden."""

import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import weft
from benchmarks.graphs import real, tiny
from benchmarks.measure import Study
from weft.events import read_events
from weft.strategies.asynchronous import interval_steps
from weft.strategies.asynchronous.board import Board
from weft.strategies.pipeline.stage_model import Weights

GRAPHS = ("cora", "citeseer", "pubmed")
SEEDS = range(3)
INTERVALS = 8
WITHIN = 0.01
"""Below the accuracy that synchronous training reaches."""
LATE = 1 / 32
"""The chance of an interval to be late in an epoch."""
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("sync", {"form": "sync"}),
    ("deterministic, s = 1", {"form": "deterministic", "staleness": 1}),
    *((f"free, s = {s}", {"form": "free", "staleness": s}) for s in (0, 1)),
]
RATES = {0.003: 120, 0.01: 60, 0.03: 60}
"""How many epochs a form has to arrive, by learning rate."""


class LateBoard(Board):
    """A board whose intervals are late at random, each time as late as the bound allows.

    One that is late has begun its epoch, and goes on when no other can: no clock is in it, so that it is the
    same on every machine.
    """

    seed: ClassVar[int] = 0

    def enter(self, interval: int, epoch: int) -> tuple[int, Weights]:
        """Let all others go first, now and then."""
        begun = super().enter(interval, epoch)
        if self.choice.fresh and random.Random(f"{self.seed} {interval} {epoch}").random() < LATE:
            with self._changed:
                self._turns.wait(interval, (2**31, 0), lambda: True)
        return begun


@contextmanager
def _late_intervals(seed: int) -> Iterator[None]:
    """Have intervals of free runs be late."""
    LateBoard.seed = seed
    with patch.object(interval_steps, "Board", LateBoard):
        yield


def accuracy() -> Iterator[str]:
    """Give one row per rate and form: the median number of epochs to the accuracy, and of that by sync."""
    yield f"| lr | form | {' | '.join(GRAPHS)} |"
    yield f"|---|---|{'---|' * len(GRAPHS)}"
    for rate, epochs in RATES.items():
        sync = {name: [_curve(name, rate, seed, FORMS[0][1]) for seed in SEEDS] for name in GRAPHS}
        for form, options in FORMS:
            cells = [_cell(name, rate, sync[name], options) for name in GRAPHS]
            yield f"| {rate}, {epochs} epochs | {form} | {' | '.join(cells)} |"


def _cell(name: str, rate: float, sync: list[list[float]], options: dict[str, Any]) -> str:
    """Return the median number of epochs to the accuracy, and in brackets of that by sync."""
    targets = [max(curve) - WITHIN for curve in sync]
    base, found = statistics.median(map(_reached, sync, targets)), sync
    if options["form"] != "sync":
        found = [_curve(name, rate, seed, options, targets[seed]) for seed in SEEDS]
    middle = statistics.median(map(_reached, found, targets))
    return f"> {RATES[rate]}" if middle == math.inf else f"{middle:.0f} ({middle / base:.2f}×)"


def _reached(curve: list[float], target: float) -> float:
    """Return after how many epochs an accuracy was reached; infinity where it was not."""
    return next((epoch for epoch, value in enumerate(curve, 1) if value >= target), math.inf)


def _curve(name: str, rate: float, seed: int, options: dict[str, Any], target: float = 2.0) -> list[float]:
    """Return the validation accuracy after each epoch, up to the first that reaches a target."""
    found: list[float] = []
    cut = {} if options["form"] == "sync" else {"intervals": INTERVALS}

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            found.append(event["val"]["accuracy"])

    with _late_intervals(seed):
        weft.train(
            real(name, symmetrise=True, normalise_features=True),
            "gcn",
            strategy={"name": "asynchronous", **options, **cut},
            parts=1,
            hidden=64,
            lr=rate,
            weight_decay=5e-4,
            epochs=6 if tiny() else RATES[rate],
            seed=seed,
            restore_best=False,
            progress=note,
            stop=lambda: bool(found and found[-1] >= target),
        )
    return found


REQUIRED = 0.8
STILL = 0.4
"""The share of an epoch for which the straggler stands still, once in each."""
BLOCK, BLOCKS = 30, 6
"""Epochs in which nobody stops, and in which one does, by turns."""
SETTLING = 5
"""Epochs of a block that are left out: what was ahead or late before has to catch up."""


def straggler() -> Iterator[str]:
    """Give the seconds of an epoch with and without stops, by form; medians of the blocks of a run."""
    yield "| form | epoch, nobody stops | epoch, one stops | delay |"
    yield "|---|---|---|---|"
    every, lost = 0.0, 0.0
    for form in ("sync", "deterministic", "free"):
        base, slow = _epochs(form, every)
        delay, hidden = slow - base, ""
        if form == "sync":
            every, lost = base, delay
        elif not STILL * every / 2 <= lost <= 2 * STILL * every:
            hidden = ", says nothing: sync lost more or less than the stops took, the machine does other work"
        else:
            share = 1 - delay / lost
            hidden = f", {100 * share:.0f} % hidden (required ≥ {100 * REQUIRED:.0f} %)"
        yield f"| {form} | {base * 1e3:.0f} ms | {slow * 1e3:.0f} ms | {delay * 1e3:.0f} ms{hidden} |"


def _epochs(form: str, every: float) -> tuple[float, float]:
    """Return the seconds of an epoch by the clock where nobody stops, and where one does.

    It stops once in `every` so many seconds; 0: in each epoch, as long as those of the first block took.
    """
    nodes, block = (3_000, 10) if tiny() else (60_000, BLOCK)
    epochs = block * BLOCKS + 1
    settings = ["data.name=community", f"data.nodes={nodes}", "model.name=sage", "model.hidden=128"]
    settings += [f"train.epochs={epochs}", f"train.eval_every={epochs}", "strategy.name=asynchronous"]
    settings += [f"strategy.form={form}"] + ([] if form == "sync" else ["strategy.staleness=1"])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        # Of three parts the first worker has two, the straggler one: its own work leaves it room.
        command = [sys.executable, "-W", "ignore", "-m", "weft", "train", "--workers=2", "--parts=3"]
        command += [f"--out={out}", *(f"--set={setting}" for setting in settings)]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        started = subprocess.Popen(command, env=env, text=True, **quiet)
        with started as run, _stopped(run.pid, out, block, every):
            _, said = run.communicate(timeout=600)
        if run.returncode:
            raise RuntimeError(said)
        times = _times(out)
    took = [_block_seconds(times, number, block) for number in range(BLOCKS)]
    return statistics.median(took[0::2]), statistics.median(took[1::2])


def _times(out: Path) -> list[float]:
    """Return when each epoch ended so far."""
    if not (out / "events.jsonl").exists():
        return []
    return [event["time"] for event in read_events(out) if event["event"] == "epoch"]


def _block_seconds(times: list[float], number: int, block: int) -> float:
    """Return the mean of the epochs of a block, the first ones left out."""
    first, last = number * block + SETTLING, (number + 1) * block - 1
    return (times[last] - times[first]) / (last - first)


@contextmanager
def _stopped(launcher: int, out: Path, block: int, every: float) -> Iterator[None]:
    """Have the second worker stand still once in so many seconds, at a random time, in every other block."""
    over, clock = threading.Event(), random.Random(0)

    def stops() -> None:
        while len(_times(out)) < block:
            if over.wait(0.02):
                return
        worker = _worker(launcher)
        each = every or _block_seconds(_times(out), 0, block)
        room = (1 - STILL) * each
        with suppress(ProcessLookupError):
            while worker is not None and not over.is_set():
                if len(_times(out)) // block % 2 == 0:
                    over.wait(each)
                    continue
                before = clock.random() * room
                over.wait(before)
                os.kill(worker, signal.SIGSTOP)
                over.wait(STILL * each)
                os.kill(worker, signal.SIGCONT)
                over.wait(room - before)

    thread = threading.Thread(target=stops, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _worker(launcher: int) -> int | None:
    """Return the process of rank 1 that the launcher started."""
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text(encoding="utf-8").split():
        with suppress(OSError):
            if "RANK=1" in Path(f"/proc/{child}/environ").read_text(encoding="utf-8").split("\0"):
                return int(child)
    return None


CASES = [
    Study(
        "asynchronous_accuracy",
        f"epochs of GCN 2 x 64 to the validation accuracy of synchronous training less {WITHIN:.0%}",
        accuracy,
        note=f"Median of {len(SEEDS)} seeds; {INTERVALS} intervals in one process; in brackets: of sync. In "
        f"a free run each interval is late in one epoch of {1 / LATE:.0f}, as late as the bound allows. "
        "> N: the median did not arrive within N epochs.",
    ),
    Study(
        "asynchronous_straggler",
        "one of two workers is stopped for 0.4 of an epoch in each: SAGE 2 x 128 on 60,000 nodes, s = 1",
        straggler,
        note=f"The straggler has one part of three; seconds by the clock, evaluations left out. In each run "
        f"nobody stops for {BLOCK} epochs and one stops in {BLOCK}, by turns: medians of {BLOCKS // 2} each.",
    ),
]
