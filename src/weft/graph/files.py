"""A graph as a folder: arrays in canonical order, mapped back without a copy.

What `format.py` cannot know is checked here: that pointers ascend, that edges end at nodes, that every array
has the rows it must have. Kernels trust these, so a folder made by hand must not get past.
"""

import os
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft import format
from weft.errors import FormatError, GraphError
from weft.graph.build import Parts
from weft.graph.checks import is_csr, within
from weft.graph.ids import from_parquet, to_parquet
from weft.graph.row_ranges import EDGES_AT_ONCE
from weft.graph.source import RowSource
from weft.graph.sparse import Features, SparseFeatures
from weft.graph.topology import Csr, Topology
from weft.reading.damage import reading
from weft.reading.mapped import read_between

_KIND = "graph"


def write(path: str | os.PathLike[str], parts: Parts, overwrite: bool = False) -> None:
    """Write the parts of a graph, edge data in canonical order, as a folder."""
    assert parts.edge_data_is_canonical
    csr = parts.topology.csr
    arrays = {
        "indptr": as_array(csr.indptr),
        "indices": as_array(csr.indices),
        "edge_ids": as_array(csr.edge_ids),
    }
    if csr.edge_type is not None:
        arrays["edge_type"] = as_array(csr.edge_type)
    edges = [
        store_value(f"edge_{index}", {"name": name}, value, arrays)
        for index, (name, value) in enumerate(parts.edge_data.items())
    ]
    nodes = [
        store_value(f"node_{number}_{index}", {"type": kind, "name": name}, value, arrays)
        for number, kind in enumerate(parts.node_types)
        for index, (name, value) in enumerate(parts.node_data[kind].items())
    ]
    ids = {
        kind: f"ids_{number}.parquet"
        for number, kind in enumerate(parts.node_types)
        if kind in parts.node_ids
    }
    meta = {
        "kind": _KIND,
        "num_nodes": parts.topology.num_nodes,
        "num_edges": parts.topology.num_edges,
        "node_types": parts.node_types,
        "node_offsets": parts.node_offsets,
        "edge_types": parts.edge_types,
        "edge_columns": parts.edge_columns,
        "target_type": parts.target_type,
        "node_data": nodes,
        "edge_data": edges,
        "node_ids": ids,
    }
    extra = {name: to_parquet(parts.node_ids[kind]) for kind, name in ids.items()}
    format.write_directory(path, arrays, meta, overwrite, files=extra)


def read(path: str | os.PathLike[str], verify: bool = True) -> Parts:
    """Return the parts of the graph in a folder, tensors mapped from its files."""
    arrays, meta = format.read_directory(path, verify)
    if meta.get("kind") != _KIND:
        raise FormatError(f"{path}: holds {meta.get('kind', 'something')!r}, not a graph")
    with reading(os.fspath(path)):
        return _assemble(path, arrays, meta, verify)


def _assemble(path: Any, arrays: dict[str, NDArray[Any]], meta: dict[str, Any], verify: bool) -> Parts:
    kinds = torch.from_numpy(arrays["edge_type"]) if "edge_type" in arrays else None
    first = (torch.from_numpy(arrays[name]) for name in ("indptr", "indices", "edge_ids"))
    csr = Csr(*first, kinds)  # type: ignore[call-arg]
    node_data: dict[str, dict[str, Features]] = {kind: {} for kind in meta["node_types"]}
    for entry in meta["node_data"]:
        node_data[entry["type"]][entry["name"]] = restore_value(entry, arrays)
    edge_data = {entry["name"]: restore_value(entry, arrays) for entry in meta["edge_data"]}
    parts = Parts(
        Topology.from_csr(csr),
        node_data=node_data,
        edge_data={name: value for name, value in edge_data.items() if isinstance(value, Tensor)},
        node_types=meta["node_types"],
        node_offsets=meta["node_offsets"],
        edge_types=[(source, name, target) for source, name, target in meta["edge_types"]],
        edge_columns=meta["edge_columns"],
        node_ids={
            kind: from_parquet(format.read_extra(path, name), f"{path}/{name}")
            for kind, name in meta["node_ids"].items()
        },
        target_type=meta["target_type"],
        edge_data_is_canonical=True,
    )
    _check(path, parts, meta, verify)
    return parts


