"""Epochs on a slow network, made for real: 4 ranks in namespaces whose links `tbf` limits."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.graphs import communities, tiny
from benchmarks.measure import Study
from benchmarks.namespaces import Network, missing
from benchmarks.partitions import workspace, write
from benchmarks.plot import log_plot
from benchmarks.policies import HALO, known
from benchmarks.workers import Run, halo_bytes, launch, median

WORKERS = 4
LAYERS, HIDDEN, CLASSES = 3, 128, 16
MODEL: dict[str, Any] = {"layers": LAYERS, "hidden": HIDDEN, "dropout": 0.5}
RATES = (10_000, 1_000, 400, 240, 40)
UNEQUAL = (400, 400, 400, 80)
# So slow that what is left of the traffic outlasts computing: here the choice of a link decides.
UNEQUAL_SLOW = (20, 20, 20, 4)
SWEPT = ("stale", "sampled(0.1)", "sampled(0.1) + 8 bits", "sampled(auto)", "sampled(auto) + auto bits")
FIXED = ("quantised(8)", "sampled(0.1)", "sampled(0.1) + 8 bits")
AUTO = ("sampled(auto)", "sampled(auto) + auto bits")


def rows() -> Iterator[str]:
    """Give one row per speed: compute C, exact communication M, and each policy's epoch with its bound."""
    names = ["exact", *[name for name in SWEPT if name in known(HALO)]]
    yield f"| link, Mbit/s | reached | C, s | M, s | {' | '.join(names)} |"
    yield "|---|---|---|---|" + "---|" * len(names)
    with _set_up() as (network, parts):
        if network is not None:
            yield from _sweep(network, parts, names)


def unequal() -> Iterator[str]:
    """Give the epochs of fixed settings, and of those chosen a link, where one rank's link is slow."""
    yield "| links, Mbit/s | exchange | epoch, s | against the best fixed setting |"
    yield "|---|---|---|---|"
    with _set_up() as (network, parts):
        if network is not None:
            yield from _unequal(network, parts, UNEQUAL, ["exact", *FIXED, *AUTO])
            yield from _unequal(network, parts, UNEQUAL_SLOW, [*FIXED[1:], *AUTO])


@contextmanager
def _set_up() -> Iterator[tuple[Network | None, str]]:
    """Give namespaces and the parts of the graph; no namespaces where they cannot be made."""
    if why_not := missing():
        print(f"skipped: {why_not}")
        yield None, ""
        return
    with workspace() as folder, Network(WORKERS) as network:
        graph = communities(200_000, 10_000_000, classes=CLASSES, homophily=0.98, features=64)
        parts = write(folder / "parts", graph, WORKERS, name="metis")
        del graph
        communities.cache_clear()
        yield network, parts


def _sweep(network: Network, parts: str, names: list[str]) -> Iterator[str]:
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in (*names, "(C)", "(M)")}
    for rate in (1_000, 100) if tiny() else RATES:
        network.limit([rate] * WORKERS)
        found = _measure(network, parts, names)
        compute, moved = median(found["compute"]), median(found["transfer"])
        reached = _busiest(found["transfer"]) * 8 / moved / 1e6
        exact = median(found["exact"])
        wire = _busiest(found["transfer"]) * 8 / (rate * 1e6)
        cells = [_cell(name, found, exact, compute, moved, wire) for name in names]
        yield f"| {rate:,} | {reached:,.0f} | {compute:.2f} | {moved:.2f} | {' | '.join(cells)} |"
        for name in names:
            lines[name].append((rate, median(found[name])))
        lines["(C)"].append((rate, compute))
        lines["(M)"].append((rate, moved))
    title = "Epoch of SAGE 3 x 128 on 4 ranks by the speed of their links"
    STUDY.files["network.svg"] = log_plot(title, lines, x="link, Mbit/s", y="seconds an epoch")


