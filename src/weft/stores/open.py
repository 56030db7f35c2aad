"""Stores as a recipe names them: `store = {name = "cached", path = "features.npy", capacity = 0.3}`."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from weft.errors import GraphError, RecipeError
from weft.graph.graph import Graph
from weft.graph.source import RowSource
from weft.graph.sparse import SparseFeatures
from weft.registry import suggest
from weft.samplers.base import Sampler
from weft.stores.base import Store, stores
from weft.stores.cached import CachedStore
from weft.stores.memory import MemoryStore
from weft.stores.mmap import MmapStore
from weft.stores.rankers import frequency, importance, out_degree, random_order
from weft.stores.shared import SharedStore

OPTIONS = {
    "memory": ("storage",),
    "mmap": ("path",),
    "shared": ("store", "field"),
    "cached": ("path", "capacity", "ranker", "storage"),
}
RANKERS = ("frequency", "out_degree", "importance", "random")


def open_store(spec: str | Mapping[str, Any], graph: Graph, sampler: Sampler | None = None) -> Store:
    """Return the store of a graph's features that a recipe names, by name or as a table with options.

    "memory" keeps the graph's own x (`storage`); "mmap" reads `path`; "shared" opens `store`; "cached" holds
    `capacity` rows in front of `path`, or of x, chosen by `ranker` ("frequency" needs the sampler). Stores of
    several ranks are made by the strategies that have them.
    """
    given = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = given.pop("name", None)
    if name not in OPTIONS:
        own = str(name) in stores
        what = f"store.name: {name!r} is made by its strategy" if own else f"no store {name!r}"
        raise RecipeError(f"{what}; {suggest(str(name), OPTIONS)}known: {', '.join(OPTIONS)}")
    for key in given:
        if key not in OPTIONS[name]:
            known = ", ".join(OPTIONS[name])
            raise RecipeError(f"store.{key}: unknown; {suggest(key, OPTIONS[name])}{name!r} has: {known}")
    made = _OPENERS[name](given, graph, sampler)
    if made.num_rows != graph.num_nodes:
        raise GraphError(f"the store has {made.num_rows:,} rows, the graph {graph.num_nodes:,} nodes")
    return made


def _memory(given: dict[str, Any], graph: Graph, _: Sampler | None) -> Store:
    return MemoryStore(_features(graph), **given)


def _mmap(given: dict[str, Any], graph: Graph, _: Sampler | None) -> Store:
    if "path" not in given:
        raise RecipeError("store.path: 'mmap' needs the file of the features")
    return MmapStore(given["path"])


def _shared(given: dict[str, Any], graph: Graph, _: Sampler | None) -> Store:
    if "store" not in given:
        raise RecipeError("store.store: 'shared' needs the name that the store was made under")
    return SharedStore(given["store"], field=given.get("field", "x"))


def _cached(given: dict[str, Any], graph: Graph, sampler: Sampler | None) -> Store:
    x = graph.x
    behind: Store
    if "path" in given:
        behind = MmapStore(given.pop("path"))
    else:
        behind = x if isinstance(x, Store) else MemoryStore(_features(graph))
    scores = _scores(given.pop("ranker", "out_degree"), graph, sampler)
    return CachedStore(behind, scores, **given)


def _scores(ranker: str, graph: Graph, sampler: Sampler | None) -> Tensor:
    if ranker not in RANKERS:
        raise RecipeError(
            f"store.ranker: no {ranker!r}; {suggest(ranker, RANKERS)}known: {', '.join(RANKERS)}"
        )
    if ranker == "frequency":
        if sampler is None:
            raise RecipeError("store.ranker: 'frequency' needs a strategy that samples; use 'out_degree'")
        return frequency(sampler)
    named = {"out_degree": out_degree, "importance": importance, "random": random_order}
    return named[ranker](graph)


def _features(graph: Graph) -> Tensor:
    x = graph.x
    if not isinstance(x, Tensor):
        kind = "none" if x is None else type(x).__name__
        hint = "sparse features need no store" if isinstance(x, SparseFeatures) else "name a file: store.path"
        hint = "it is one already" if isinstance(x, RowSource) else hint
        raise GraphError(f"a store of the graph's own x needs a dense matrix, got {kind}; {hint}")
    return x


_OPENERS: dict[str, Callable[[dict[str, Any], Graph, Sampler | None], Store]] = {
    "memory": _memory,
    "mmap": _mmap,
    "shared": _shared,
    "cached": _cached,
}
