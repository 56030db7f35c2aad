"""The cheapest values between the beginning and the end of a graph, against all sets of values."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from weft.compiler.ranks.cut import narrowest

Graph = tuple[dict[int, float], dict[int, list[int]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 7))
    costs = {node: float(draw(st.integers(0, 5))) for node in range(size)}
    after = {node: [each for each in range(node + 1, size) if draw(st.booleans())] for node in range(size)}
    return costs, after


def separated(after: dict[int, list[int]], starts: list[int], ends: set[int], cut: set[int]) -> bool:
    seen, stack = set(), [each for each in starts if each not in cut]
    while stack:
        node = stack.pop()
        if node in ends:
            return False
        seen.add(node)
        stack += [each for each in after[node] if each not in cut and each not in seen]
    return True


@given(graphs(), st.data())
def test_no_other_set_is_cheaper(graph: Graph, data: st.DataObject) -> None:
    costs, after = graph
    starts = [0, *(node for node in costs if node and data.draw(st.booleans()))]
    ends = {max(costs)} | {node for node in costs if data.draw(st.booleans())}
    found = narrowest(costs, after, starts, ends)
    assert separated(after, starts, ends, set(found))
    least = min(
        sum(costs[node] for node in chosen)
        for size in range(len(costs) + 1)
        for chosen in combinations(costs, size)
        if separated(after, starts, ends, set(chosen))
    )
    assert sum(costs[node] for node in found) == least


def test_of_equal_ones_the_last_is_taken() -> None:
    costs = {"raw": 8.0, "transformed": 8.0, "bent": 8.0, "wide": 9.0}
    after = {"raw": ["transformed"], "transformed": ["bent"], "bent": ["wide"]}
    assert narrowest(costs, after, ["raw"], {"wide"}) == ["bent"]


def test_what_nothing_reads_is_not_taken() -> None:
    assert narrowest({"raw": 0.0, "other": 0.0}, {}, ["raw", "other"], {"raw"}) == ["raw"]
