"""Stores as a recipe names them: `store = {name = "cached", path = "features.npy", capacity = 0.3}`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from weft.errors import GraphError, RecipeError
from weft.graph.graph import Graph
from weft.graph.parts.shard import Shard
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
from weft.stores.storage import storage_type
from weft.stores.typed import TypedStores, of_type

OPTIONS = {
    "memory": ("storage",),
    "sharded": ("storage",),
    "mmap": ("path",),
    "shared": ("store", "field"),
    "cached": ("path", "capacity", "ranker", "storage"),
}
Drawn = Sampler | Literal["later"] | None
"""What draws the batches that a cache is for."""
RANKERS = ("frequency", "out_degree", "importance", "random")


def open_store(
    spec: str | Mapping[str, Any],
    graph: Graph,
    sampler: Drawn = None,
    *,
    batch_size: int = 1024,
) -> Store | TypedStores:
    """Return the store of a graph's features that a recipe names, by name or as a table with options.

    "memory" keeps the graph's own x (`storage`), as "sharded" does where there is one process; "mmap" reads
    `path`; "shared" opens `store`; "cached" holds `capacity` rows in front of `path`, or of x, chosen by
    `ranker` ("frequency" needs the sampler; where it comes "later" the cache holds nothing until `hold` is
    given scores). A graph of several node types has a store for each; `path` and `field` are tables by type
    then. `open_on_ranks` does the same for several ranks.
    """
    name, given = check_store(spec)
    if len(graph.node_types) > 1:
        return _of_types(name, given, graph, sampler, batch_size)
    made = _OPENERS[name](given, graph, sampler, batch_size)
    if made.num_rows != graph.num_nodes:
        made.close()
        raise GraphError(f"the store has {made.num_rows:,} rows, the graph {graph.num_nodes:,} nodes")
    return made


def _of_types(name: str, given: dict[str, Any], graph: Graph, sampler: Drawn, batch_size: int) -> TypedStores:
    """Return a store for each node type that has features."""
    capacity, ranker = given.pop("capacity", "auto"), given.pop("ranker", "out_degree")
    held: dict[str, Store] = {}
    for kind in (kind for kind in graph.node_types if "x" in graph.node_data[kind]):
        own, x = of_type(given, kind), graph.node_data[kind]["x"]
        held[kind] = _of_type(name, own, x)
    made = TypedStores(held, graph.node_types, graph.node_offsets, capacity=capacity)
    scores = _scores(ranker, graph, sampler, batch_size) if name == "cached" else None
    if scores is not None:
        made.hold(scores)
    return made


def _of_type(name: str, given: dict[str, Any], x: Any) -> Store:
    if name == "shared":
        return SharedStore(given["store"], field=given["field"])
    behind: Store
    if "path" in given:
        behind = x if isinstance(x, MmapStore) else MmapStore(given["path"], dtype=x.dtype)
    else:
        behind = x if isinstance(x, Store) else MemoryStore(_dense(x), storage=given.get("storage"))
    return CachedStore(behind, None, storage=given.get("storage")) if name == "cached" else behind


def check_store(spec: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a store, or say which is wrong, before anything is opened."""
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
    for key, needed, what in (("path", "mmap", "the file of the features"), ("store", "shared", "its name")):
        if name == needed and key not in given:
            raise RecipeError(f"store.{key}: {name!r} needs {what}")
    ranker = given.get("ranker", "out_degree")
    if ranker not in RANKERS:
        raise RecipeError(
            f"store.ranker: no {ranker!r}; {suggest(str(ranker), RANKERS)}known: {', '.join(RANKERS)}"
        )
    if given.get("storage") is not None:
        storage_type(given["storage"])
        if "path" in given:
            raise RecipeError(
                "store.storage: rows of a file come in its bits, and a run would depend on which are cached; "
                "write the file in fewer, as weft.stores.MmapStore.create does, and leave this out"
            )
    return name, given


def with_store(graph: Graph, store: Store | TypedStores) -> Graph:
    """Return the graph whose features are read from a store."""
    return graph.with_data(x=store.held if isinstance(store, TypedStores) else store)


def with_file(graph: Graph, spec: str | Mapping[str, Any] | None, dtype: torch.dtype) -> Graph:
    """Return the graph with the features of the file that a store reads; as it is where there is none."""
    sizes = {kind: rows.stop - rows.start for kind in graph.node_types for rows in [graph.rows_of_type(kind)]}
    files = _files(spec, sizes, dtype)
    return graph.with_data(x=files) if files else graph


