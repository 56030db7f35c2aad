"""Trial runs: small trainings of a few models, in processes as those of a run, beside their counted work."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from weft.comm.launch import run_workers
from weft.config import Recipe
from weft.errors import WorkerLost
from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures
from weft.plan.measure.fit import Observation
from weft.plan.proof.measured import EVALUATION, MeasuredRun, training_waits
from weft.plan.rehearse.course import BETWEEN, WAIT
from weft.plan.rehearse.rehearsal import RankRehearsal, rehearse
from weft.plan.rehearse.work import CountedWork
from weft.strategies.strategy_cost import Preparing, cost_of
from weft.tasks.base import Task
from weft.train.model import adapt
from weft.train.resolve import Resolved, resolve
from weft.train.workers.run_parts import prepare_parts

_EPOCHS = 12
LIMIT = 120.0
"""Seconds that a process of trials may be silent for."""
_GAT = {"name": "gat", "hidden": 8, "heads": 4}
_SAGE = {"name": "sage", "hidden": 32}
_CUT = {"partitioner": "hash"}
_BATCHES = {"name": "sampled", "batch_size": 1024, "fanout": [5, 5], **_CUT}
_MIDDLE = {"data": {"nodes": 4000, "features": 64}, "model": _SAGE}
# Rates are told apart where graphs differ: tiny ones, whose operators take nothing but their call; few edges
# a node and many; rows that are wide, and rows of which little is there.
ALONE: tuple[dict[str, Any], ...] = (
    {"data": {"nodes": 60, "features": 16}, "model": {"name": "gcn"}},
    {"data": {"nodes": 60, "features": 16}, "model": _GAT},
    {"data": {"nodes": 2000, "features": 32, "degree": 80.0}, "model": _SAGE},
    {"data": {"nodes": 2000, "features": 32, "degree": 80.0}, "model": _GAT},
    {"data": {"nodes": 8000, "features": 128, "degree": 3.0}, "model": {"name": "gcn"}},
    {"data": {"nodes": 8000, "features": 64, "degree": 30.0}, "model": {"name": "gcn"}},
    {"data": {"nodes": 20_000, "features": 64}, "model": _SAGE},
    {"data": {"nodes": 20_000, "features": 64}, "model": _GAT},
    {"data": {"nodes": 4000, "features": 800}, "model": {"name": "gcn"}, "filled": 0.04},
    # More than any cache holds, in few epochs; numbers of half the bytes; batches.
    {"data": {"nodes": 150_000, "features": 128, "degree": 6.0}, "model": _SAGE, "epochs": 4},
    {"data": {"nodes": 8000, "features": 64}, "model": _SAGE, "train": {"precision": "bfloat16"}},
    {"data": {"nodes": 6000, "features": 32}, "model": _SAGE, "strategy": _BATCHES},
)
# Of workers together: calls, which are all of what the small ones wait for, and work beside that of others.
TOGETHER: tuple[dict[str, Any], ...] = (
    {"data": {"nodes": 60, "features": 16}, "model": {"name": "gcn"}},
    {"data": {"nodes": 60, "features": 16}, "model": _GAT},
    {"data": {"nodes": 2000, "features": 32}, "model": _SAGE},
    {"data": {"nodes": 4000, "features": 64}, "model": _GAT},
    {"data": {"nodes": 20_000, "features": 64}, "model": _SAGE},
    # Each kind of calls: many small ones of a batch, merges, stages, codes.
    {**_MIDDLE, "strategy": _BATCHES, "kind": "sampled"},
    {**_MIDDLE, "strategy": {"name": "vertex_cut"}, "kind": "vertex_cut"},
    {**_MIDDLE, "strategy": {"name": "staged", **_CUT}, "kind": "staged"},
    {**_MIDDLE, "strategy": {"name": "halo", "exchange": "quantised", **_CUT}, "kind": "halo, quantised"},
)


@dataclass(frozen=True)
class RehearsedTrial:
    """A trial before it is run: what its processes are told, and what each of them will do."""

    told: Mapping[str, Any]
    ranks: Sequence[RankRehearsal]
    preparing: Preparing | None = None
    kind: str = ""


@dataclass(frozen=True)
class TrialRun:
    """A trial that was run."""

    ranks: Sequence[RankRehearsal]
    run: MeasuredRun
    preparing: Preparing | None = None
    """How batches are made beside what is timed, if they are."""
    kind: str = ""
    """Of its calls; empty: those of most runs."""

    def observations(self) -> Iterator[Observation]:
        """Give what was counted and the seconds it took: by phase alone, of all training among others."""
        for rank, working in zip(self.ranks, self.run.working):
            beside = (BETWEEN, WAIT) if self.preparing else (BETWEEN,)
            work = {name: held for name, held in rank.work[-1].items() if name not in beside}
            if len(self.ranks) == 1:
                for phase, seconds in self.run.phases.items():
                    if phase in work:
                        yield Observation(work[phase], seconds)
            else:
                total = CountedWork()
                for phase, held in work.items():
                    if phase != EVALUATION:
                        total.add(held)
                yield Observation(total, working)


def rehearsals(workers: int, folder: Path) -> list[RehearsedTrial]:
    """Return the trials of so many workers and what each will do; parts are written into a folder."""
    return [_rehearsed(each, workers, folder / str(n)) for n, each in enumerate(_of(workers))]


def run_trials(rehearsed: Sequence[RehearsedTrial], folder: Path, *, threads: int) -> list[TrialRun]:
    """Run trials in processes of so many threads, one after the other, and return what they took."""
    workers = len(rehearsed[0].ranks)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trials.json").write_text(json.dumps([dict(each.told) for each in rehearsed]), encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "weft.plan.measure.trial_worker", str(folder)]
    env = {"OMP_NUM_THREADS": str(threads), "WEFT_TIMEOUT": f"{LIMIT:g}", "WEFT_JOIN": f"{LIMIT:g}"}
    if run_workers(command, workers, env=env, say=lambda line: None, stall=LIMIT):
        raise WorkerLost(f"trial runs of {workers} worker{'s' if workers > 1 else ''} failed")
    return [
        TrialRun(each.ranks, _measured(folder, n, workers), each.preparing, each.kind)
        for n, each in enumerate(rehearsed)
    ]


def opened(resolved: Resolved, filled: float | None) -> tuple[Graph, Task]:
    """Return the graph of a trial of one process as it is trained on, and the task."""
    whole = _filled(resolved.open(), filled)
    task = resolved.make_task(whole)
    return adapt(task.prepared(whole), resolved.model, resolved.options, task), task


def _of(workers: int) -> Sequence[Mapping[str, Any]]:
    return ALONE if workers == 1 else TOGETHER


def _rehearsed(trial: Mapping[str, Any], workers: int, folder: Path) -> RehearsedTrial:
    data = {"name": "community", "degree": 10.0, **trial["data"]}
    strategy = trial.get("strategy", {"name": "halo", **_CUT}) if workers > 1 else _alone(trial)
    train = {"device": "cpu", "epochs": trial.get("epochs", _EPOCHS), **trial.get("train", {})}
    told = {"recipe": {"data": data, "model": trial["model"], "strategy": strategy, "train": train}}
    resolved = resolve(Recipe(**told["recipe"]), workers=workers)
    cost = cost_of(resolved.strategy)
    more = {"preparing": cost.preparing(strategy, workers), "kind": trial.get("kind", "")}
    if workers == 1:
        graph, _ = opened(resolved, trial.get("filled"))
        ranks = rehearse(resolved, graph, workers=1)
        return RehearsedTrial({**told, "filled": trial.get("filled")}, ranks, **more)
    parts = prepare_parts(resolved, folder, workers=workers)
    return RehearsedTrial({**told, "parts": str(parts)}, rehearse(resolved, parts, workers=workers), **more)


def _alone(trial: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the strategy of a trial of one process; batches are made where they are timed."""
    return {**trial["strategy"], "prepare": 0} if "strategy" in trial else {"name": "single"}


def _measured(folder: Path, number: int, workers: int) -> MeasuredRun:
    """Return what the processes of a trial left."""
    seconds: list[list[Mapping[str, float]]] = []
    waits: list[list[float]] = []
    for rank in range(workers):
        events = json.loads((folder / f"events-{number}-{rank}.json").read_text(encoding="utf-8"))
        seconds.append([each["seconds"] for each in events if each["event"] == "epoch"])
        held = [training_waits(each) for each in events if each["event"] == "traffic"]
        waits.append(held or [0.0] * len(seconds[-1]))
    return MeasuredRun([], seconds, waits, [])


def _filled(graph: Graph, share: float | None) -> Graph:
    """Return a graph of whose features only a share is there, as those of words in texts."""
    if share is None:
        return graph
    ((kind, held),) = graph.node_data.items()
    draws = torch.rand(held["x"].shape, generator=torch.Generator().manual_seed(0))
    dense = held["x"]
    assert isinstance(dense, torch.Tensor), "the features of communities"
    x = SparseFeatures.from_dense(torch.where(draws < share, dense, 0.0))
    return Graph(replace(graph.parts(), node_data={kind: {**held, "x": x}}))
