"""How long a plan takes of a graph of 10 M edges, and a simulation of one epoch of 10,000 workers."""

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import weft
from benchmarks.graphs import communities, tiny
from benchmarks.measure import Study, load_average
from benchmarks.partitions import workspace
from weft.plan.front import machine_here
from weft.plan.machine import Machine

NODES, EDGES, FEATURES, WORKERS = 500_000, 10_000_000, 64, 10_000
MODEL = {"name": "sage", "hidden": 64, "layers": 2}


def _seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    made = work()
    return time.perf_counter() - began, made


def planned() -> Iterator[str]:
    """Give a row a plan: how long it takes, beyond measuring the machine, and what it compared."""
    machine, share = machine_here(), 100 if tiny() else 1
    nodes, edges = NODES // share, EDGES // share
    yield "| plan | configurations | seconds | asked |"
    yield "|---|---|---|---|"
    known = {"nodes": nodes, "edges": edges, "features": FEATURES}
    for told, only in (("`single`", ("single",)), ("`single`, `halo`", ("single", "halo"))):
        recipe = {"model": MODEL, "strategy": {"partitioner": "hash"}}
        yield _row(f"of statistics, {told}", lambda: _plan(machine, recipe, only, **known))  # noqa: B023
    with workspace() as folder:
        communities(nodes, edges, features=FEATURES).save(folder / "graph")
        there = {**recipe, "data": {"path": str(folder / "graph")}}
        yield _row("of the graph, `single`", lambda: _plan(machine, there, ("single",), workers=(1,)))
        yield _row(
            "of the graph, `halo` on 2, by hash", lambda: _plan(machine, there, ("halo",), workers=(2,))
        )
    print(f"load of the machine at the end: {load_average():.1f}")


def _plan(machine: Machine, recipe: dict[str, Any], only: Collection[str], **more: Any) -> weft.plan.Plan:
    return weft.plan(recipe, machine=machine, only=only, **more)


def _row(told: str, work: Callable[[], weft.plan.Plan]) -> str:
    seconds, plan = _seconds(work)
    return f"| {told} | {len(plan.configurations)} | {seconds:.1f} | 2 |"


def simulated() -> Iterator[str]:
    """Give a row a strategy: how long an epoch of 10,000 workers takes to simulate, counting aside."""
    from weft.simulate.conditions import Conditions
    from weft.simulate.epochs import epoch
    from weft.simulate.loads import CountedLoads

    machine, count = machine_here(), 100 if tiny() else WORKERS
    recipe = {"data": {"name": "community", "nodes": 4_000, "degree": 20.0}, "model": MODEL}
    yield "| strategy, exchange | workers | counting, s | simulating, s | asked | events | epoch, s |"
    yield "|---|---|---|---|---|---|---|"
    told = Conditions()
    for name in ("halo", "sampled"):
        section = {**recipe, "strategy": {"name": name, "partitioner": "hash"}}
        counts = CountedLoads((2, 4, 8), lambda line: None)
        asked = weft.config.make_recipe(section, overrides=[])
        counting, loads = _seconds(lambda: counts.count(asked, (2, 4), (name,), ("exact",)))  # noqa: B023
        for load in loads:

            def played(load: Any = load) -> Any:
                local = 1 - load.work.law.cut_share(count)
                here, wires = told.machine(machine, count), told.wires(machine, count)
                return epoch(load.work.at(count, scale=count / 4), here, wires, local=local)

            seconds, made = _seconds(played)
            by = f", {load.candidate.exchange}" if load.candidate.exchange else ""
            yield (
                f"| {name}{by} | {count:,} | {counting:.1f} | {seconds:.1f} | 60 | {made.events:,} "
                f"| {made.seconds:.2f} |"
            )
    print(f"load of the machine at the end: {load_average():.1f}")


CASES = [
    Study(
        "plan_time",
        "Planning a graph of 10 M edges, beyond measuring the machine",
        planned,
        note="Of statistics two small graphs are rehearsed; of the graph it is read, cut and rehearsed.",
    ),
    Study(
        "simulate_time",
        "Simulating one epoch of 10,000 workers",
        simulated,
        note=(
            "Work is counted on 2 and 4 workers once, whatever is simulated; the graph grows with the "
            "workers. Simulating is an epoch played with 10 Gbit/s a worker."
        ),
    ),
]
