"""The cheapest values that separate the beginning of a graph from its end."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)

_Place = tuple[Hashable, bool]
"""A value as it comes in (False) or goes out (True); between both lies what it costs."""


def narrowest(
    costs: Mapping[Node, float], after: Mapping[Node, Sequence[Node]], starts: Sequence[Node], ends: set[Node]
) -> list[Node]:
    """Return the values of least total cost on all ways from `starts` to `ends`, themselves included.

    `after` has the values made of each. Among equally cheap ones those nearest the ends: what comes before
    them is computed once, by whoever has the rows. The costs are few and whole numbers of bytes: ways are
    filled one after the other until none is left (Ford and Fulkerson).
    """
    room: dict[_Place, dict[_Place, float]] = {}

    def link(one: _Place, two: _Place, size: float) -> None:
        room.setdefault(one, {})[two] = size
        room.setdefault(two, {}).setdefault(one, 0.0)

    first, last = ("start", True), ("end", False)
    for node, cost in costs.items():
        link((node, False), (node, True), cost)
        for each in after.get(node, ()):
            link((node, True), (each, False), math.inf)
    for node in starts:
        link(first, (node, False), math.inf)
    for node in ends:
        link((node, True), last, math.inf)
    while way := _way(room, first, last):
        size = min(room[one][two] for one, two in way)
        for one, two in way:
            room[one][two] -= size
            room[two][one] += size
    reached = _reaching(room, last)
    return [node for node in costs if (node, True) in reached and (node, False) not in reached]


def _way(
    room: dict[_Place, dict[_Place, float]], first: _Place, last: _Place
) -> list[tuple[_Place, _Place]] | None:
    """Return the steps of a shortest way with room left; None: there is none."""
    before: dict[_Place, _Place] = {first: first}
    queue = [first]
    for place in queue:
        for each, size in room[place].items():
            if size > 0 and each not in before:
                before[each] = place
                queue.append(each)
    if last not in before:
        return None
    way = []
    while last != first:
        way.append((before[last], last))
        last = before[last]
    return way


def _reaching(room: dict[_Place, dict[_Place, float]], last: _Place) -> set[_Place]:
    """Return all places from which there is room on a way to the last."""
    found, queue = {last}, [last]
    for place in queue:
        for each in room[place]:
            if each not in found and room[each].get(place, 0.0) > 0:
                found.add(each)
                queue.append(each)
    return found
