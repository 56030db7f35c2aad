"""Long runs that are killed at random, and undisturbed ones: the same bits, nothing that grows or stays."""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.graphs import tiny
from benchmarks.measure import Study
from benchmarks.plot import small_plots
from weft.datasets import datasets
from weft.events import read_events

MINUTES = float(os.environ.get("WEFT_SOAK_MINUTES", "0.5" if tiny() else "5"))
PAUSE = 1.0
"""Seconds between two looks at the processes of a run."""
SHARE = 0.6
"""Of a kind's time, what the kills have; the undisturbed run then takes less for as many epochs."""
KILLS = max(2, min(8, round(MINUTES / 5)))
"""At least so many of each kind, however long starts take: without any, nothing is shown."""
EARLY = 0.3
"""How often a run may be killed while it starts; else it trains some epochs before."""
PATIENCE = 1800.0
STALL = "300"
"""Seconds of silence that runs bear: what is killed is seen by its end, and others may have the machine."""
LEAVING = 30.0
"""Seconds that processes have to notice that their launcher was killed."""
ENDS = {0, 3, 130, -signal.SIGKILL, -signal.SIGTERM}
"""How a run that is killed may end: SIGTERM by itself before Python answers to it."""
RARELY = ("train.eval_every=50", "train.checkpoint_every=50")
GRAPH = ("model.name=gat", "model.hidden=8", "model.heads=2")
BATCHES = ("strategy.batch_size=4", "train.eval_every=5", "train.checkpoint_every=5")
"""Small ones, of which an epoch has 60 steps: an hour is to have many."""
UNITS = {
    "memory": "MiB",
    "descriptors": "open files",
    "threads": "threads",
    "shared": "MiB shared",
    "disk": "MiB but for the log",
}


@dataclass(frozen=True)
class Kind:
    """One way to train: its workers, its settings, and whether workers come and go."""

    name: str
    workers: str
    settings: tuple[str, ...]
    elastic: bool = False


KINDS = (
    Kind("halo", "2", (*GRAPH, *RARELY, "strategy.name=halo", "model.dropout=0.5")),
    Kind(
        "sampled",
        "2",
        (*GRAPH, *BATCHES, "strategy.name=sampled", "strategy.fanout=[3,3]"),
    ),
    Kind(
        "records",
        "2",
        (
            *BATCHES,
            "strategy.name=records",
            "model.name=sage",
            "model.hidden=8",
        ),
    ),
    Kind("elastic", "1:3", (*GRAPH, *RARELY, "strategy.name=halo", "strategy.parts=3"), elastic=True),
)


@dataclass
class Seen:
    """What the processes of one run held, by minute."""

    minutes: list[float] = field(default_factory=list)
    amounts: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in UNITS})

    def growth(self, name: str) -> float:
        """Return by how much the last fifth of a run holds more than the second: the first fills caches."""
        values = self.amounts[name]
        if len(values) < 5:
            return 0.0
        fifths = self.fifths(name)
        return fifths[-1] - fifths[1]

    def fifths(self, name: str) -> list[float]:
        """Return the median of each fifth of a run: a leak is a line, a cache that fills a step."""
        values = self.amounts[name] or [0.0]
        ends = [round(each * len(values) / 5) for each in range(6)]
        return [statistics.median(values[a : max(b, a + 1)] or values) for a, b in pairwise(ends)]


def rows() -> Iterator[str]:
    """Give one line per kind: steps, kills, what grew, what was left."""
    began = time.monotonic()
    yield (
        "| kind | epochs | steps | killed or changed | bits | "
        + " | ".join(f"{name}, {UNITS[name]}: median, growth" for name in UNITS)
        + " | memory of each fifth | left behind |"
    )
    yield "|---" * (7 + len(UNITS)) + "|"
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in UNITS}
    total = 0
    with tempfile.TemporaryDirectory(prefix="weft-soak-") as made:
        folder = Path(made)
        _make_data(folder)
        for number, kind in enumerate(KINDS):
            share = (MINUTES * 60 - (time.monotonic() - began)) / (len(KINDS) - number)
            try:
                line, seen, steps = _soaked(kind, folder, max(20.0, share))
            except Exception as error:  # the other kinds are worth their time
                traceback.print_exc()
                yield (
                    f"| {kind.name} | **broke: {type(error).__name__}: {str(error).splitlines()[0]}** |"
                    + " |" * (5 + len(UNITS))
                )
                continue
            total += steps
            for name, values in seen.amounts.items():
                panels[name][kind.name] = list(zip(seen.minutes, values, strict=True))
            yield line
    minutes = (time.monotonic() - began) / 60
    yield ""
    yield f"{minutes:.0f} minutes, {total:,} steps; nothing was lost where all bits are the same."
    STUDY.files["soak.svg"] = small_plots(
        "Undisturbed runs while they train",
        {UNITS[name]: lines for name, lines in panels.items()},
        x="minutes",
    )


