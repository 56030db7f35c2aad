"""Plans beside runs that the model never saw: bytes, messages, peak memory and seconds."""

import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.graphs import DATA, tiny
from benchmarks.measure import Study
from benchmarks.namespaces import Network, missing
from weft.plan.front import machine_here
from weft.plan.machine import Machine
from weft.plan.proof.proving import ProofCase, Proved, prove, slower_than_best
from weft.process import environment

CUT = {"partitioner": "hash"}
BATCHES = {"name": "sampled", "batch_size": 512, "fanout": [5, 5], **CUT}
GCN, SAGE, GIN = {"name": "gcn"}, {"name": "sage", "hidden": 32}, {"name": "gin", "hidden": 32}
GAT = {"name": "gat", "hidden": 8, "heads": 4}
Strategy = dict[str, Any]


def halo(exchange: Any = "exact") -> Strategy:
    """Return a strategy with such an exchange, on parts that cost nothing to make."""
    return {"name": "halo", "exchange": exchange, **CUT}


SINGLE, VERTEX_CUT, STAGED = {"name": "single"}, {"name": "vertex_cut"}, {"name": "staged", "form": "1d"}
ROWS: tuple[tuple[str, dict[str, Any], int, Sequence[Strategy]], ...] = (
    ("cora", GAT, 1, [SINGLE]),
    ("cora", GAT, 2, [halo(), halo("quantised"), VERTEX_CUT]),
    ("cora", SAGE, 1, [SINGLE]),
    ("cora", SAGE, 4, [halo(), halo("stale"), {"name": "grid", "rows": 4, "columns": 1}]),
    ("citeseer", GAT, 1, [SINGLE]),
    ("citeseer", GIN, 1, [SINGLE]),
    ("citeseer", GIN, 2, [halo(), STAGED, {"name": "sequential", "parts": 4, **CUT}]),
    ("citeseer", GCN, 1, [SINGLE]),
    ("citeseer", GCN, 4, [halo(), VERTEX_CUT]),
    ("pubmed", SAGE, 1, [SINGLE, BATCHES]),
    ("pubmed", GCN, 1, [SINGLE]),
    ("pubmed", GCN, 2, [halo(), halo({"name": "sampled", "p": 0.1}), VERTEX_CUT]),
    ("pubmed", SAGE, 2, [halo(), VERTEX_CUT, BATCHES, {"name": "clustered", "clusters": 16, **CUT}]),
    ("pubmed", GCN, 4, [halo(), {"name": "staged", "form": "2d"}]),
    ("tolokers", SAGE, 1, [SINGLE]),
    ("tolokers", GCN, 1, [SINGLE]),
    ("tolokers", GCN, 2, [halo(), VERTEX_CUT, halo("quantised"), halo({"name": "skip", "interval": 2})]),
    ("tolokers", GIN, 1, [SINGLE]),
    ("tolokers", GIN, 4, [halo(), {"name": "grid", "rows": 2, "columns": 2}]),
    ("fb100_cornell5", SAGE, 1, [SINGLE]),
    ("fb100_cornell5", GCN, 1, [SINGLE]),
    ("fb100_cornell5", GCN, 2, [halo(), STAGED, halo("stale"), {**VERTEX_CUT, "exchange": "none"}]),
    ("fb100_cornell5", SAGE, 4, [halo(), VERTEX_CUT, BATCHES]),
    ("wordnet30", SAGE, 1, [SINGLE]),
    ("wordnet30", GCN, 1, [SINGLE]),
    ("wordnet30", GCN, 2, [halo(), STAGED, halo("quantised"), {"name": "saint", **CUT}]),
    ("wordnet30", SAGE, 4, [halo(), VERTEX_CUT]),
)
LINKED: tuple[tuple[str, dict[str, Any], int, Sequence[Strategy]], ...] = (
    ("wordnet30", GCN, 2, [halo(), halo("quantised")]),
    ("pubmed", SAGE, 4, [halo(), VERTEX_CUT]),
)
"""Runs whose workers lie in namespaces, with a link each."""
RATES = (1000, 100)
"""Mbit/s of these links."""


def cases() -> Iterator[ProofCase]:
    """Give the runs; `--only` takes those whose name begins so."""
    only, count = os.environ.get("WEFT_BENCH_ONLY", ""), 0
    for rate, rows_of in ((None, ROWS), *((rate, LINKED) for rate in RATES)):
        for graph, model, workers, strategies in rows_of:
            for strategy in strategies:
                case = _case(graph, model, workers, strategy, rate)
                if case.name.startswith(only) and not (tiny() and count):
                    count += 1
                    yield case


