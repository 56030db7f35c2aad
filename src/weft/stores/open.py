"""Stores as a recipe names them: `store = {name = "cached", path = "features.npy", capacity = 0.3}`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.config import bind
from weft.errors import GraphError, RecipeError
from weft.graph.graph import Graph
from weft.graph.parts.shard import Shard
from weft.reading.mapped import file_of
from weft.samplers.base import Sampler
from weft.stores.base import FeatureRows, Store, stores
from weft.stores.memory import MemoryStore
from weft.stores.mmap import MmapStore
from weft.stores.rankers import Reads, drawn_by, rankers
from weft.stores.typed import TypedStores

WHERE = "strategy.store"
_IN_NPY = (torch.float16, torch.float32, torch.float64)
Drawn = Sampler | Callable[[], Reads] | Literal["later"] | None
"""What draws the batches that a cache is for."""


def open_store(
    spec: str | Mapping[str, Any],
    graph: Graph | Shard,
    drawn: Drawn = None,
    *,
    group: Group | None = None,
    batch_size: int = 1024,
) -> Store | TypedStores:
    """Return the store of features that a recipe names, by name or as a table with options.

    Ranks of a `group` call together, each with its shard; one process is a group of one. A graph of several
    node types has a store for each that has features; options that name a file or a field are tables by type
    then. A cache is for the batches that are `drawn`: by a sampler, by what tells the nodes of each step, or
    "later", so that it holds nothing until `hold` is given scores.
    """
    name, options = check_store(spec)
    kind, group = stores[name], group or Group.alone()
    if group.size > 1 and not kind.on_workers:
        raise RecipeError(_one_process(name))
    types = [each for each in graph.node_types if "x" in graph.node_data[each]]
    types = types or list(graph.node_types[:1])
    made = {each: kind.open(_feature_rows(graph, each, group), **options) for each in types}
    typed = TypedStores(made, graph.node_types, graph.node_offsets, capacity=options.get("capacity", "auto"))
    if kind.caches:
        scores = _scores(options.get("ranker", "out_degree"), graph, group, drawn, batch_size)
        if scores is not None:
            typed.hold(scores, group.size)  # the ranks of a machine share its memory
    return typed if len(graph.node_types) > 1 else made[types[0]]


def check_store(spec: str | Mapping[str, Any], workers: int = 1) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a store, or say which is wrong, before anything is opened."""
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise RecipeError(f"{WHERE}: expected a name or a table with one, got {spec!r}")
    kind = stores[name]
    if not kind.by_recipe:
        able = ", ".join(each for each in stores.names() if stores[each].by_recipe)
        raise RecipeError(f"{WHERE}: {name!r} is made by its strategy; use one of {able}")
    if workers > 1 and not kind.on_workers:
        raise RecipeError(_one_process(name))
    target, provided = recipe_target(kind)
    bound = bind(target, options, WHERE, given=provided)
    for key, parameter in signature(target).parameters.items():
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and parameter.default is parameter.empty and key not in bound and key not in provided:
            raise RecipeError(f"{WHERE}.{key}: the store {name!r} needs it; set it")
    kind.check_options(bound)
    return name, bound


def recipe_target(kind: type[Store]) -> tuple[Callable[..., Store], tuple[str, ...]]:
    """Return what has the options of a store, and the arguments that a run provides.

    That is its `open`, or its constructor where it has none of its own: the first argument are rows then.
    """
    if getattr(kind.open, "__func__", None) is getattr(Store.open, "__func__", None):
        return kind, (next(iter(signature(kind).parameters)),)
    return kind.open, ("rows",)


def with_store(graph: Graph, store: Store | TypedStores) -> Graph:
    """Return the graph whose features are read from a store."""
    return graph.with_data(x=store.held if isinstance(store, TypedStores) else store)


def as_read(shard: Shard, spec: str | Mapping[str, Any]) -> Shard:
    """Return the shard with features as its store gives them, so that whoever reads x sees the same."""
    name, options = check_store(spec)
    data = {kind: dict(values) for kind, values in shard.node_data.items()}
    for values in data.values():
        x = values.get("x")
        if isinstance(x, Tensor):
            values["x"] = stores[name].as_read(x, **options)
    return replace(shard, node_data=data)


def with_file(graph: Graph, spec: str | Mapping[str, Any] | None, dtype: torch.dtype) -> Graph:
    """Return the graph with the features of the file that a store reads; as it is where there is none."""
    sizes = {kind: rows.stop - rows.start for kind in graph.node_types for rows in [graph.rows_of_type(kind)]}
    files = _files(spec, sizes, dtype)
    return graph.with_data(x=files) if files else graph


