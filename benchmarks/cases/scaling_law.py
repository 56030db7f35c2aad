"""How cuts grow with the number of parts, measured, and how well the line through few parts tells of many."""

from collections.abc import Iterator

import weft
from benchmarks.graphs import communities, real, rmat, tiny
from benchmarks.measure import Study
from weft.simulate.scaling_law import OutDegrees, ScalingLaw, measured_law

FITTED, HELD_OUT = (2, 4, 8, 16), (32, 64)
PARTITIONERS = ("metis", "kaminpar", "ldg", "range", "hash")


def graphs() -> Iterator[tuple[str, weft.Graph]]:
    """Give the graphs at hand, each with its name."""
    yield "communities, 50,000 nodes", communities(50_000, 1_000_000, features=2)
    if tiny():
        return
    for name in ("cora", "wordnet30"):
        try:
            yield name, real(name)
        except FileNotFoundError as missing:
            print(f"skipped: {missing}")
    yield "R-MAT, 262,144 nodes", rmat()


def rows() -> Iterator[str]:
    """Give one row per graph and partitioner: what was measured, and what was expected of the largest."""
    counts = FITTED + HELD_OUT
    heads = " | ".join(f"{each} parts" for each in counts)
    yield f"| graph | partitioner | {heads} | expected of 32 | of 64 |"
    yield "|---|---|" + "---|" * len(counts) + "---|---|"
    for title, graph in graphs():
        for name in PARTITIONERS[-1:] if graph.num_edges > 2_000_000 else PARTITIONERS:
            try:
                law = measured_law(graph, name, counts)
            except weft.WeftError as error:
                print(f"skipped: {name}: {error}")
                continue
            yield _row(title, name, graph, law)


def _row(title: str, name: str, graph: weft.Graph, law: ScalingLaw) -> str:
    found = {each.parts: each.halo_rows for each in law.found}
    few = ScalingLaw(name, OutDegrees.of(graph), tuple(each for each in law.found if each.parts in FITTED))
    cells = [f"{found[each]:,}" if each in found else "–" for each in FITTED + HELD_OUT]
    expected = []
    for count in HELD_OUT:
        if count not in found:
            expected.append("–")
            continue
        told = few.halo_rows(count)
        within = "within" if told.low <= found[count] <= told.high else "outside"
        expected.append(
            f"{told.value:,.0f} ({told.low:,.0f} … {told.high:,.0f}), "
            f"{told.value / found[count] - 1:+.0%}, {within}"
        )
    return f"| {title} | {name} | {' | '.join([*cells, *expected])} |"


CASES = [
    Study(
        "scaling_law",
        "halo rows of all parts, by partitioner and number of parts",
        rows,
        note=(
            "Expected: by the line through 2, 4, 8 and 16 parts, with the bounds of nine in ten, how far off "
            "it is, and whether what was measured lies within. Chance, which bends the line, is known from "
            "the degrees. `weft simulate` fits all parts that it measures."
        ),
    )
]