def _make_data(folder: Path) -> None:
    graph = datasets["community"](nodes=60 if tiny() else 400, classes=4, features=8)
    graph.save(folder / "graph")
    (folder / "tmp").mkdir()
    _ended(_weft(folder, "flatten", str(folder / "graph"), "--fanout=5,5", "--targets=train,val,test",
                 f"--out={folder / 'records'}", "--engine=duckdb"), {0})  # fmt: skip


def _soaked(kind: Kind, folder: Path, seconds: float) -> tuple[str, Seen, int]:
    """Return the line of a kind, what its undisturbed run held, and the steps of both runs."""
    calm, wild = folder / f"{kind.name}-calm", folder / f"{kind.name}-wild"
    kills = _disturbed(kind, folder, wild, time.monotonic() + seconds * SHARE)
    epochs = len(_losses(wild)) + 1
    for out in (wild, calm):
        seen = _undisturbed(kind, folder, out, epochs)
    same = _losses(calm) == _losses(wild) and _weights(calm) == _weights(wild)
    left = [*_strays(folder), *(path.name for path in _remains(folder, calm, wild))]
    steps = sum(event.get("batches", {}).get("steps", 1) for event in _epochs(calm))
    amounts = [
        f"{statistics.median(seen.amounts[name] or [0.0]):,.0f}, {seen.growth(name):+,.1f}" for name in UNITS
    ]
    told = "the same" if same else "**differ**"
    names = ", ".join(sorted(left)) or "nothing"
    fifths = ", ".join(f"{each:,.1f}" for each in seen.fifths("memory"))
    cells = [kind.name, f"{epochs:,}", f"{steps:,}", f"{kills}", told, *amounts, fifths, names]
    return f"| {' | '.join(cells)} |", seen, 2 * steps


def _disturbed(kind: Kind, folder: Path, out: Path, until: float) -> int:
    """Train until a moment, killed at random ones before; return how often."""
    draw, kills = random.Random(kind.name), 0
    longest = max(30.0, (until - time.monotonic()) / KILLS)
    while kills < KILLS or time.monotonic() < until:
        before, early = len(_losses(out)), draw.random() < EARLY
        with _training(kind, folder, out, 10**7) as run:
            while _sleeps(run, draw.uniform(2, longest)):
                began = len(_losses(out)) != before  # it has cut off what came after its checkpoint
                if began and kind.elastic and draw.random() < 0.8:
                    kills += _come_and_go(run, folder, out, draw)
                elif began or (early and before):
                    kills += 1
                    _kill(run, draw, () if kind.elastic else _children(run.pid))
                    break
            else:
                if not kind.elastic:
                    raise RuntimeError(f"it ended by itself with exit code {run.returncode}")
            _ended(run, ENDS)
    return kills


def _undisturbed(kind: Kind, folder: Path, out: Path, epochs: int) -> Seen:
    """Train to the end; return what the run held meanwhile."""
    seen, began = Seen(), time.monotonic()
    with _training(kind, folder, out, epochs) as run:
        while run.poll() is None and time.monotonic() - began < PATIENCE:
            if (seen.minutes or _losses(out)) and not _over(
                out
            ):  # before it starts, after it draws its report
                _look(seen, run.pid, out, (time.monotonic() - began) / 60)
            time.sleep(PAUSE)
        _ended(run, {0})
    return seen


def _sleeps(run: "subprocess.Popen[str]", seconds: float) -> bool:
    """Return whether a run still goes on after a while."""
    with suppress(subprocess.TimeoutExpired):
        run.wait(seconds)
    return run.poll() is None


def _kill(run: "subprocess.Popen[str]", draw: random.Random, workers: Sequence[int]) -> None:
    """Kill all processes of a run, or one rank whose loss ends it, or ask it to stop."""
    with suppress(ProcessLookupError):
        match draw.randrange(3):
            case 0:
                os.killpg(run.pid, signal.SIGKILL)
            case 1 if workers:
                os.kill(draw.choice(workers), signal.SIGKILL)
            case _:
                os.kill(run.pid, signal.SIGTERM)


