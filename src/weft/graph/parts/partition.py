"""A partitioned graph on disk: `partition.json`, the assignment, and one folder of arrays a part.

`partition.json` is written last and lists the SHA-256 of every part's manifest, which lists that of every
array: its own hash stands for the whole partition, and a part of another partition cannot slip in. Parts are
written one after the other; reading a shard maps the folder of that part and touches no other.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from weft import format
from weft.errors import FormatError
from weft.graph.degrees import Degrees, RowDegrees
from weft.graph.files import as_array, check_rows, restore_value, store_value
from weft.graph.graph import Graph
from weft.graph.parts.assignment import Assignment, Cuts, Quality
from weft.graph.parts.cut import as_assignment
from weft.graph.parts.gathered import Gathering, InFolder
from weft.graph.parts.shard import Shard, edge_array, node_array, shard_cuts
from weft.graph.sparse import Features
from weft.reading.damage import reading
from weft.reading.json_values import Each, Maybe, WholeNumber, expect_shape, read_json

VERSION = 1
FILE = "partition.json"
_KIND = "shard"
_ARRAYS = ("node_ids", "node_part", "halo_ids", "halo_part", "indptr", "indices", "edge_ids")
_PLAIN = ("part", "num_parts", "num_nodes", "num_edges", "cuts", "node_types", "node_offsets", "edge_types")
_TARGET = ("edge_columns", "target_type", "num_classes", "multilabel", "grid")


@dataclass(frozen=True)
class PartInfo:
    """What `partition.json` says of one part."""

    folder: str
    nodes: int
    edges: int
    halo: int
    bytes: int
    manifest: str
    """SHA-256 of the manifest of its folder."""


@dataclass(frozen=True)
class PartitionInfo:
    """What `partition.json` says."""

    path: Path
    num_parts: int
    num_nodes: int
    num_edges: int
    cuts: Cuts
    name: str
    """The partitioner."""
    options: dict[str, Any]
    assignment: str
    """Fingerprint of who holds what: `Assignment.sha256`."""
    parts: list[PartInfo]
    quality: Quality | None = None
    grid: tuple[int, int] | None = None
    """Rows and columns of parts where `cuts` is "grid"."""
    sha256: str = field(default="")
    """Fingerprint of everything: assignment, edges and data of all parts."""


def write_partition(
    path: str | os.PathLike[str],
    graph: Graph,
    assignment: Assignment | Tensor,
    *,
    overwrite: bool = False,
    files: Mapping[str, bytes] | None = None,
    accept: Callable[[str], None] | None = None,
    watch: Callable[[float], None] = lambda _: None,
) -> PartitionInfo:
    """Write the shards of a graph as a folder that appears whole or not at all; return what it holds.

    Shards are written as they are cut: memory is a few numbers for each node, and some edges at a time.
    `files` are extra files by name, a picture for instance. `accept` is given the fingerprint before the
    folder appears; what it raises leaves everything as it was. `watch` is told which share is written.
    """
    assignment = as_assignment(graph, assignment)
    with format.new_directory(path, overwrite, marker=FILE) as folder:
        parts: list[PartInfo] = []
        for cut in shard_cuts(graph, assignment):
            watch(len(parts) / assignment.num_parts)
            parts.append(_write_shard(folder / _folder_of(len(parts)), cut, assignment.sha256))
        format.write_directory(
            folder / "assignment", {"parts": as_array(assignment.parts)}, {"kind": "assignment"}
        )
        for name, data in (files or {}).items():
            format.atomic_write(folder / name, data)
        body = _manifest(graph, assignment, [vars(part) for part in parts])
        digest = _digest(body)
        if accept is not None:
            accept(digest)
        format.atomic_write(folder / FILE, json.dumps({**body, "sha256": digest}, indent=1).encode())
    return read_partition(path)


def _manifest(graph: Graph, assignment: Assignment, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the file of a partition says, but for its fingerprint."""
    grid = {} if assignment.grid is None else {"grid": list(assignment.grid)}
    return {
        "kind": "weft partition",
        "version": VERSION,
        "num_parts": assignment.num_parts,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "cuts": assignment.cuts,
        "name": assignment.name,
        "options": assignment.options,
        "assignment": assignment.sha256,
        "parts": parts,
        "quality": None if assignment.quality is None else assignment.quality.to_dict(),
        **grid,
    }