def store_value(
    name: str, entry: dict[str, Any], value: Features, arrays: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Put a value among the arrays and return the line of the manifest that finds it again."""
    if isinstance(value, RowSource):
        raise GraphError("the features lie in a store and are not copied; save graph.with_data(x=None)")
    if isinstance(value, SparseFeatures):
        for part in ("indptr", "indices", "values"):
            arrays[f"{name}_{part}"] = as_array(getattr(value, part))
        return {**entry, "array": name, "sparse": list(value.shape), "dtype": _dtype_name(value.dtype)}
    arrays[name] = as_array(value)
    return {**entry, "array": name, "dtype": _dtype_name(value.dtype)}


def restore_value(entry: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Features:
    """Return the value that `store_value` put among the arrays."""
    name, dtype = entry["array"], entry["dtype"]
    if "sparse" not in entry:
        return as_tensor(arrays[name], dtype)
    indptr, indices = (torch.from_numpy(arrays[f"{name}_{part}"]) for part in ("indptr", "indices"))
    rows, columns = entry["sparse"]
    return SparseFeatures(indptr, indices, as_tensor(arrays[f"{name}_values"], dtype), (rows, columns))


def as_array(value: Tensor) -> NDArray[Any]:
    """Return a tensor as an array that can be written; bfloat16, which numpy lacks, as its bits."""
    value = value.detach().cpu()
    return value.view(torch.int16).numpy() if value.dtype == torch.bfloat16 else value.numpy()


def as_tensor(array: NDArray[Any], dtype: str) -> Tensor:
    """Return an array that `as_array` gave as the tensor of that type."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor  # numpy has no bfloat16


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check(path: Any, parts: Parts, meta: dict[str, Any], verify: bool) -> None:
    topology, offsets = parts.topology, parts.node_offsets
    sizes = dict(zip(parts.node_types, (b - a for a, b in pairwise(offsets))))
    csr = topology.csr
    right = (
        topology.num_nodes == meta["num_nodes"] == offsets[-1]
        and topology.num_edges == meta["num_edges"]
        and offsets[0] == 0
        and offsets == sorted(offsets)
        and len(offsets) == len(parts.node_types) + 1
        and len(csr.edge_ids) == topology.num_edges
        and (csr.edge_type is None or len(csr.edge_type) == topology.num_edges)
        and all(
            len(value) == sizes[kind] for kind, data in parts.node_data.items() for value in data.values()
        )
        and all(len(value) == topology.num_edges for value in parts.edge_data.values())
    )
    if not right:
        raise FormatError(f"{path}: counts in the manifest and lengths of the arrays do not fit together")
    if verify:
        check_rows(path, "edges", csr.indptr, csr.indices, topology.num_nodes)
        if not _is_permutation(csr.edge_ids):
            raise FormatError(f"{path}: edge_ids is not a permutation of the edges")
        if csr.edge_type is not None and not within(csr.edge_type, len(parts.edge_types)):
            raise FormatError(
                f"{path}: edge_type names a relation beyond the {len(parts.edge_types)} there are"
            )
    for data in parts.node_data.values():
        for name, value in data.items():
            if verify and isinstance(value, SparseFeatures):
                check_rows(path, name, value.indptr, value.indices, value.shape[1])


def _is_permutation(ids: Tensor) -> bool:
    """Return whether each of 0 … len − 1 is there once; one bit per id is held, and some ids at a time."""
    count = len(ids)
    seen = np.zeros(-(-count // 8), dtype=np.uint8)
    if count % 8:
        seen[-1] = 255 << count % 8 & 255  # the last byte has bits that no id stands for
    for begin in range(0, count, EDGES_AT_ONCE):
        some = read_between(ids.numpy(), begin, min(begin + EDGES_AT_ONCE, count))
        if int(some.min()) < 0 or int(some.max()) >= count:
            return False
        np.bitwise_or.at(seen, some >> 3, (1 << (some & 7)).astype(np.uint8))
    return bool((seen == 255).all())  # as many ids as numbers: none is missing, so none is there twice


def check_rows(path: Any, name: str, indptr: Tensor, indices: Tensor, limit: int) -> None:
    """Raise unless row pointers ascend and indices are below the limit: kernels trust both."""
    if not is_csr(indptr, indices, limit):
        raise FormatError(
            f"{path}: {name} is not valid CSR: pointers must ascend, indices be below {limit:,}"
        )
