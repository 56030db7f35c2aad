"""Plans beside runs that the model never saw: bytes, messages, peak memory and seconds."""

import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.graphs import DATA, tiny
from benchmarks.measure import Study
from weft.plan.front import machine_here
from weft.plan.proof.proving import ProofCase, Proved, prove

CUT = {"partitioner": "hash"}
BATCHES = {"name": "sampled", "batch_size": 512, "fanout": [5, 5], **CUT}
GCN, SAGE, GIN = {"name": "gcn"}, {"name": "sage", "hidden": 32}, {"name": "gin", "hidden": 32}
GAT = {"name": "gat", "hidden": 8, "heads": 4}
Strategy = dict[str, Any]


def halo(exchange: Any = "exact") -> Strategy:
    """Return a strategy with such an exchange, on parts that cost nothing to make."""
    return {"name": "halo", "exchange": exchange, **CUT}


ROWS: tuple[tuple[str, dict[str, Any], int, Sequence[Strategy]], ...] = (
    ("cora", GCN, 1, [{"name": "single"}]),
    ("cora", GAT, 2, [halo(), halo("quantised"), {"name": "vertex_cut"}]),
    ("cora", SAGE, 4, [halo(), halo("stale"), {"name": "grid", "rows": 4, "columns": 1}]),
    ("citeseer", GAT, 1, [{"name": "single"}]),
    (
        "citeseer",
        GIN,
        2,
        [halo(), {"name": "staged", "form": "1d"}, {"name": "sequential", "parts": 4, **CUT}],
    ),
    ("citeseer", GCN, 4, [halo(), {"name": "vertex_cut"}]),
    ("pubmed", SAGE, 1, [{"name": "single"}, BATCHES]),
    ("pubmed", GCN, 2, [halo(), halo({"name": "sampled", "p": 0.1}), {"name": "vertex_cut"}]),
    ("pubmed", SAGE, 2, [halo(), BATCHES, {"name": "clustered", "clusters": 16, **CUT}]),
    ("pubmed", GCN, 4, [halo(), {"name": "staged", "form": "2d"}]),
    ("tolokers", SAGE, 1, [{"name": "single"}]),
    ("tolokers", GCN, 2, [halo(), halo("quantised"), halo({"name": "skip", "interval": 2})]),
    ("tolokers", GIN, 4, [halo(), {"name": "grid", "rows": 2, "columns": 2}]),
    ("fb100_cornell5", SAGE, 1, [{"name": "single"}]),
    ("fb100_cornell5", GCN, 2, [halo(), halo("stale"), {"name": "vertex_cut", "exchange": "none"}]),
    ("fb100_cornell5", SAGE, 4, [halo(), BATCHES]),
    ("wordnet30", SAGE, 1, [{"name": "single"}]),
    ("wordnet30", GCN, 2, [halo(), halo("quantised"), {"name": "saint", **CUT}]),
    ("wordnet30", SAGE, 4, [halo()]),
)


def cases() -> Iterator[ProofCase]:
    """Give the runs; `--only` takes those whose name begins so."""
    only, count = os.environ.get("WEFT_BENCH_ONLY", ""), 0
    for graph, model, workers, strategies in ROWS:
        for strategy in strategies:
            exchange = strategy.get("exchange", "")
            by = exchange["name"] if isinstance(exchange, dict) else exchange
            name = f"{graph}, {model['name']}, {workers}: {strategy['name']} {by}".strip()
            data = {"path": str(DATA / f"{graph}.npz")}
            if name.startswith(only) and not (tiny() and count):
                count += 1
                yield ProofCase(name, {"data": data, "model": model, "strategy": strategy}, workers)


def rows() -> Iterator[str]:
    """Give a row a run, then what they come to together."""
    machine, proved = machine_here(), []
    yield "| run | bytes | off | messages | off | peak MiB | planned | ms an epoch | planned |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for case in cases():
        with tempfile.TemporaryDirectory(prefix="weft-proof-") as folder:
            each = prove(case, machine, Path(folder))
        proved.append(each)
        sent, messages = sum(each.forecast.bytes_of_epochs), sum(each.forecast.messages_of_epochs)
        counted = f"{sent:,} | {each.bytes_off} | {messages:,} | {each.messages_off}"
        memory = f"{each.run.peak / 2**20:,.0f} | {each.memory_error:+.1%}"
        seconds = f"{1e3 * each.run.epoch_seconds:.1f} | {each.seconds_error:+.0%}"
        yield f"| {case.name} | {counted} | {memory} | {seconds} |"
    yield from together(proved)


def together(proved: Sequence[Proved]) -> Iterator[str]:
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
    groups: dict[str, list[Proved]] = defaultdict(list)
    for each in proved:
        groups[each.case.name.split(":")[0]].append(each)
    several = [held for held in groups.values() if len(held) > 1]
    near = sum(_chosen(held) <= 1.1 * min(each.run.epoch_seconds for each in held) for held in several)
    told = f"the fastest by the plan within 10 % of the fastest run: {near} of {len(several)}"
    yield f"| all: {told} | | | | | | | | |"


def _chosen(held: Sequence[Proved]) -> float:
    """Return the measured seconds of the run that is fastest by its plan."""
    return min(held, key=lambda each: each.forecast.epoch_seconds).run.epoch_seconds


CASES = [
    Study(
        "plan_proof",
        "plans beside runs of real graphs, 8 epochs on the CPU, 1, 2 and 4 workers on one machine",
        rows,
        note=(
            "Bytes and messages of all epochs that were rehearsed, compared by rank, epoch, purpose, "
            "direction and peer; peak memory is the largest process, seconds the median epoch of the "
            "slowest worker. Rates are those of the machine as `weft plan --measure` found it."
        ),
    )
]