def read_partition(path: str | os.PathLike[str]) -> PartitionInfo:
    """Return what a partitioned graph holds; no part is opened."""
    folder = Path(path)
    file = folder / FILE
    if not folder.exists():
        raise FormatError(
            f"{folder}: no such folder; `weft partition GRAPH --parts N --out {folder}` makes it"
        )
    if (folder / format.MANIFEST).is_file() and not file.is_file():
        raise FormatError(
            f"{folder} is a whole graph; cut it with `weft partition {folder} --parts N --out PARTS`"
        )
    if not file.is_file():
        raise FormatError(f"{folder} holds no {FILE}: expected a folder that `weft partition` wrote")
    format.expect_no_link(file)
    body = read_json(file, {"kind": str, "version": WholeNumber(), "sha256": str})
    kind, version, told = body["kind"], body["version"], body.pop("sha256")
    if kind != "weft partition" or version > VERSION:
        raise FormatError(
            f"{file}: {kind!r} version {version}, this weft reads 'weft partition' up to version {VERSION}; "
            "upgrade weft, or make the parts again"
        )
    if _digest(body) != told:
        raise FormatError(f"{file}: damaged, its checksum differs; partition the graph again")
    expect_shape(body, _BODY, file)
    with reading(file):
        return _info(folder, body, told)


_BODY = {
    "num_parts": WholeNumber(1, 2**31 - 1),
    "num_nodes": WholeNumber(),
    "num_edges": WholeNumber(),
    "cuts": str,
    "name": str,
    "options": Each(object),
    "assignment": str,
    "quality": Maybe(Each(object)),
    "parts": [
        dict.fromkeys(("folder", "manifest"), str)
        | {key: WholeNumber() for key in ("nodes", "edges", "halo", "bytes")}
    ],
    "grid": Maybe([WholeNumber(1)]),
}


def _info(folder: Path, body: Mapping[str, Any], told: str) -> PartitionInfo:
    for place, part in enumerate(body["parts"]):
        if part["folder"] != _folder_of(place):
            raise FormatError(f"{folder / FILE}: part {place} lies in {part['folder']!r}, not in the folder")
    if len(body["parts"]) != body["num_parts"]:
        raise FormatError(f"{folder / FILE}: lists {len(body['parts'])} of {body['num_parts']} parts")
    quality = None if body["quality"] is None else Quality.from_dict(body["quality"])
    plain = {item.name: body[item.name] for item in fields(PartitionInfo) if item.name in body}
    plain |= {"parts": [PartInfo(**part) for part in body["parts"]], "quality": quality}
    plain["grid"] = _shape(body.get("grid"))
    return PartitionInfo(path=folder, sha256=told, **plain)


def read_shard(path: str | os.PathLike[str], part: int, *, verify: bool = True) -> Shard:
    """Return the shard of one part, mapped from its folder; memory is that of the part.

    `verify` reads every byte of the part once to compare checksums.
    """
    info = read_partition(path)
    if not 0 <= part < info.num_parts:
        raise FormatError(f"{info.path}: no part {part}, it has parts 0 … {info.num_parts - 1}")
    entry = info.parts[part]
    folder = info.path / entry.folder
    format.expect_no_link(folder)
    manifest = folder / format.MANIFEST
    if manifest.is_file() and hashlib.sha256(manifest.read_bytes()).hexdigest() != entry.manifest:
        raise FormatError(
            f"{folder}: not the part that {FILE} lists; copy part {part} of the same partition again"
        )
    arrays, meta = format.read_directory(folder, verify)
    with reading(folder):
        shard = _assemble(arrays, meta)
        _check(folder, shard, info, part, verify)
    return shard


def _write_shard(folder: Path, cut: Callable[[Gathering], Shard], assignment: str) -> PartInfo:
    with format.new_directory(folder) as partial:
        place = InFolder(partial)
        shard = cut(place)
        arrays, meta = _stored(shard, assignment)
        for name, array in arrays.items():
            place.put(name, array)
        format.seal_directory(partial, meta, arrays=place.entries)
    manifest = (folder / format.MANIFEST).read_bytes()
    size = sum(file.stat().st_size for file in folder.iterdir())
    counts = len(shard.node_ids), len(shard.edge_ids), len(shard.halo_ids)
    return PartInfo(folder.name, *counts, size, hashlib.sha256(manifest).hexdigest())


