"""Partitions that DGL made: its folder's JSON and plain arrays, never its binary or pickled files.

DGL renumbers nodes so that a part owns a range of new ids a type, and writes those ranges into the JSON as
`node_map`. To say which of *your* nodes they are, the original id of each new id is needed: an array that
`dgl.distributed.partition_graph(..., return_mapping=True)` returns. Save it with `numpy.save` beside the JSON
as `orig_nids.npy` (`orig_nids_TYPE.npy` for several types). Where DGL did not renumber (`reshuffle=False`),
`node_map` names an .npy file with the part of each node, and nothing else is needed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import FormatError
from weft.graph.graph import Graph
from weft.partitioners.base import Partitioner, partitioners
from weft.reading import json_values
from weft.reading.arrays import read_npy
from weft.reading.json_values import Maybe, WholeNumber

_PLAIN_TYPE = "_N"  # what DGL calls the only node type


@partitioners.add("dgl")
class DglPartition(Partitioner):
    """Take the parts from a folder that DGL's `partition_graph` wrote, for the graph it was made of."""

    isolated = False

    def __init__(self, *, path: str | Path, renumbered: bool = False, seed: int = 0) -> None:
        """`path` is the JSON file or its folder; `renumbered`: the graph given is in DGL's new ids."""
        super().__init__(seed=seed)
        self.path = Path(path)
        self.renumbered = renumbered

    def assign(self, graph: Graph, num_parts: int) -> Tensor:
        """Return the part of each node as DGL placed it."""
        file, told = read_json(self.path)
        if told["num_parts"] != num_parts:
            raise FormatError(f"{file}: has {told['num_parts']} parts, {num_parts} were asked for")
        if told.get("num_nodes") not in (None, graph.num_nodes):
            raise FormatError(f"{file}: is of {told['num_nodes']:,} nodes, the graph has {graph.num_nodes:,}")
        node_map = told.get("node_map")
        if isinstance(node_map, str):
            return _parts_array(_beside(file, node_map), graph.num_nodes)
        maps = node_map if isinstance(node_map, dict) else {_PLAIN_TYPE: node_map}
        parts = torch.empty(graph.num_nodes, dtype=torch.int32)
        for kind in graph.node_types:
            rows = graph.rows_of_type(kind)
            parts[rows] = self._of_type(file, maps, kind, graph)
        return parts

    def _of_type(self, file: Path, maps: dict[str, Any], kind: str, graph: Graph) -> Tensor:
        plain = len(graph.node_types) == 1 and kind not in maps
        theirs = _PLAIN_TYPE if plain else kind
        if theirs not in maps:
            raise FormatError(f"{file}: has no node type {kind!r}; it has: {', '.join(maps)}")
        rows = graph.rows_of_type(kind)
        count = rows.stop - rows.start
        parts = _from_ranges(file, maps[theirs], theirs, count)
        if self.renumbered:
            return torch.from_numpy(parts)
        names = ([] if len(graph.node_types) > 1 else ["orig_nids.npy"]) + [f"orig_nids_{theirs}.npy"]
        found = next((file.parent / name for name in names if (file.parent / name).is_file()), None)
        if found is None:
            raise FormatError(
                f"{file}: node_map gives ranges of DGL's new ids; save the original id of each, which "
                f"partition_graph(..., return_mapping=True) gives, with numpy.save beside it as {names[0]}, "
                "or pass renumbered=true if the graph is in DGL's new ids"
            )
        original = _load(found)
        if original.shape != (count,) or not np.array_equal(np.sort(original), np.arange(count)):
            raise FormatError(f"{found}: expected each of {count:,} original ids once")
        placed = np.empty(count, dtype=np.int32)
        placed[original] = parts
        return torch.from_numpy(placed)


_SHAPE = {"num_parts": WholeNumber(1), "num_nodes": Maybe(WholeNumber())}


def read_json(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the JSON file of a partition and what it says; `path` is the file or the folder it lies in."""
    file = path
    if path.is_dir():
        held = sorted(path.glob("*.json"))
        if len(held) != 1:
            raise FormatError(
                f"{path}: expected one JSON file of a DGL partition, found {len(held)}; name it"
            )
        file = held[0]
    if not file.is_file():
        raise FormatError(f"{file}: no such file; give the JSON that DGL's partition_graph wrote")
    try:
        told = json_values.read_json(file, _SHAPE)
    except FormatError as error:
        raise FormatError(
            f"{error}; give the JSON of a DGL partition, its .dgl and .pt files are not read"
        ) from error
    if "node_map" not in told or any(f"part-{part}" not in told for part in range(told["num_parts"])):
        raise FormatError(f"{file}: not the description of a DGL partition: num_parts, node_map and part-N")
    return file, told


def _from_ranges(file: Path, ranges: Any, kind: str, count: int) -> NDArray[np.int32]:
    parts = np.full(count, -1, dtype=np.int32)
    try:
        for part, (begin, end) in enumerate(ranges):
            parts[int(begin) : int(end)] = part
        covered = sum(int(end) - int(begin) for begin, end in ranges) == count and bool((parts >= 0).all())
    except (OverflowError, TypeError, ValueError):
        covered = False
    if not covered:
        raise FormatError(f"{file}: the ranges of {kind!r} in node_map do not cover its {count:,} nodes once")
    return parts


def _parts_array(path: Path, count: int) -> Tensor:
    parts = _load(path)
    if parts.shape != (count,) or parts.dtype.kind not in "iu":
        raise FormatError(
            f"{path}: expected the part of each of {count:,} nodes, got {parts.dtype} {parts.shape}"
        )
    return torch.from_numpy(parts.astype(np.int32))


def _beside(file: Path, name: str) -> Path:
    """Return the path of a file that the JSON names; only files in its own folder are opened."""
    path = file.parent / Path(name).name
    if not path.is_file():
        raise FormatError(f"{file}: names {name!r}, but {path} does not exist")
    return path


def _load(path: Path) -> NDArray[Any]:
    return read_npy(path)