def _case(graph: str, model: dict[str, Any], workers: int, strategy: Strategy, rate: int | None) -> ProofCase:
    exchange = strategy.get("exchange", "")
    by = exchange["name"] if isinstance(exchange, dict) else exchange
    link = "" if rate is None else f" at {rate} Mbit/s"
    name = f"{graph}, {model['name']}, {workers}{link}: {strategy['name']} {by}".strip()
    data = {"path": str(DATA / f"{graph}.npz")}
    return ProofCase(name, {"data": data, "model": model, "strategy": strategy}, workers, rate=rate)


def rows() -> Iterator[str]:
    """Give one row per run, then what they come to together."""
    machine, proved = machine_here(), []
    why_not = missing()
    yield "| run | bytes | off | messages | off | peak MiB | planned | ms an epoch | planned |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for case in cases():
        if case.rate is not None and why_not:
            print(f"skipped: {case.name}: links of a chosen speed: {why_not}")
            continue
        each = proved_in(case, machine)
        proved.append(each)
        sent, messages = sum(each.forecast.bytes_of_epochs), sum(each.forecast.messages_of_epochs)
        counted = f"{sent:,} | {each.bytes_off} | {messages:,} | {each.messages_off}"
        memory = f"{each.run.peak / 2**20:,.0f} | {each.memory_error:+.1%}"
        seconds = f"{1e3 * each.run.epoch_seconds:.1f} | {each.seconds_error:+.0%}"
        yield f"| {case.name} | {counted} | {memory} | {seconds} |"
    yield from together(proved, machine)


def proved_in(case: ProofCase, machine: Machine) -> Proved:
    """Return a run beside its plan; with links it is made in namespaces, which are removed again."""
    with tempfile.TemporaryDirectory(prefix="weft-proof-") as folder:
        if case.rate is None:
            return prove(case, machine, Path(folder))
        with Network(case.workers) as network:
            network.limit([case.rate] * case.workers)
            return prove(case, machine, Path(folder), partial(_started, network, machine))


def _started(network: Network, machine: Machine, command: Sequence[str], workers: int) -> None:
    """Run a command in the namespaces of a network, with the threads that `weft train --workers` gives."""
    threads = str(max(1, machine.cores // workers))
    env = {**environment(), "OMP_NUM_THREADS": threads}
    if code := network.run(command, workers, env=env, quiet=True):
        raise RuntimeError(f"the ranks ended with exit code {code}")


def together(proved: Sequence[Proved], machine: Machine) -> Iterator[str]:
    """Give the rows of what all runs come to: exact ones, errors, and whether the best was recommended."""
    exact = sum(not each.differences for each in proved)
    yield f"| all: {exact} of {len(proved)} without a byte or a message off | | | | | | | | |"
    for what, errors, bound in (
        ("memory", [abs(each.memory_error) for each in proved], 0.10),
        ("seconds", [abs(each.seconds_error) for each in proved], 0.25),
    ):
        within = sum(error <= bound for error in errors) / len(errors)
        told = f"median error {statistics.median(errors):.1%}, {within:.0%} within {bound:.0%}"
        yield f"| all: {what}: {told} | | | | | | | | |"
    slower = [slowed for held in groups(proved) if (slowed := slower_than_best(held, machine)) is not None]
    if slower:
        near, middle = sum(each <= 0.1 for each in slower), statistics.median(slower)
        told = f"{near} of {len(slower)} at most 10 % slower than the fastest exact run, median {middle:+.1%}"
        yield f"| all: recommended: {told}, at most {max(slower):+.0%} | | | | | | | | |"


def groups(proved: Sequence[Proved]) -> list[list[Proved]]:
    """Return the runs among which a plan chooses: of a graph and model, on some workers and on any."""
    found: dict[str, list[Proved]] = defaultdict(list)
    for each in proved:
        asked = each.case.name.split(":")[0]
        found[asked].append(each)
        if each.case.rate is None:
            found[asked.rpartition(",")[0]].append(each)
    different = {tuple(id(each) for each in held): held for held in found.values()}
    return list(different.values())


CASES = [
    Study(
        "plan_proof",
        "plans beside runs of real graphs, 8 epochs on the CPU, 1, 2 and 4 workers on one machine",
        rows,
        note=(
            "Bytes and messages of all epochs that were rehearsed, compared by rank, epoch, purpose, "
            "direction and peer; peak memory is the largest process, seconds the median epoch of the "
            "slowest worker. Rates are those of the machine as `weft plan --measure` found it. Recommended: "
            "of the runs of a graph and a model, on so many workers and on any, the one that a plan of them "
            "puts first, beside the fastest exact one. Links of so many Mbit/s: workers in namespaces, which "
            "need root, limited by `tbf`."
        ),
    )
]