def _stored(shard: Shard, assignment: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays of a shard by name and what its manifest says."""
    arrays = {key: as_array(getattr(shard, key)) for key in _ARRAYS}
    if shard.edge_type is not None:
        arrays["edge_type"] = as_array(shard.edge_type)
    for direction, degrees in (("in", shard.degrees.into), ("out", shard.degrees.out_of)):
        held = {item.name: getattr(degrees, item.name) for item in fields(degrees)}
        arrays |= {
            f"degree_{direction}_{key}": as_array(value) for key, value in held.items() if value is not None
        }
    meta = {"kind": _KIND, "assignment": assignment} | {key: getattr(shard, key) for key in _PLAIN + _TARGET}
    meta["edge_data"] = [
        store_value(edge_array(index), {"name": key}, value, arrays)
        for index, (key, value) in enumerate(shard.edge_data.items())
    ]
    meta["node_data"] = [
        store_value(node_array(number, index), {"type": kind, "name": key}, value, arrays)
        for number, kind in enumerate(shard.node_types)
        for index, (key, value) in enumerate(shard.node_data[kind].items())
    ]
    return arrays, meta


def _assemble(arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Shard:
    node_data: dict[str, dict[str, Features]] = {kind: {} for kind in meta["node_types"]}
    for entry in meta["node_data"]:
        node_data[entry["type"]][entry["name"]] = restore_value(entry, arrays)
    edge_data = {entry["name"]: restore_value(entry, arrays) for entry in meta["edge_data"]}
    plain = {key: meta[key] for key in _PLAIN + _TARGET if key != "grid"}
    plain["grid"] = _shape(meta.get("grid"))
    plain["edge_types"] = [(source, name, target) for source, name, target in meta["edge_types"]]
    plain |= {key: torch.from_numpy(arrays[key]) for key in _ARRAYS}
    return Shard(
        **plain,
        edge_type=torch.from_numpy(arrays["edge_type"]) if "edge_type" in arrays else None,
        edge_data={name: value for name, value in edge_data.items() if isinstance(value, Tensor)},
        degrees=Degrees(_degrees(arrays, "in"), _degrees(arrays, "out")),
        node_data=node_data,
    )


def _degrees(arrays: dict[str, NDArray[Any]], direction: str) -> RowDegrees:
    held: dict[str, Any] = {}
    for item in fields(RowDegrees):
        array = arrays.get(f"degree_{direction}_{item.name}")
        held[item.name] = None if array is None else torch.from_numpy(array)
    return RowDegrees(**held)


def _check(folder: Path, shard: Shard, info: PartitionInfo, part: int, verify: bool) -> None:
    told = (shard.part, shard.num_parts, shard.num_nodes, shard.num_edges, shard.cuts)
    if told != (part, info.num_parts, info.num_nodes, info.num_edges, info.cuts):
        raise FormatError(f"{folder}: holds part {shard.part} of {shard.num_parts} of another partition")
    rows, edges = len(shard.node_ids) + len(shard.halo_ids), len(shard.edge_ids)
    targets = rows if shard.cuts == "grid" else len(shard.node_ids)
    lengths = [
        len(shard.indptr) - 1 == targets,
        len(shard.node_ids) == len(shard.node_part),
        len(shard.indices) == edges,
    ]
    lengths += [len(shard.halo_ids) == len(shard.halo_part), len(shard.degrees.into.count) == rows]
    lengths += [len(value) == edges for value in shard.edge_data.values()]
    ranges = shard.type_ranges()
    for kind, data in shard.node_data.items():
        size = ranges[kind].stop - ranges[kind].start
        lengths += [len(value) == size for value in data.values()]
    if not all(lengths):
        raise FormatError(f"{folder}: the arrays of the part do not fit together; partition the graph again")
    if verify:
        check_rows(folder, "edges", shard.indptr, shard.indices, rows)


def _folder_of(part: int) -> str:
    return f"part-{part:05d}"


def _shape(told: Any) -> tuple[int, int] | None:
    return None if told is None else (int(told[0]), int(told[1]))


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
