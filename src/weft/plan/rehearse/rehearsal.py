"""A recipe run for a few epochs on so many ranks, without arithmetic: what each sends, holds and does."""

import threading
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from weft.comm.group import Group
from weft.config import parameters
from weft.events import Event
from weft.graph.graph import Graph
from weft.layers.base import GraphInfo
from weft.plan.rehearse.course import Course, Stretch, note_draws, work_by_phase
from weft.plan.rehearse.fakes import empty_graph, empty_shard, empty_weights, fake_mode
from weft.plan.rehearse.stage import RehearsalStage
from weft.plan.rehearse.watch import OperatorWatch
from weft.plan.rehearse.work import CountedWork
from weft.strategies.base import strategies
from weft.strategies.local import LocalGraph
from weft.strategies.memory.held import tensors_in
from weft.tasks.base import Task, put_head
from weft.train.model import build_model, ready
from weft.train.resolve import Resolved
from weft.train.trainer import Place, Trainer
from weft.train.workers.placed import dealt_in, knows_deals
from weft.train.workers.run_parts import read_parts


@dataclass
class RankRehearsal:
    """What one rank did: its traffic and work by epoch, and the bytes it held."""

    epochs: list[Event] = field(default_factory=list)
    """Events of traffic, one an epoch; none of one rank alone."""
    work: list[dict[str, CountedWork]] = field(default_factory=list)
    """By phase, one an epoch."""
    courses: list[list[Stretch]] = field(default_factory=list)
    """What it did one after the other, one an epoch."""
    held: int = 0
    """Bytes of the graph and the model."""
    peak: int = 0
    """The most bytes of tensors at one time, those included."""
    num_nodes: int = 0
    num_edges: int = 0
    steps: int = 1
    """Steps of an epoch."""


def rehearse(
    resolved: Resolved, source: Graph | LocalGraph | Path, *, workers: int, epochs: int = 2
) -> list[RankRehearsal]:
    """Return what each rank of a run would do; `source` is the graph as it is trained on, or its parts."""
    settings = replace(resolved.settings, epochs=epochs, checkpoint_every=None)
    # Batches are made where they are used: threads beside would not be counted, and draw the same.
    kind, options = strategies[resolved.strategy], dict(resolved.strategy_options)
    if "prepare" in parameters(kind):
        options["prepare"] = 0
    resolved = replace(resolved, settings=settings, strategy_options=options)
    stage = RehearsalStage(workers)
    found: list[RankRehearsal | None] = [None] * workers

    def play(rank: int) -> None:
        try:
            found[rank] = _play(resolved, source, stage.group(rank), stage.courses[rank])
        except BaseException as error:
            stage.fail(error)

    if workers == 1:
        play(0)
    else:
        threads = [threading.Thread(target=play, args=(rank,), daemon=True) for rank in range(workers)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as error:  # a signal: ranks that wait for others need not wait on
            stage.fail(error)
            raise
    if stage.failure is not None:
        raise stage.failure
    return [each for each in found if each is not None]


def _play(
    resolved: Resolved, source: Graph | LocalGraph | Path, group: Group, course: Course
) -> RankRehearsal:
    told, mode, settings = RankRehearsal(), fake_mode(), resolved.settings
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    graph = _held(source, group, dtype, mode, **_dealt(resolved, source, group.size))
    told.num_nodes, told.num_edges = graph.num_nodes, graph.num_edges
    task = resolved.make_task(graph)
    if isinstance(source, Path):
        task.read(source)
    model = _weightless(resolved, graph, task, mode, dtype)
    watch = OperatorWatch()
    course.take = watch.take
    for tensor in (*tensors_in(graph), *model.parameters(), *model.buffers()):
        watch.hold(tensor)
    told.held = watch.held

    def hear(event: Event) -> None:
        if event["event"] == "phase":
            course.end_phase(event["name"], event["start"])
        elif event["event"] == "epoch":
            told.courses.append(course.take_epoch())
            if strategies[resolved.strategy].in_batches:
                note_draws(told.courses[-1])
            told.work.append(work_by_phase(told.courses[-1]))
        elif event["event"] == "traffic":
            told.epochs.append(event)

    kind = cast(Any, strategies[resolved.strategy])
    dealt = _dealt(resolved, source, group.size)
    make = partial(kind, group=group, **resolved.strategy_options, **dealt)
    with watch:
        place = Place(progress=hear)
        trainer = Trainer(graph, model, settings, kind=make, place=place, task=task, own=resolved.own)
        course.now = trainer.events.now
        course.take_epoch()  # what was done to set up
        trainer.fit()
    told.steps = len(trainer.strategy.batching)
    trainer.strategy.close()
    told.peak = watch.peak
    return told


def _weightless(
    resolved: Resolved, graph: Graph | LocalGraph, task: Task, mode: FakeTensorMode, dtype: torch.dtype
) -> nn.Module:
    """Return the model of a run, with weights that have no values."""
    assert isinstance(resolved.model, str), "models of your own are not rehearsed"
    model = build_model(graph, resolved.model, resolved.options, task=task, seed=resolved.settings.seed)
    put_head(task, model, GraphInfo.of(graph), seed=resolved.settings.seed)
    return empty_weights(ready(model, device=torch.device("cpu"), dtype=dtype), mode)


def _dealt(resolved: Resolved, source: Graph | LocalGraph | Path, workers: int) -> dict[str, list[int]]:
    """Return who holds each part, where a file beside the parts says so."""
    asked = isinstance(source, Path) and workers > 1 and knows_deals(resolved)
    deal = dealt_in(source, workers) if isinstance(source, Path) and asked else None
    return {} if deal is None else {"part_rank": deal}


def _held(
    source: Graph | LocalGraph | Path,
    group: Group,
    dtype: torch.dtype,
    mode: FakeTensorMode,
    part_rank: list[int] | None = None,
) -> Graph | LocalGraph:
    """Return what a rank holds of the graph, with features that have no values."""
    held: Any = source
    given: dict[str, Any]
    if isinstance(source, Path):
        given = {"rank": group.rank, "workers": group.size, "dtype": dtype, "part_rank": part_rank}
        held, _ = read_parts(source, **given)
    if hasattr(held, "shard"):
        return LocalGraph(empty_shard(held.shard, mode), facts=held.facts)
    return empty_graph(held.to(dtype=dtype), mode)
