"""The parts of a graph that workers hold: cut once, kept in the run's folder, each worker reads its own.

The data of a run may be cut already, by `weft partition`: then nobody reads the whole graph.
"""

import gc
import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from weft.code import is_code
from weft.comm.plan import spread
from weft.config import differences
from weft.errors import FormatError, GraphError, InputError, RecipeError
from weft.events import dumps
from weft.format import expect_no_link
from weft.graph.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.partition import FILE, read_partition, read_shard, write_partition
from weft.graph.parts.shard import Shard, make_shards
from weft.graph.row_ranges import some_edges
from weft.partitioners import partition
from weft.partitioners.base import partitioners
from weft.reading.damage import reading
from weft.reading.json_values import Each, WholeNumber, read_json
from weft.strategies.base import Strategy, strategies
from weft.strategies.local import LocalGraph
from weft.tasks.base import Task
from weft.train.model import adapt, wants_self_loops
from weft.train.saved.checkpoint import Checkpoints

if TYPE_CHECKING:
    from weft.train.resolve import Resolved

_SUMMARY = "graph.json"
_SOURCE = "made_of.json"
_SUMS = "task_files.json"
"""SHA-256 of each file of the task, by name."""
_LOOPS = "self_loop_at_every_node"


def cut(
    graph: Graph, num_parts: int, kind: type[Strategy], options: Mapping[str, Any], *, workers: int = 1
) -> Assignment:
    """Return the parts of a graph as `[strategy]` says: `partitioner` a name or a table."""
    options_bound = check_partitioner(kind, options)
    return kind.arranged(partition(graph, num_parts, **options_bound), options, workers)