def _unequal(network: Network, parts: str, rates: Sequence[int], names: list[str]) -> Iterator[str]:
    network.limit(rates)
    found = _measure(network, parts, [name for name in names if name == "exact" or name in known(HALO)])
    seconds = {name: median(result) for name, result in found.items() if name != "transfer"}
    best = min(value for name, value in seconds.items() if name not in (*AUTO, "compute"))
    for name, value in seconds.items():
        yield f"| {'/'.join(map(str, rates))} | {name} | {value:.2f} | {best / value:.2f}× |"


def _measure(network: Network, parts: str, names: list[str]) -> dict[str, Any]:
    """Return results by name, of one launch: an epoch of each policy, computing alone, transfers of exact.

    Computing alone is an epoch without a halo, in the same minutes: this machine may be slower in others.

    Input features travel once, and the last layer sends its outputs, which are narrower than what it reads.
    """
    epochs = 2 if tiny() else 5
    policies: dict[str, Any] = {"exact": {"name": "exact"}, **known(HALO)}
    alone = {"exchange": {"name": "sampled", "p": 0.0}}
    runs = [Run("compute", parts, "halo", alone, model_options=MODEL, epochs=epochs, warm=2)]
    if "exact" in names:
        runs += [Run("transfer", parts, transfers=[HIDDEN, CLASSES], epochs=epochs, warm=1)]
    runs += [
        Run(name, parts, "halo", {"exchange": policies[name]}, model_options=MODEL, epochs=epochs, warm=2)
        for name in names
    ]
    results = launch(runs, WORKERS, starter=partial(network.run, limit=2400.0))
    return {result["name"]: result for result in results}


def _cell(name: str, found: dict[str, Any], exact: float, compute: float, moved: float, wire: float) -> str:
    """Return an epoch's seconds, how much faster than exact it is, and the least it could take.

    The least is the longer of computing and the bytes over the speed of the busiest link (`wire` for exact).
    """
    seconds = median(found[name])
    share = halo_bytes(found[name]) / max(1.0, halo_bytes(found["exact"]))
    least = max(compute, share * wire)
    told = f"{seconds:.2f} s"
    if name != "exact":
        told += f", {exact / seconds:.1f}×"
    if name in ("exact", "stale"):
        hidden = 1 - max(0.0, seconds - compute) / moved
        told += f", {hidden:.0%} hidden, {(compute + moved) / seconds:.1f}× C + M"
    return f"{told} (≥ {least:.2f})"


def _busiest(result: dict[str, Any]) -> float:
    """Return the bytes a round of the rank that sends, or is sent, most: what the slowest link carries."""
    sent: dict[int, float] = {}
    for volume in result["volumes"]:
        if volume["kind"] == "other":
            sent[volume["peer"]] = sent.get(volume["peer"], 0.0) + volume["bytes_sent"]
    return max(sent.values()) / result["epochs"]


STUDY = Study(
    "network",
    "epochs on limited links, SAGE 3 x 128, communities of 200,000 nodes and 10 M edges, 4 ranks",
    rows,
    note=(
        "C: an epoch without a halo. M: the exact transfers of an epoch "
        "alone. Hidden: what of M an epoch does not add to C; exact hides some too, as local edges are "
        "summed while rows travel, so both are told against C + M as well, an epoch that hides nothing. In "
        "brackets the least that is possible, the larger of C and the policy's bytes over the busiest link. "
        "4 ranks share 2 cores.\n\n![epoch by speed of the links](network.svg)"
    ),
)
UNEQUAL_STUDY = Study(
    "network_unequal",
    "epochs where one rank's link is slow, SAGE 3 x 128, 200,000 nodes and 10 M edges, 4 ranks",
    unequal,
    note=(
        "Auto brings as many rows as p = 0.1 and as many bits as 8 on the average, more of them over fast "
        "links. Compute: an epoch without a halo, whose gradients still cross the slow link."
    ),
)
CASES = [STUDY, UNEQUAL_STUDY]
