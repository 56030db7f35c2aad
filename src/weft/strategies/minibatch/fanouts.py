"""Fanouts as a recipe has them: one number, one a hop, or one a hop for each relation."""

from collections.abc import Mapping, Sequence
from typing import Any

from weft.errors import RecipeError
from weft.graph.build import EdgeType
from weft.samplers.neighbor import MOST

Hops = list[Any]
"""What a sampler takes: for each hop the edges drawn a row, or a table of them by edge type."""
Fanouts = int | Sequence[int] | Mapping[str, Any]
_USUAL = (15, 10, 5)


def usual_fanouts(hops: int) -> list[int]:
    """Return what is drawn in each of so many hops where nothing is said."""
    return [*_USUAL, *[_USUAL[-1]] * hops][:hops]


def check_fanouts(fanouts: Any, where: str) -> None:
    """Refuse what can be no fanout, before any data is read."""
    if not isinstance(fanouts, Mapping):
        _check_counts(fanouts if _is_list(fanouts) else [], where)
        return
    for name, counts in fanouts.items():
        if not _is_list(counts):
            raise RecipeError(f"{where}: expected a list, one fanout a hop, for {name!r}; got {counts!r}")
        _check_counts(counts, f"{where}: {name}")
    lengths = {len(counts) for counts in fanouts.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise RecipeError(
            f"{where}: expected as many fanouts for each relation, one a hop; got {dict(fanouts)}"
        )


def by_hop(fanouts: Any, edge_types: Sequence[EdgeType], where: str) -> Any:
    """Return fanouts by relation as one table per hop, keyed by edge type; others as they are.

    A relation is named by its three words, "author writes paper", or by the middle one where no other has it.
    """
    if not isinstance(fanouts, Mapping):
        return fanouts
    known = _names(edge_types)
    chosen: dict[EdgeType, Sequence[int]] = {}
    for name, counts in fanouts.items():
        if name not in known:
            listed = ", ".join(" ".join(kind) for kind in edge_types)
            raise RecipeError(f"{where}: no relation {name!r}; the graph has: {listed}")
        chosen[known[name]] = counts
    missing = [" ".join(kind) for kind in edge_types if kind not in chosen]
    if missing:
        raise RecipeError(f"{where}: no fanout for {missing[0]!r}; zeros leave a relation out")
    hops = len(next(iter(chosen.values())))
    return [{kind: counts[hop] for kind, counts in chosen.items()} for hop in range(hops)]


def _names(edge_types: Sequence[EdgeType]) -> dict[str, EdgeType]:
    middle = [kind[1] for kind in edge_types]
    short = {kind[1]: kind for kind in edge_types if middle.count(kind[1]) == 1}
    return short | {" ".join(kind): kind for kind in edge_types}


def _check_counts(counts: Sequence[Any], where: str) -> None:
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int) or not -1 <= count <= MOST:
            raise RecipeError(f"{where}: a fanout is a number of edges, or -1 for all; got {count!r}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
