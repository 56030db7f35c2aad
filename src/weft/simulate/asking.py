"""From what the user says to answers: `weft.simulate(...)` in Python, `weft simulate` on the command line."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.config import Recipe
from weft.errors import InputError
from weft.plan.cluster import bytes_a_second, read_cluster
from weft.plan.front import machine_here, priced, recipe_of
from weft.plan.machine import Machine
from weft.plan.statistics import Statistics
from weft.simulate.answers import ElasticCost, FailureCost, SimulatedAnswers
from weft.simulate.conditions import Conditions
from weft.simulate.epochs import Unevenness
from weft.simulate.loads import CountedLoads
from weft.simulate.points import PointsAsked
from weft.simulate.scaling_law import PARTS
from weft.strategies.base import strategies

REHEARSED = (1, 2, 4, 8)
"""Numbers of workers that work and traffic are counted on."""
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
STANDS_FOR = 4_000
"""Nodes of the graph that stands for one of which only statistics are known."""


def simulate(
    recipe: Recipe | Mapping[str, Any] | str | Path | None = None,
    *,
    workers: Sequence[int] = WORKERS,
    cluster: str | Path | None = None,
    only: Collection[str] = ("single", "halo", "sampled"),
    exchanges: Collection[str] = (),
    bandwidth: Sequence[str] = ("10Gbit",),
    latency: float = 1e-4,
    stragglers: float = 0.0,
    slowdown: float = 2.0,
    jitter: float = 0.0,
    failures: float = 0.0,
    checkpoint_every: int | None = None,
    leaving: float = 0.0,
    away: float = 600.0,
    weak: bool = False,
    parts: Sequence[int] = PARTS,
    rehearse: Sequence[int] = REHEARSED,
    nodes: int | None = None,
    edges: int | None = None,
    degree: float | None = None,
    features: int | None = None,
    classes: int | None = None,
    seed: int = 0,
    machine: Machine | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> SimulatedAnswers:
    """Return how a recipe would run on `workers` that are not here.

    Work and traffic are counted on the numbers of workers in `rehearse`, by the code of the run; beyond, they
    follow how the cut grows, which is measured on `parts`. `only` names strategies, `exchanges` theirs (all).
    Links are those of `cluster`, or of `bandwidth` with a machine a worker; with several, all are compared.
    `stragglers` is the share of workers that take `slowdown` times as long, `failures` come so often an hour,
    and each worker leaves `leaving` times an hour and comes back after `away` seconds. `weak` has the graph
    grow with the workers.
    """
    _check(workers, rehearse, stragglers, slowdown, jitter, failures, leaving, away)
    for name in only:
        strategies[name]  # refused by name
    chosen, grown = recipe_of(recipe), 1.0
    known = Statistics.of(nodes, edges, degree, features, classes)
    if known is not None:
        grown = max(1.0, known.nodes / STANDS_FOR)
        chosen = known.recipe(replace(chosen, data={}), min(known.nodes, STANDS_FOR))
    speeds = {speed: bytes_a_second(speed, "--bandwidth") for speed in bandwidth}
    told = Conditions(
        None if cluster is None else read_cluster(cluster),
        next(iter(speeds.values())),
        latency,
        Unevenness(stragglers, slowdown, jitter, seed),
        failures,
        checkpoint_every or chosen.train.get("checkpoint_every") or 10,
        leaving,
        away,
        int(chosen.train.get("epochs", 100)),
    )
    here = priced(machine or machine_here(tell=tell), chosen)
    asked = PointsAsked(sorted(set(workers)), here, told, grown, seed, tell)
    for count in asked.workers:
        told.machine(here, count)  # a cluster with too few machines is refused before anything is counted
    counts = CountedLoads(parts, tell)
    loads = counts.count(chosen, rehearse, only, exchanges)
    if not loads:
        raise InputError(f"nothing to simulate: {counts.refused[0].why if counts.refused else 'no exchange'}")
    strong = asked.points(loads)
    lives = asked.lives(loads, strong)
    first = loads[0].work
    return SimulatedAnswers(
        {"num_nodes": round(first.num_nodes * grown), "num_edges": round(first.num_edges * grown)},
        {"workers_each": told.wires(here, 1).each, "bandwidth": list(speeds), "latency": latency},
        strong,
        asked.points(loads, weak=True) if weak else [],
        {name: asked.points(loads, speed) for name, speed in speeds.items()} if len(speeds) > 1 else {},
        [each for each in lives if isinstance(each, FailureCost)],
        [each for each in lives if isinstance(each, ElasticCost)],
        list(counts.laws.values()),
        [vars(each) for each in counts.refused],
    )


def _check(
    workers: Sequence[int],
    rehearse: Sequence[int],
    stragglers: float,
    slowdown: float,
    jitter: float,
    failures: float,
    leaving: float,
    away: float,
) -> None:
    if not workers or min(workers) < 1 or max(workers) > 10_000:
        raise InputError(f"--workers: expected 1 to 10000, got {', '.join(map(str, workers)) or 'none'}")
    if not rehearse or min(rehearse) < 1 or max(rehearse) > 64:
        raise InputError("--rehearse: expected numbers of workers from 1 to 64")
    if not 0 <= stragglers <= 1 or slowdown < 1:
        raise InputError("--stragglers: expected a share of 0 to 1, and a slowdown of at least 1, as 0.01:2")
    for name, value in (
        ("--jitter", jitter),
        ("--failures", failures),
        ("--leaving", leaving),
        ("--away", away),
    ):
        if value < 0:
            raise InputError(f"{name}: expected no less than 0, got {value:g}")
