"""The parts of a graph that workers hold: cut once, kept in the run's folder, each worker reads its own."""

import gc
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from weft.comm.plan import spread
from weft.errors import GraphError, RecipeError
from weft.events import dumps
from weft.graph.assignment import Assignment
from weft.graph.graph import Graph
from weft.graph.partition import FILE, read_partition, read_shard, write_partition
from weft.graph.shard import Shard, make_shards
from weft.partitioners import partition
from weft.partitioners.base import partitioners
from weft.strategies.base import strategies
from weft.strategies.distributed import Distributed
from weft.strategies.local import LocalGraph
from weft.train.model import adapt, wants_self_loops

if TYPE_CHECKING:
    from weft.train.launch import Resolved

_SUMMARY = "graph.json"
_SOURCE = "made_of.json"


def cut(
    graph: Graph, num_parts: int, kind: type[Distributed], options: Mapping[str, Any], *, workers: int = 1
) -> Assignment:
    """Return the parts of a graph as `[strategy]` says: `partitioner` a name or a table."""
    asked = options.get("partitioner", kind.partitioner)
    given = {"name": kind.partitioner} | ({"name": asked} if isinstance(asked, str) else dict(asked))
    name = given["name"]
    if not isinstance(name, str):
        raise RecipeError("strategy.partitioner: expected a name or a table with one")
    wanted = "edges" if kind.cuts == "edges" else "nodes"
    if partitioners[name].cuts != wanted:
        fitting = ", ".join(each for each in partitioners.names() if partitioners[each].cuts == wanted)
        raise RecipeError(
            f"strategy.partitioner: {name!r} gives parts of {partitioners[name].cuts}, {kind.name!r} needs "
            f"parts of {wanted}: {fitting}"
        )
    return kind.arranged(partition(graph, num_parts, **given), options, workers)


def whole_in_parts(graph: Graph, kind: type[Distributed], options: Mapping[str, Any]) -> LocalGraph:
    """Return all parts of a graph as this one process holds them."""
    kind.layout(options, 1)
    shards = make_shards(graph, cut(graph, options.get("parts") or 1, kind, options))
    return LocalGraph(Shard.merge(shards), facts=graph.summary())


def prepare_parts(resolved: "Resolved", out: Path, *, workers: int) -> Path:
    """Write the partition of the run's graph into its folder, unless it is there; return where it is.

    The graph is let go again: the process that starts the workers stays small.
    """
    num_parts = resolved.strategy_options.get("parts") or workers
    if num_parts < workers:
        raise RecipeError(
            f"strategy.parts: {num_parts} parts cannot occupy {workers} workers; ask for at least {workers}"
        )
    folder = out / "partition"
    kind = cast(type[Distributed], strategies[resolved.strategy])
    layout = kind.layout(resolved.strategy_options, workers)
    source = _source(resolved, num_parts, {"cuts": kind.cuts, "by": kind.partitioner, **layout})
    if _made_of(folder) == source:
        return folder
    graph = adapt(resolved.open(), resolved.model)
    if graph.num_nodes < num_parts:
        raise GraphError(f"the graph has {graph.num_nodes} nodes, too few for {num_parts} parts; use fewer")
    files = {_SUMMARY: dumps(graph.summary()).encode(), _SOURCE: dumps(source).encode()}
    assignment = cut(graph, num_parts, kind, resolved.strategy_options, workers=workers)
    out.mkdir(parents=True, exist_ok=True)
    write_partition(folder, graph, assignment, overwrite=True, files=files)
    del graph, assignment
    gc.collect()
    return folder


def read_parts(
    folder: Path, *, rank: int, workers: int, dtype: torch.dtype
) -> tuple[LocalGraph, dict[str, Any]]:
    """Return what one worker holds, mapped from the folders of its parts, and what tells partitions apart."""
    info = read_partition(folder)
    held = [part for part, owner in enumerate(spread(info.num_parts, workers)) if owner == rank]
    shard = Shard.merge([read_shard(folder, part) for part in held])
    facts = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
    identity = {"parts": info.num_parts, "partition": info.sha256}
    return LocalGraph(shard, dtype=dtype, facts=facts), identity


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
                "self_loops": wants_self_loops(resolved.model),
                "layout": layout,
                "partitioner": resolved.strategy_options.get("partitioner"),
                "parts": num_parts,
            }
        )
    )
    return made


def _made_of(folder: Path) -> Any:
    """Return what the partition in a folder was made of, None where there is none that can be read."""
    try:
        told = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if (folder / FILE).is_file() else None