def _come_and_go(run: "subprocess.Popen[str]", folder: Path, out: Path, draw: random.Random) -> bool:
    """Ask for another number of workers, or kill one; return whether that was done."""
    workers = _children(run.pid)
    if draw.random() < 0.5 and len(workers) > 1:
        with suppress(ProcessLookupError):
            os.kill(draw.choice(workers), signal.SIGKILL)
        return True
    return _weft(folder, "scale", str(out), str(draw.randint(1, 3))).wait(PATIENCE) == 0


@contextmanager
def _training(kind: Kind, folder: Path, out: Path, epochs: int) -> Iterator["subprocess.Popen[str]"]:
    data = folder / ("records" if kind.name == "records" else "graph")
    settings = [f"data.path={data}", f"train.epochs={epochs}", *kind.settings]
    resume = ["--resume"] if (out / "run.json").exists() else []
    words = [f"--workers={kind.workers}", f"--out={out}", *(f"--set={each}" for each in settings), *resume]
    run = _weft(folder, "train", *words)
    try:
        yield run
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def _weft(folder: Path, *words: str) -> "subprocess.Popen[str]":
    """Start the command, with a folder of its own for what is temporary."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder / "tmp"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),  # which torch makes as it is imported
        "WEFT_STALL": STALL,
    }
    told: Any = open(folder / "told.txt", "a", encoding="utf-8")  # noqa: SIM115
    with told:
        return subprocess.Popen(
            [sys.executable, "-m", "weft", *words],
            env=environment, stdout=told, stderr=told, text=True, start_new_session=True,
        )  # fmt: skip


def _ended(run: "subprocess.Popen[str]", codes: set[int]) -> None:
    """Wait for the end of a run, and refuse any other."""
    code = run.wait(PATIENCE)
    if code not in codes:
        words = list(map(str, run.args)) if isinstance(run.args, list) else []
        told = Path(next(word for word in words if word.startswith("--out="))[6:]).parent / "told.txt"
        last = told.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RuntimeError(f"exit code {code}, expected one of {sorted(codes)}; the last words:\n{last}")


def _over(out: Path) -> bool:
    """Return whether a run has trained its last epoch."""
    with (out / "events.jsonl").open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        return b'"event": "end"' in file.read()


def _look(seen: Seen, launcher: int, out: Path, minute: float) -> None:
    """Note what the processes of a run hold now."""
    found = dict.fromkeys(UNITS, 0.0)
    for pid in (launcher, *_children(launcher)):
        with suppress(OSError, KeyError):  # it has ended
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            found["memory"] += int(status["RssAnon"].split()[0]) / 1024
            found["shared"] += int(status["RssShmem"].split()[0]) / 1024
            found["threads"] += int(status["Threads"])
            found["descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
    for path in out.rglob("*"):
        with suppress(OSError):
            if path.name.startswith("events"):
                continue  # one line per epoch
            found["disk"] += path.stat().st_size / 2**20
    seen.minutes.append(minute)
    for name, value in found.items():
        seen.amounts[name].append(value)


def _remains(folder: Path, *runs: Path) -> Iterator[Path]:
    """Give what runs that ended well should not have left."""
    yield from (folder / "tmp").iterdir()
    for run in runs:
        yield from (path for path in run.rglob("*") if path.name.startswith(".") or "partial" in path.name)


def _strays(folder: Path) -> list[str]:
    """Return the processes that still have the folder for what is temporary, after the time to leave."""
    mark, deadline = f"TMPDIR={folder / 'tmp'}\0".encode(), time.monotonic() + LEAVING
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                found += [f"process {path.parent.name}"] if mark in path.read_bytes() else []
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(PAUSE)


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _losses(out: Path) -> list[str]:
    """Return the loss of every epoch, as it was written."""
    return [json.dumps(event["loss"]) for event in _epochs(out)]


def _epochs(out: Path) -> list[dict[str, Any]]:
    if not (out / "events.jsonl").exists():
        return []
    return [event for event in read_events(out) if event["event"] == "epoch"]


def _weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


STUDY = Study(
    "soak",
    "long runs that are killed at random: bits of undisturbed ones, and what grows",
    rows,
    note="Each kind trains for three fifths of its time while it is killed (all processes, one rank) or "
    "asked to stop at random moments and continued; workers of the elastic run are, besides, killed and "
    "scaled while it goes on. Another run then trains as many epochs undisturbed. Growth: the median of the "
    "last fifth of the undisturbed run less that of its second. Left behind: processes, temporary and "
    "half-written files. "
    "`make soak MINUTES=60`.",
)
CASES = [STUDY]