def with_file_rows(shard: Shard, spec: str | Mapping[str, Any] | None, dtype: torch.dtype) -> Shard:
    """Return a rank's shard with its own rows of that file, which an exact evaluation reads."""
    offsets = dict(zip(shard.node_types, shard.node_offsets))
    ends = dict(zip(shard.node_types, shard.node_offsets[1:]))
    files = _files(spec, {kind: ends[kind] - offsets[kind] for kind in shard.node_types}, dtype)
    ranges, data = shard.type_ranges(), dict(shard.node_data)
    for kind, file in files.items():
        data[kind] = {**data[kind], "x": file.gather(shard.node_ids[ranges[kind]] - offsets[kind])}
    return replace(shard, node_data=data) if files else shard


def _files(
    spec: str | Mapping[str, Any] | None, sizes: Mapping[str, int], dtype: torch.dtype
) -> dict[str, MmapStore]:
    """Return the file of each node type that a store names one for; `sizes` has the nodes of each."""
    given = {} if spec is None else check_store(spec)[1]
    path = given.get("path")
    if path is None:
        return {}
    if len(sizes) == 1 and not isinstance(path, Mapping):
        return {kind: _file(path, count, dtype) for kind, count in sizes.items()}
    named = path if isinstance(path, Mapping) else sizes
    for kind in named:
        if kind not in sizes:
            raise RecipeError(f"store.path: no node type {kind!r}; the graph has: {', '.join(sizes)}")
    return {kind: _file(of_type(given, kind)["path"], sizes[kind], dtype) for kind in named}


def _file(path: str, num_nodes: int, dtype: torch.dtype) -> MmapStore:
    store = MmapStore(path, dtype=dtype)
    if len(store.shape) != 2 or store.shape[0] != num_nodes:
        raise GraphError(
            f"store.path: {path} is {list(store.shape)}; expected a matrix with a row for each of the "
            f"{num_nodes:,} nodes"
        )
    return store


def _memory(given: dict[str, Any], graph: Graph, _: Drawn, __: int) -> Store:
    return MemoryStore(_features(graph), **given)


def _mmap(given: dict[str, Any], graph: Graph, _: Drawn, __: int) -> Store:
    return MmapStore(given["path"], dtype=_type_of(graph))


def _shared(given: dict[str, Any], graph: Graph, _: Drawn, __: int) -> Store:
    return SharedStore(given["store"], field=given.get("field", "x"))


def _cached(given: dict[str, Any], graph: Graph, sampler: Drawn, batch_size: int) -> Store:
    x = graph.x
    behind: Store
    if "path" in given:
        behind = MmapStore(given.pop("path"), dtype=_type_of(graph))
    else:
        # In the bits of the cache, so that a run does not depend on what is held there.
        behind = x if isinstance(x, Store) else MemoryStore(_features(graph), storage=given.get("storage"))
    scores = _scores(given.pop("ranker", "out_degree"), graph, sampler, batch_size)
    return CachedStore(behind, scores, **given)


def _scores(ranker: str, graph: Graph, sampler: Drawn, batch_size: int) -> Tensor | None:
    if ranker == "frequency":
        if sampler is None:
            raise RecipeError("store.ranker: 'frequency' needs a strategy that samples; use 'out_degree'")
        return None if sampler == "later" else frequency(sampler, batch_size=batch_size)
    named = {"out_degree": out_degree, "importance": importance, "random": random_order}
    return named[ranker](graph)


def _features(graph: Graph) -> Tensor:
    return _dense(graph.x)


def _dense(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        kind = "none" if x is None else type(x).__name__
        hint = "sparse features need no store" if isinstance(x, SparseFeatures) else "name a file: store.path"
        hint = "it is one already" if isinstance(x, RowSource) else hint
        raise GraphError(f"a store of the graph's own x needs a dense matrix, got {kind}; {hint}")
    return x


def _type_of(graph: Graph) -> torch.dtype | None:
    """Return the type that features are computed with; None where the graph has none to tell."""
    return graph.x.dtype if isinstance(graph.x, Tensor | Store) else None


_OPENERS: dict[str, Callable[[dict[str, Any], Graph, Drawn, int], Store]] = {
    "memory": _memory,
    "sharded": _memory,
    "mmap": _mmap,
    "shared": _shared,
    "cached": _cached,
}