def by_rows(
    graph: Graph, spec: str | Mapping[str, Any] | None, dtype: torch.dtype, *, opened: bool = False
) -> Graph:
    """Return the graph whose float16 and bfloat16 features are widened row by row, where they are read.

    All at once they would take twice the bytes that somebody saved, or more. A store that keeps rows in bits
    of its own is given them wide, as it is given others. Of a graph that was just `opened` rows are read from
    the file that they are mapped from; else somebody may have changed them in memory.
    """
    name, options = (None, {}) if spec is None else check_store(spec)
    if name is not None and (not stores[name].over_stores or options.get("storage") is not None):
        return graph
    narrow = {kind: data["x"] for kind, data in graph.node_data.items() if _is_narrow(data.get("x"), dtype)}
    stored: dict[str, Store] = {}
    for kind, x in narrow.items():
        path = _file_of(x) if opened else None
        stored[kind] = MemoryStore(x, dtype=dtype) if path is None else MmapStore(path, dtype=dtype)
    return graph.with_data(x=stored, check=False) if stored else graph


def in_files(graph: Graph) -> Graph:
    """Return a graph that was just opened with features read row by row where they are mapped from files.

    So that passing over all of them leaves no pages behind, as mapped matrices do.
    """
    matrices = {kind: data.get("x") for kind, data in graph.node_data.items()}
    files = {kind: found for kind, x in matrices.items() if (found := _file_of(x)) is not None}
    stored = {kind: MmapStore(path) for kind, path in files.items()}
    return graph.with_data(x=stored, check=False) if stored else graph


def _file_of(x: Any) -> Path | None:
    """Return the `.npy` file that a matrix is mapped from; None where there is none, or of bfloat16."""
    if not isinstance(x, Tensor) or x.device.type != "cpu" or x.dtype not in _IN_NPY or not x.is_contiguous():
        return None
    there = file_of(x.numpy())
    return there.path if there is not None and there.path.suffix == ".npy" else None


def _is_narrow(x: Any, dtype: torch.dtype) -> bool:
    """Return whether features are a matrix on the host in fewer bits than are computed with."""
    small = isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16)
    return small and x.device.type == "cpu" and x.dtype.itemsize < dtype.itemsize


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
    path = None if spec is None else check_store(spec)[1].get("path")
    if path is None:
        return {}
    named = path if isinstance(path, Mapping) else sizes
    for kind in named:
        if kind not in sizes:
            raise RecipeError(f"{WHERE}.path: no node type {kind!r}; the graph has: {', '.join(sizes)}")
    files = {}
    for kind in named:
        rows = FeatureRows(None, sizes[kind], node_type=kind if len(sizes) > 1 else None)
        files[kind] = MmapStore(rows.option("path", path), dtype=dtype)
        shape = files[kind].shape
        if len(shape) != 2 or shape[0] != sizes[kind]:
            raise GraphError(
                f"{WHERE}.path: {files[kind].path} is {list(shape)}; expected a matrix with one row for each "
                f"of the {sizes[kind]:,} nodes"
            )
    return files


def _feature_rows(graph: Graph | Shard, kind: str, group: Group) -> FeatureRows:
    """Return what a run has of the features of one node type."""
    number, x = list(graph.node_types).index(kind), graph.node_data[kind].get("x")
    start, stop = graph.node_offsets[number : number + 2]
    ids = None
    if isinstance(graph, Shard):
        if not isinstance(x, Tensor):
            raise GraphError(f"{WHERE}: expected a dense matrix x, for each node type that has features")
        ids = graph.node_ids[graph.type_ranges()[kind]] - start
    several = len(graph.node_types) > 1
    return FeatureRows(x, stop - start, node_ids=ids, group=group, node_type=kind if several else None)


def _scores(ranker: str, graph: Graph | Shard, group: Group, drawn: Drawn, batch_size: int) -> Tensor | None:
    """Return the scores of a ranker; None where it needs to see batches that are drawn later."""
    if isinstance(drawn, Sampler):
        sampler = drawn
        return rankers[ranker](graph, group, lambda: drawn_by(sampler, batch_size=batch_size))
    if drawn != "later":
        return rankers[ranker](graph, group, drawn)
    try:
        return rankers[ranker](graph, group, _nothing_drawn)
    except _DrawnLaterError:
        return None


class _DrawnLaterError(Exception):
    """A ranker asks for batches before there are any."""


def _nothing_drawn() -> Reads:
    raise _DrawnLaterError


def _one_process(name: str) -> str:
    able = ", ".join(each for each in stores.names() if stores[each].on_workers and stores[each].by_recipe)
    return f"{WHERE}: {name!r} has the rows of one process; with --workers use one of {able}"