def check_partitioner(kind: type[Strategy], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the options of the partitioner; refuse one whose parts the strategy cannot use."""
    choice = kind.partitioning(options)
    name = choice["name"]
    if not isinstance(name, str):
        raise RecipeError("strategy.partitioner: expected a name or a table with one")
    if "watch" in choice:  # who is told how far it is, which no recipe can name
        raise RecipeError("unknown key strategy.partitioner.watch")
    wanted = "edges" if kind.cuts == "edges" else "nodes"
    if partitioners[name].cuts != wanted:
        fitting = ", ".join(each for each in partitioners.names() if partitioners[each].cuts == wanted)
        raise RecipeError(
            f"strategy.partitioner: {name!r} gives parts of {partitioners[name].cuts}, {kind.name!r} needs "
            f"parts of {wanted}: {fitting}"
        )
    return choice


def whole_in_parts(graph: Graph, kind: type[Strategy], options: Mapping[str, Any]) -> LocalGraph:
    """Return all parts of a graph as this one process holds them."""
    kind.arrangement(options, 1)
    shards = make_shards(graph, cut(graph, options.get("parts") or 1, kind, options))
    return LocalGraph(Shard.merge(shards), facts=graph.summary())


def prepare_parts(resolved: "Resolved", out: Path, *, workers: int) -> Path:
    """Write the partition of the run's graph into its folder, unless it is there; return where it is.

    The graph is let go again: the process that starts the workers stays small.
    """
    ready_parts = resolved.partition
    kind = strategies[resolved.strategy]
    num_parts = kind.num_parts(resolved.strategy_options, workers)
    num_parts = num_parts if ready_parts is None else read_partition(ready_parts).num_parts
    if num_parts < workers:
        where = "strategy.parts" if ready_parts is None else f"data.path: {ready_parts}"
        raise RecipeError(
            f"{where}: {num_parts} parts cannot occupy {workers} workers; ask for at least {workers}"
        )
    if ready_parts is not None:
        return ready_parts
    folder = out / "partition"
    layout = kind.arrangement(resolved.strategy_options, workers)
    check_partitioner(kind, resolved.strategy_options)
    source = _source(resolved, num_parts, {"cuts": kind.cuts, "by": kind.partitioner, **layout})
    made = _made_of(folder)
    if made == source and resolved.graph is None:  # of a graph in memory nothing tells whether it is the same
        return folder
    if made is None and (folder / FILE).is_file():
        raise InputError(f"{folder} holds a partition that no run made; choose another folder for the run")
    whole = resolved.open()
    task = resolved.make_task(whole)
    graph = adapt(task.prepared(whole), resolved.model, resolved.options, task)
    del whole
    if graph.num_nodes < num_parts:
        raise GraphError(f"the graph has {graph.num_nodes} nodes, too few for {num_parts} parts; use fewer")
    files = {**facts_files(graph), **task_files(task), _SOURCE: dumps(source).encode()}
    assignment = cut(graph, num_parts, kind, resolved.strategy_options, workers=workers)
    out.mkdir(parents=True, exist_ok=True)

    def accept(new: str) -> None:
        _check_kept(out, new, made, source)

    write_partition(folder, graph, assignment, overwrite=True, files=files, accept=accept)
    del graph, assignment
    gc.collect()
    return folder


def _check_kept(out: Path, new: str, made: Any, source: Mapping[str, Any]) -> None:
    """Refuse parts, by their fingerprint, that are not those of the run in `out`, if there is one."""
    saved = Checkpoints(out / "checkpoint").load()
    kept = None if saved is None else saved.state["recipe"].get("graph", {}).get("partition")
    if kept not in (None, new):
        changed = "; ".join(differences(made, source)) if isinstance(made, dict) else ""
        raise RecipeError(
            f"{out} was started with other parts ({changed or 'the graph is another'}); continue it unchanged"
        )


def facts_files(graph: Graph) -> dict[str, bytes]:
    """Return what a partition keeps of the whole graph beside its parts, as files by name."""
    edges = some_edges(graph.indptr, graph.indices)
    loops = sum(len(torch.unique_consecutive(dst[src == dst])) for src, dst in edges)
    return {_SUMMARY: dumps({**graph.summary(), _LOOPS: loops == graph.num_nodes}).encode()}


def task_files(task: Task) -> dict[str, bytes]:
    """Return what a task leaves beside the parts, and what tells whether it is still that."""
    files = task.files()
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return {**files, _SUMS: dumps(sums).encode()} if files else {}


def read_task_files(task: Task, folder: Path) -> None:
    """Have a task take what lies beside the parts, unless that was damaged since it was written."""
    if (folder / _SUMS).is_file():  # parts that were cut before there were such sums have none
        sums: dict[str, str] = read_json(folder / _SUMS, Each(str))
        for name, expected in sums.items():
            if Path(name).name != name:
                raise FormatError(f"{folder / _SUMS}: {name!r} lies outside of the folder")
            expect_no_link(folder / name)
            with reading(folder / name), open(folder / name, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                    raise FormatError(
                        f"{folder / name}: damaged, its checksum differs; delete {folder}: the run then cuts "
                        "its graph anew"
                    )
    task.read(folder)


def partition_of(data: Mapping[str, Any]) -> Path | None:
    """Return the folder of parts that the data of a recipe is; None where it is a graph."""
    path = Path(data["path"]) if isinstance(data.get("path"), str) else None
    return path if path is not None and (path / FILE).is_file() else None


def holds_parts(out: str | Path | None) -> bool:
    """Return whether a run's folder has its graph in parts, as several workers had it."""
    return out is not None and (Path(out) / "partition" / FILE).is_file()


def check_partition(
    folder: Path, *, data: Mapping[str, Any], model: str, options: Mapping[str, Any], cuts: str
) -> None:
    """Refuse a folder of parts that does not fit the rest of a recipe; `cuts` is what the strategy needs."""
    info = read_partition(folder)
    asked = options.get("parts")
    again = f"weft partition GRAPH --parts {asked or info.num_parts}"
    for key in data:
        if key != "path":
            raise RecipeError(
                f"data.{key}: {folder} is a graph in parts and stays as it is; cut it anew with `{again} "
                f"--set data.{key}=...`"
            )
    if asked not in (None, info.num_parts):
        raise RecipeError(
            f"strategy.parts: {folder} holds {info.num_parts} parts, {asked} were asked for; leave out "
            f"--parts, or cut the graph anew with `{again}`"
        )
    if "partitioner" in options:
        raise RecipeError(
            f"strategy.partitioner: {folder} was cut already, by {info.name!r}; leave the partitioner out"
        )
    if cuts == "grid" and info.cuts != cuts:
        raise RecipeError(
            f"data.path: {folder} holds parts of {info.cuts}; a grid is cut by the run itself, for its rows "
            "and columns: give it the graph"
        )
    if info.cuts != cuts:
        raise RecipeError(
            f"data.path: {folder} holds parts of {info.cuts}, the strategy needs parts of {cuts}; give it "
            "the graph itself, or cut the graph anew with another partitioner"
        )
    if not is_code(model):
        check_loops(folder, model)


def check_loops(folder: Path, model: nn.Module | str) -> None:
    """Refuse a graph that was cut without the self loops that the model needs."""
    if wants_self_loops(model) and not (facts_of(folder) or {}).get(_LOOPS):
        name = model if isinstance(model, str) else type(model).__name__
        raise RecipeError(
            f"model.name: {name!r} needs a self loop at every node, and {folder} was cut without; cut the "
            f"graph anew with `weft partition GRAPH --parts {read_partition(folder).num_parts} --set "
            "data.self_loops=true`"
        )


def read_parts(
    folder: Path, *, rank: int, workers: int, dtype: torch.dtype, part_rank: Sequence[int] | None = None
) -> tuple[LocalGraph, dict[str, Any]]:
    """Return what one worker holds, mapped from the folders of its parts, and what tells partitions apart.

    `part_rank` says who holds each part, where that is not the usual.
    """
    info = read_partition(folder)
    owners = spread(info.num_parts, workers) if part_rank is None else part_rank
    own = [part for part, owner in enumerate(owners) if owner == rank]
    shard = Shard.merge([_read(folder, part) for part in own])
    facts = facts_of(folder)
    if facts is not None:
        facts.pop(_LOOPS, None)
    identity: dict[str, Any] = {"parts": info.num_parts, "partition": info.sha256}
    if part_rank is not None:
        identity["part_rank"] = list(part_rank)
    return LocalGraph(shard, dtype=dtype, facts=facts), identity


def read_whole(folder: Path, dtype: torch.dtype, features: bool) -> Shard:
    """Return all parts of a graph as one shard; without features where nobody reads them."""
    shards = [_read(folder, part) for part in range(read_partition(folder).num_parts)]
    if not features:
        shards = [replace(shard, node_data=_without_features(shard)) for shard in shards]
    return LocalGraph(Shard.merge(shards), dtype=dtype).home


class SharedWhole:
    """All parts of a graph, read once for the members that one process holds."""

    def __init__(self) -> None:
        self._held: dict[bool, Shard] = {}
        self._lock = threading.Lock()

    def read(self, folder: Path, dtype: torch.dtype, features: bool) -> Shard:
        """Return what `read_whole` does; who needs no features takes what is there with them."""
        with self._lock:
            if not (features in self._held or True in self._held):
                self._held = {features: read_whole(folder, dtype, features)}
            return self._held[True] if True in self._held else self._held[features]


def _without_features(shard: Shard) -> dict[str, Any]:
    return {
        kind: {name: value for name, value in data.items() if name != "x"}
        for kind, data in shard.node_data.items()
    }


def _read(folder: Path, part: int) -> Shard:
    try:
        return read_shard(folder, part)
    except FormatError as error:
        if not (folder / _SOURCE).is_file():
            raise
        raise FormatError(f"{error}; delete {folder}: the run then cuts its graph anew") from None


def _source(resolved: "Resolved", num_parts: int, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the partition depends on; a file that was changed since makes another one."""
    data = resolved.to_dict()["data"]
    path = Path(data["path"]) if "path" in data else None
    stamp = path.stat() if path is not None and path.exists() else None
    made: dict[str, Any] = json.loads(
        dumps(
            {
                "data": data,
                "file": None if stamp is None else [stamp.st_size, stamp.st_mtime_ns],
                "task": {**resolved.task.to_dict(), **_hides(resolved)},
                "self_loops": _loops(resolved),
                "layout": layout,
                "partitioner": resolved.strategy_options.get("partitioner"),
                "parts": num_parts,
            }
        )
    )
    return made


def _hides(resolved: "Resolved") -> dict[str, bool]:
    """Return whether steps hide their own pairs, where targets are pairs; else some are never messages."""
    pairs = any(kind.over == "pairs" for kind in resolved.task.kinds)
    return {"hides_batches": strategies[resolved.strategy].hides_batches} if pairs else {}


def _loops(resolved: "Resolved") -> Any:
    """Return whether the graph is given self loops, or the model of the user's own that decides it."""
    own = is_code(resolved.model)
    return resolved.to_dict()["model"] if own else wants_self_loops(resolved.model)


_FACTS = {
    "num_nodes": WholeNumber(),
    "num_edges": WholeNumber(),
    "features": Each({"columns": WholeNumber()}),
}


def facts_of(folder: Path) -> dict[str, Any] | None:
    """Return what a partition keeps of the whole graph; None where it was made without."""
    file = folder / _SUMMARY
    if not file.is_file():
        return None
    try:
        facts: dict[str, Any] = read_json(file, _FACTS)
    except FormatError as error:
        raise FormatError(f"{error}; partition the graph again") from None
    return facts


def _made_of(folder: Path) -> Any:
    """Return what the partition in a folder was made of, None where there is none that can be read."""
    try:
        source = read_json(folder / _SOURCE)
    except FormatError:
        return None
    return source if (folder / FILE).is_file() else None
