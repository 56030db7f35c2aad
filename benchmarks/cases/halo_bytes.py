"""Bytes of layers that cross between 4 ranks in an epoch, each policy against exact, in one run."""

import statistics
from collections.abc import Iterator
from typing import Any

import weft
from benchmarks.graphs import real, tiny
from benchmarks.measure import Study
from benchmarks.partitions import workspace, write, write_for
from benchmarks.policies import HALO, VERTEX_CUT, allowed, known
from benchmarks.workers import Run, avoided, halo_bytes, launch

WORKERS = 4
MODEL: dict[str, Any] = {"layers": 3, "hidden": 128, "dropout": 0.5}
EPOCHS = 20  # a multiple of what `delayed` and `skip` count
# What each must come to, as a share of exact.
REQUIRED = {
    "sampled(0.1)": "0.10",
    "quantised(8)": "≤ 0.27",
    "skip(interval 4)": "≥ 74 % avoided",
    "delayed(5)": "0.20",
}


def _graph() -> weft.Graph:
    return real("cora" if tiny() else "pubmed", symmetrise=True, normalise_features=True)


def rows() -> Iterator[str]:
    """Give one row per policy: bytes an epoch, as a share of exact, exchanges avoided."""
    graph = _graph()
    with workspace() as folder:
        nodes = write(folder / "nodes", graph, WORKERS, name="metis")
        yield "| strategy, exchange | KiB an epoch | of exact | at width 128 | exchanges avoided | required |"
        yield "|---|---|---|---|---|---|"
        policies = {"exact": {"name": "exact"}, **known(HALO)}
        yield from _compare("halo", nodes, policies)
        policies = known({"exact": {"name": "exact"}, **VERTEX_CUT}, "vertex_cut")
        if policies:
            edges = write_for(folder / "edges", graph, WORKERS, "vertex_cut")
            yield from _compare("vertex_cut", edges, policies)


def _compare(strategy: str, folder: str, policies: dict[str, dict[str, Any]]) -> Iterator[str]:
    runs = [
        # The first epoch of an exchange with a history sends everything.
        Run(name, folder, strategy, {"exchange": options}, model_options=MODEL, epochs=EPOCHS, warm=1)
        for name, options in policies.items()
    ]
    exact, *others = launch(runs, WORKERS)
    for result in (exact, *others):
        share = halo_bytes(result) / halo_bytes(exact)
        wide = halo_bytes(result, 0) / max(
            1.0, halo_bytes(exact, 0)
        )  # the last layer sends a column per class
        name = result["name"]
        yield (
            f"| {strategy}, {name} | {halo_bytes(result) / 1024:,.0f} | {share:.3f} | {wide:.3f} | "
            f"{avoided(result):.0%} | {REQUIRED.get(name, '')} |"
        )


def skipping() -> Iterator[str]:
    """Give accuracy and all bytes of training with `skip` and exactly, over paired seeds, on a real graph."""
    seeds, epochs = (range(1), 20) if tiny() else (range(10), 200)
    graph = _graph()
    yield "| exchange | test accuracy | exchanges avoided | bytes of layers | all bytes |"
    yield "|---|---|---|---|---|"
    policies = {"exact": {"name": "exact"}}
    policies |= {name: options for name, options in HALO.items() if options["name"] == "skip"}
    with workspace() as folder:
        nodes = write(folder / "nodes", graph, WORKERS, name="metis")
        runs = [
            Run(
                name, nodes, "halo", {"exchange": options}, model="gcn", epochs=epochs, warm=0, seed=seed,
                model_options={"layers": 2, "hidden": 64, "dropout": 0.5}, evaluate_every=5,
            )
            for name, options in policies.items()
            if allowed(options)
            for seed in seeds
        ]  # fmt: skip
        results = launch(runs, WORKERS)
    exact = [result for result in results if result["name"] == "exact"]
    for name in dict.fromkeys(result["name"] for result in results):
        held = [result for result in results if result["name"] == name]
        accuracy = [100 * result["test"] for result in held]
        share = _mean(held, avoided)
        layers = _mean(held, halo_bytes) / _mean(exact, halo_bytes)
        total = _mean(held, _all_bytes) / _mean(exact, _all_bytes)
        yield f"| {name} | {statistics.mean(accuracy):.2f} | {share:.0%} | {layers:.2f} | {total:.2f} |"


def _all_bytes(result: dict[str, Any]) -> float:
    # Evaluation is the same for all and would blur what training sends.
    sent = [v["bytes_sent"] for v in result["volumes"] if v["kind"] not in ("evaluate", "plan", "features")]
    return sum(sent) / result["epochs"]


def _mean(results: list[dict[str, Any]], value: Any) -> float:
    return statistics.mean(value(result) for result in results)


CASES = [
    Study(
        "halo_bytes",
        "bytes of layers an epoch, SAGE 3 x 128, pubmed, 4 ranks, METIS (vertex cut: Libra)",
        rows,
        note="Parameters' gradients, evaluation and the features, which travel once, are apart.",
    ),
    Study(
        "halo_skip",
        "skipped broadcasts at equal accuracy, GCN 2 x 64, pubmed, 4 ranks, 200 epochs, 10 seeds",
        skipping,
        note="Of layers after the first: the input features travel once, whatever the exchange.",
    ),
]
