"""A simulation beside the runs it stands for: 1, 2 and 4 ranks, in namespaces whose links `tbf` limits."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.graphs import communities, tiny
from benchmarks.measure import Study, load_average
from benchmarks.namespaces import MBIT, Network, missing
from benchmarks.partitions import workspace, write
from benchmarks.workers import Run, launch, median
from weft.config import make_recipe
from weft.machine import usable_cores
from weft.plan.front import machine_here
from weft.plan.wires import wires_apart
from weft.simulate.epochs import epoch
from weft.simulate.loads import CountedLoads

NODES, EDGES, FEATURES, HIDDEN = 50_000, 1_000_000, 64, 64
RATES = (1_000, 100)
EXCHANGES: tuple[dict[str, Any], ...] = (
    {"name": "exact"},
    {"name": "stale"},
    {"name": "quantised", "bits": 8},
    {"name": "sampled", "p": 0.1},
)


def rows() -> Iterator[str]:
    """Give one row per configuration: seconds of an epoch as simulated and as run, and how far off."""
    yield "| ranks | link, Mbit/s | exchange | simulated, s | run, s | off |"
    yield "|---|---|---|---|---|---|"
    shrink = 100 if tiny() else 1
    graph = communities(NODES, EDGES, classes=8, homophily=0.9, features=FEATURES)
    with workspace() as folder:
        graph.save(folder / "graph")
        told, seconds = alone(NODES // shrink), _alone_run(str(folder / "graph"))
    yield f"| 1 | – | – | {told:.3f} | {seconds:.3f} | {told / seconds - 1:+.0%} |"
    if why_not := missing():
        print(f"skipped: {why_not}")
        return
    with workspace() as folder:
        folders = {count: write(folder / str(count), graph, count, name="metis") for count in (2, 4)}
        for count, parts in folders.items():
            with Network(count) as network:
                for rate in RATES:
                    network.limit([rate] * count)
                    yield from _compared(network, parts, count, rate, NODES // shrink)
    print(f"load of the machine at the end: {load_average():.1f}")


def _alone_run(graph: str) -> float:
    """Return the seconds of an epoch of one rank, with a thread a core."""
    env = {"OMP_NUM_THREADS": str(usable_cores())}
    (found,) = launch([_run("alone", graph, "single", {})], 1, env=env)
    return median(found)


def _run(name: str, held: str, strategy: str, options: dict[str, Any]) -> Run:
    model = {"hidden": HIDDEN, "layers": 2, "dropout": 0.5}
    return Run(name, held, strategy, options, model_options=model, epochs=2 if tiny() else 6)


def _compared(network: Network, parts: str, workers: int, rate: int, nodes: int) -> Iterator[str]:
    runs = [_run(each["name"], parts, "halo", {"exchange": each}) for each in EXCHANGES]
    taken = {each["name"]: median(each) for each in launch(runs, workers, starter=partial(network.run))}
    for exchange in EXCHANGES:
        told = simulated(exchange, workers, rate, nodes)
        seconds = taken[exchange["name"]]
        yield (
            f"| {workers} | {rate:,} | {exchange['name']} | {told:.3f} | {seconds:.3f} "
            f"| {told / seconds - 1:+.0%} |"
        )


def simulated(exchange: dict[str, Any], workers: int, rate: int, nodes: int) -> float:
    """Return the seconds of an epoch as `weft simulate` has them, on links of so many Mbit/s.

    Ranks in namespaces share this machine's cores, and have a link each; nobody asks them to stop.
    """
    strategy = {"name": "halo", "partitioner": "metis", "exchange": exchange}
    recipe = make_recipe({**_graph(nodes), "strategy": strategy}, overrides=[])
    (load,) = CountedLoads((2, 4), print).count(recipe, [workers], ["halo"], [exchange["name"]])
    counted = load.work.at(workers)
    traffic = {label: each for label, each in counted.traffic.items() if label[0] != "control"}
    here, law = machine_here(), load.work.law
    assert law is not None
    kinds = (f"halo, {exchange['name']}", "halo")
    wires = wires_apart(here, workers, rate * MBIT / 8, kinds=kinds)
    told = epoch(replace(counted, traffic=traffic), here, wires, local=1 - law.cut_share(workers))
    return told.seconds


def alone(nodes: int) -> float:
    """Return the seconds of an epoch of one rank, which has no links, as `weft simulate` has them."""
    recipe = make_recipe({**_graph(nodes), "strategy": {"name": "single"}}, overrides=[])
    (load,) = CountedLoads((2, 4), print).count(recipe, [1], ["single"], [])
    here = machine_here()
    return epoch(load.work.at(1), here, wires_apart(here, 1, MBIT)).seconds


def _graph(nodes: int) -> dict[str, dict[str, Any]]:
    """Return the sections of a recipe: the graph and the model of the runs."""
    data = {"name": "community", "nodes": nodes, "degree": EDGES / NODES, "classes": 8, "homophily": 0.9}
    model = {"name": "sage", "hidden": HIDDEN, "layers": 2, "dropout": 0.5}
    return {"data": {**data, "features": FEATURES}, "model": model}


CASES = [
    Study(
        "simulation",
        "epochs as simulated and as run, SAGE 2 x 64, communities of 50,000 nodes and 1 M edges",
        rows,
        note=(
            "Ranks lie in namespaces whose links `tbf` limits, and share the cores of one machine. Work is "
            "by the machine's measured rates, links by what they were limited to. Nothing was fitted to "
            "these runs."
        ),
    )
]
