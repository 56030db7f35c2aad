"""Graphs in one `.npz` file.

One type of node: `edge_index` (2, E) source, target; `num_nodes`; features dense as `x` or as CSR (`x_data
x_indices x_indptr x_shape`); `y` with -1 for no label, or (N, C) for several labels a node; `train_mask
val_mask test_mask`, or `*_masks` (splits, N) for several splits; `edge_type num_relations edge_weight
edge_attr edge_time`.

Several types: `node_types` and `num_nodes` (T,), `edge_SOURCE_TARGET` or `edge_SOURCE_RELATION_TARGET` (2,
E), `x_TYPE` or `x_TYPE_data …`, `y` of the type named by `target`, splits as node ids in `train_60 val_60
test_60`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.datasets import datasets, formats
from weft.datasets.files import Array, mask_of, naming, read_npz
from weft.errors import FormatError
from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures

MASKS = ("train", "val", "test")


@formats.add("npz")
def is_npz(path: Path) -> bool:
    """a .npz file."""
    return path.suffix == ".npz" and path.is_file()


@datasets.add("npz")
def npz(path: Path, *, split: int | None = None) -> Graph:
    """Return the graph in a `.npz` file; `split` chooses among several, by default the first or largest."""
    path = Path(path)
    arrays = read_npz(path)
    with naming(path):
        return _typed_graph(arrays, path, split) if "node_types" in arrays else _graph(arrays, path, split)


def sparse_features(indptr: Array, indices: Array, data: Array, shape: Any, *, where: str) -> SparseFeatures:
    """Return CSR arrays as features, after checking that they fit together; whole numbers become float32."""
    sizes = np.asarray(shape)
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu":
        raise FormatError(
            f"{where}: shape must be two whole numbers, rows and columns, got {sizes.dtype} {sizes.shape}"
        )
    rows, columns = (int(size) for size in sizes)
    starts = np.ascontiguousarray(indptr, np.int64)
    if len(starts) != rows + 1 or starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] != len(indices):
        raise FormatError(f"{where}: indptr does not describe {rows:,} rows of {len(indices):,} values")
    if len(data) != len(indices):
        raise FormatError(f"{where}: {len(data):,} values for {len(indices):,} column numbers")
    if len(indices) and (indices.min() < 0 or indices.max() >= columns):
        raise FormatError(f"{where}: column numbers must lie in 0 … {columns - 1}")
    values = np.ascontiguousarray(data, data.dtype if data.dtype == np.float64 else np.float32)
    return SparseFeatures(
        torch.from_numpy(starts),
        torch.from_numpy(np.ascontiguousarray(indices, np.int32)),
        torch.from_numpy(values),
        (rows, columns),
    )


def _graph(arrays: dict[str, Array], path: Path, split: int | None) -> Graph:
    if "edge_index" not in arrays:
        raise FormatError(
            f"{path}: no array 'edge_index'; it holds: {', '.join(sorted(arrays)) or 'nothing'}"
        )
    num_nodes = _scalar(arrays, "num_nodes", path)
    names = ("edge_type", "edge_weight", "edge_attr", "edge_time")
    edges: dict[str, Any] = {name: arrays[name] for name in names if name in arrays}
    return Graph.from_edges(
        arrays["edge_index"],
        num_nodes=num_nodes,
        x=_features(arrays, "x", path),
        y=arrays.get("y"),
        num_relations=_scalar(arrays, "num_relations", path),
        **_masks(arrays, path, split, num_nodes),
        **edges,
    )


def _masks(arrays: dict[str, Array], path: Path, split: int | None, num_nodes: int | None) -> dict[str, Any]:
    """Return the masks of the wanted split: a row of `*_masks`, or `*_mask`, or the ids in `*_K`."""
    if split is not None and "train_masks" in arrays:
        return _rows(arrays, split, path)
    single = {f"{name}_mask": arrays[f"{name}_mask"] for name in MASKS if f"{name}_mask" in arrays}
    if split is None and single:
        return single
    if "train_masks" in arrays:
        return _rows(arrays, 0, path)
    numbers = sorted(int(key[6:]) for key in arrays if key.startswith("train_") and key[6:].isdigit())
    if split is not None and split not in numbers:
        raise FormatError(
            f"{path}: no split {split}; it has: {', '.join(map(str, numbers)) or 'one, or none'}"
        )
    if not numbers or num_nodes is None:
        return single
    chosen = numbers[-1] if split is None else split
    held = [name for name in MASKS if f"{name}_{chosen}" in arrays]
    return {f"{name}_mask": mask_of(arrays[f"{name}_{chosen}"], num_nodes, path) for name in held}


def _rows(arrays: dict[str, Array], split: int, path: Path) -> dict[str, Any]:
    """Return one row of each `*_masks`; a file may have no validation or no test nodes."""
    several = {f"{name}_mask": arrays[f"{name}_masks"] for name in MASKS if f"{name}_masks" in arrays}
    for name, masks in several.items():
        if masks.ndim != 2:
            raise FormatError(f"{path}: {name}s must be (splits, nodes), got shape {masks.shape}")
        if not 0 <= split < len(masks):
            raise FormatError(f"{path}: no split {split}; it has 0 … {len(masks) - 1}")
    return {name: masks[split] for name, masks in several.items()}


def _features(arrays: dict[str, Array], name: str, path: Path) -> Array | SparseFeatures | None:
    if f"{name}_data" not in arrays:
        return arrays.get(name)
    parts = [f"{name}_{part}" for part in ("indptr", "indices", "data", "shape")]
    missing = [part for part in parts if part not in arrays]
    if missing:
        raise FormatError(f"{path}: sparse features {name!r} lack {', '.join(missing)}")
    return sparse_features(*(arrays[part] for part in parts), where=f"{path}: {name}")


def _scalar(arrays: dict[str, Array], name: str, path: Path) -> int | None:
    if name not in arrays:
        return None
    if arrays[name].size != 1 or arrays[name].dtype.kind not in "iu":
        raise FormatError(
            f"{path}: {name} must be one whole number, got {arrays[name].dtype} {arrays[name].shape}"
        )
    return int(arrays[name].item())


def _typed_graph(arrays: dict[str, Array], path: Path, split: int | None) -> Graph:
    types = [str(name) for name in arrays["node_types"]]
    if "num_nodes" not in arrays or arrays["num_nodes"].shape != (len(types),):
        raise FormatError(f"{path}: num_nodes must hold {len(types)} counts, one for each of node_types")
    counts = dict(zip(types, (int(count) for count in arrays["num_nodes"]), strict=True))
    nodes: dict[str, dict[str, Any]] = {}
    for name in types:
        features = _features(arrays, f"x_{name}", path)
        nodes[name] = {"num_nodes": counts[name]} | ({} if features is None else {"x": features})
    if "y" in arrays:
        target = str(arrays["target"]) if "target" in arrays else types[0]
        if target not in nodes:
            raise FormatError(f"{path}: target {target!r} is none of the node types {', '.join(types)}")
        nodes[target] |= {"y": arrays["y"], **_masks(arrays, path, split, counts[target])}
    return Graph.from_types(nodes=nodes, edges=_typed_edges(arrays, types, path))


def _typed_edges(arrays: dict[str, Array], types: list[str], path: Path) -> dict[Any, dict[str, Any]]:
    """Return the edges of each relation; a key names its source and target type, and maybe the relation."""
    edges: dict[Any, dict[str, Any]] = {}
    for key in arrays:
        if not key.startswith("edge_"):
            continue
        rest = key.removeprefix("edge_")
        ends = [(s, t) for s in types for t in types if rest.startswith(f"{s}_") and rest.endswith(f"_{t}")]
        ends = [(s, t) for s, t in ends if len(rest) >= len(s) + len(t) + 1]
        if not ends:
            raise FormatError(f"{path}: {key} names no two of the node types {', '.join(types)}")
        # Of types that are prefixes of each other ("a", "a_b") the longer is meant.
        source, target = max(ends, key=lambda pair: len(pair[0]) + len(pair[1]))
        relation = rest[len(source) + 1 : len(rest) - len(target) - 1] or "to"
        edges[source, relation, target] = {"edge_index": arrays[key]}
    if not edges:
        raise FormatError(f"{path}: no edges; expected arrays named edge_SOURCE_TARGET")
    return edges
