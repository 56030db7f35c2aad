"""Graphs in one `.npz` file.

One type of node: `edge_index` (2, E) source, target; `num_nodes`; features dense as `x` or as CSR (`x_data
x_indices x_indptr x_shape`); `y` with -1 for no label, or (N, C) for several labels a node; `train_mask
val_mask test_mask`, or `*_masks` (splits, N) for several splits; `edge_type num_relations edge_weight
edge_attr edge_time edge_year edge_label edge_rating edge_split`; `class_names` (C,).

Triples of a knowledge graph: `train`, `valid` and `test` (n, 3) of head, relation and tail; `entity` and
`relation` for their names. They become edges of named relations with the edge data "split".

Several types of nodes in one numbering: the same with `node_type` (N,), and `node_types` (T,) for the names
of the numbers in it.

Several types: `node_types` and `num_nodes` (T,), `edge_SOURCE_TARGET` or `edge_SOURCE_RELATION_TARGET` (2,
E), `x_TYPE` or `x_TYPE_data …`, `y` of the type named by `target`, splits as node ids in `train_60 val_60
test_60`. Without `node_types` the names of arrays tell the types (`typed_arrays`).

Arrays of other names are left out, and a note says which.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from weft.datasets import datasets, formats
from weft.datasets.foreign_files import expect_nodes, mask_of, naming, rows_by_number
from weft.datasets.typed_arrays import graph_of_arrays, names_types
from weft.errors import DataNote, FormatError
from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures
from weft.meaning import CLASS_NAMES
from weft.reading.arrays import Array, NpzArrays

MASKS = ("train", "val", "test")
_EDGE_DATA = ("weight", "attr", "time", "year", "label", "rating", "split")  # as edge_NAME
_TRIPLES = ("train", "valid", "test")
_ENTITY = "entity"
_UNNAMED = 1 << 16  # relations that have numbers alone, where there are not as many edges
_SPLIT = re.compile("(train|val|test)_(masks?|[0-9]+)")


@formats.add("npz")
def is_npz(path: Path) -> bool:
    """a .npz file."""
    return path.suffix == ".npz" and path.is_file()


@datasets.add("npz")
def npz(path: Path, *, split: int | None = None) -> Graph:
    """Return the graph in a `.npz` file; `split` chooses among several, by default the first or largest."""
    path = Path(path)
    arrays = _Arrays(NpzArrays(path))
    with naming(path):
        if "node_types" in arrays and "node_type" not in arrays:
            graph = _typed_graph(arrays, path, split)
        elif "edge_index" not in arrays and "train" in arrays:
            graph = _triples(arrays, path)
        elif names_types(arrays):
            words = partial(_names, arrays, path=path)
            graph = graph_of_arrays(arrays, path, features=partial(_features, arrays, path=path), names=words)
        else:
            graph = _graph(arrays, path, split)
    _check_class_names(arrays, graph.num_classes, path)
    arrays.tell_left_out(path)
    return graph


class _Arrays(Mapping[str, Array]):
    """The arrays of a file, each read once when somebody takes it, and which of them were taken."""

    def __init__(self, held: Mapping[str, Array]) -> None:
        self._held = held
        self._read: dict[str, Array] = {}
        self.taken: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __getitem__(self, name: str) -> Array:
        self.taken.add(name)
        if name not in self._read:
            self._read[name] = self._held[name]
        return self._read[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an array that may not be there."""
        self.taken.add(name)
        return super().get(name, default)

    def tell_left_out(self, path: Path) -> None:
        """Say which arrays nobody took, if any; other splits than the one chosen are not missed."""
        left = [name for name in self if name not in self.taken]
        if any(_SPLIT.fullmatch(name) for name in self.taken):
            left = [name for name in left if not _SPLIT.fullmatch(name)]
        if left:
            took = ", ".join(sorted(self.taken & self.keys()))
            line = (
                f"{path}: took {took}; left out {', '.join(sorted(left))}, names that a graph does not have"
            )
            warnings.warn(f"{line} (docs/ingest.md lists those it has)", DataNote, stacklevel=3)


def _check_class_names(arrays: _Arrays, num_classes: int, path: Path) -> None:
    names = arrays.get(CLASS_NAMES)
    if names is not None and (names.ndim != 1 or names.dtype.kind not in "US" or len(names) < num_classes):
        raise FormatError(
            f"{path}: {CLASS_NAMES} must hold a word for each of the {num_classes:,} classes of y, got "
            f"{names.dtype} {names.shape}"
        )


def sparse_features(indptr: Array, indices: Array, data: Array, shape: Any, *, where: str) -> SparseFeatures:
    """Return CSR arrays as features, after checking that they fit together; whole numbers become float32."""
    sizes = np.asarray(shape)
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu":
        raise FormatError(
            f"{where}: shape must be two whole numbers, rows and columns, got {sizes.dtype} {sizes.shape}"
        )
    for name, part, kinds in (("indptr", indptr, "iu"), ("indices", indices, "iu"), ("data", data, "biuf")):
        if part.ndim != 1 or part.dtype.kind not in kinds:  # a fraction would become another column
            what = "whole numbers" if kinds == "iu" else "numbers"
            raise FormatError(f"{where}: {name} must be a list of {what}, got {part.dtype} {part.shape}")
    rows, columns = (int(size) for size in sizes)
    starts = np.require(indptr, np.int64, ["C", "W"])
    if len(starts) != rows + 1 or starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] != len(indices):
        raise FormatError(f"{where}: indptr does not describe {rows:,} rows of {len(indices):,} values")
    if len(data) != len(indices):
        raise FormatError(f"{where}: {len(data):,} values for {len(indices):,} column numbers")
    if len(indices) and (indices.min() < 0 or indices.max() >= columns):
        raise FormatError(f"{where}: column numbers must lie in 0 … {columns - 1}")
    values = np.require(data, data.dtype if data.dtype == np.float64 else np.float32, ["C", "W"])
    return SparseFeatures(
        torch.from_numpy(starts),
        torch.from_numpy(np.require(indices, np.int32 if columns < 2**31 else np.int64, ["C", "W"])),
        torch.from_numpy(values),
        (rows, columns),
    )


def _graph(arrays: _Arrays, path: Path, split: int | None) -> Graph:
    if "edge_index" not in arrays:
        raise FormatError(
            f"{path}: no array 'edge_index'; it holds: {', '.join(sorted(arrays)) or 'nothing'}"
        )
    num_nodes = _scalar(arrays, "num_nodes", path)
    expect_nodes(num_nodes or 0, path)
    num_relations = _scalar(arrays, "num_relations", path)
    x, y, edge_type = _features(arrays, "x", path), arrays.get("y"), arrays.get("edge_type")
    masks = _masks(arrays, path, split, num_nodes)
    data: dict[str, Any] = {name: arrays[f"edge_{name}"] for name in _EDGE_DATA if f"edge_{name}" in arrays}
    if "rating" in data:
        data["rating"] = data["rating"].astype(np.float32)  # a quantity, also where it is a whole number
    edge_index, node_type = arrays["edge_index"], arrays.get("node_type")
    sizes = {"num_nodes": num_nodes, "edge_type": edge_type, "num_relations": num_relations}
    graph = Graph.from_edges(edge_index, x=x, y=y, edge_data=data, **masks, **sizes)
    return graph if node_type is None else by_type(graph, node_type, arrays.get("node_types"), path)


def _triples(arrays: _Arrays, path: Path) -> Graph:
    """Return a knowledge graph: triples as edges, the part that each is in as its split."""
    parts = [arrays[name] if name in arrays else np.empty((0, 3), np.int64) for name in _TRIPLES]
    for name, part in zip(_TRIPLES, parts):
        if part.ndim != 2 or part.shape[1] != 3 or part.dtype.kind not in "iu":
            expected = f"whole numbers (n, 3), head, relation and tail, got {part.dtype} {part.shape}"
            raise FormatError(f"{path}: {name} must hold {expected}")
    triples = np.concatenate(parts).astype(np.int64)
    split = np.repeat(np.arange(len(parts), dtype=np.int8), [len(part) for part in parts])
    entities = arrays.get(_ENTITY)
    nodes: dict[str, Any] = {"num_nodes": expect_nodes(int(triples[:, ::2].max(initial=-1)) + 1, path)}
    if entities is not None:
        nodes = {"num_nodes": len(entities), "node_ids": np.array(_words(entities))}
    edges: dict[Any, dict[str, Any]] = {}
    names = _names(arrays, "relation", triples[:, 1], path)
    for name, some in zip(names, rows_by_number(triples[:, 1], len(names))):
        edges[_ENTITY, name, _ENTITY] = {"edge_index": triples[some][:, ::2].T, "split": split[some]}
    return Graph.from_types({_ENTITY: nodes}, edges)


def _names(arrays: _Arrays, name: str, numbers: Array, path: Path) -> list[str]:
    """Return a word for each number that there is, as the file has it or the number itself."""
    count = int(numbers.max(initial=-1)) + 1
    if name not in arrays and count > max(len(numbers), _UNNAMED):
        raise FormatError(f"{path}: {count:,} unnamed relations for {len(numbers):,} triples")
    words = _words(arrays[name]) if name in arrays else [str(number) for number in range(count)]
    if len(words) < count or len(set(words)) < len(words) or numbers.min(initial=0) < 0:
        expected = f"a word of its own for each of the numbers 0 … {count - 1:,} of the triples"
        raise FormatError(f"{path}: {name} must hold {expected}")
    return words


def by_type(graph: Graph, node_type: Array, names: Array | None, path: Path) -> Graph:
    """Return a graph of one numbering as one of several types, nodes of a type in their order.

    Types are named by number where there are no names. The nodes keep their numbers in the file as ids,
    relations keep theirs; the types that have labels keep these.
    """
    _check_node_type(node_type, graph.num_nodes, names, path)
    kinds = np.unique(node_type) if names is None else np.arange(len(names))
    called = [str(kind) for kind in kinds] if names is None else _type_names(names, path)
    place = np.searchsorted(kinds, node_type)
    rows = rows_by_number(place, len(kinds))
    place_in_type = np.empty(graph.num_nodes, np.int64)
    for members in rows:
        place_in_type[members] = np.arange(len(members))
    nodes = {kind: _of_type(graph, members) for kind, members in zip(called, rows)}
    return Graph.from_types(nodes, _edges_by_type(graph, place, place_in_type, called))


def _edges_by_type(
    graph: Graph, kind: Array, place_in_type: Array, called: list[str]
) -> dict[Any, dict[str, Any]]:
    """Return the edges by types of their ends and relation; `kind` and `place_in_type` are of each node."""
    src, dst = (end.numpy() for end in graph.edge_index)
    ids, relation = graph.edge_ids.numpy(), np.zeros(graph.num_edges, np.int64)
    if graph.edge_type is not None:
        relation[ids] = graph.edge_type.numpy()
    triples = np.stack([kind[src], relation, kind[dst]])
    kinds, whose = np.unique(triples, axis=1, return_inverse=True)
    order = whose.argsort(kind="stable")
    given = ids.argsort()  # from the user's order to that of edge data
    edges: dict[Any, dict[str, Any]] = {}
    for triple, inside in zip(kinds.T, np.split(order, np.bincount(whose).cumsum()[:-1])):
        data = {name: value[given[inside]] for name, value in graph.edge_data.items()}
        name = "to" if graph.edge_type is None else str(triple[1])
        ends = np.stack([place_in_type[src[inside]], place_in_type[dst[inside]]])
        edges[called[triple[0]], name, called[triple[2]]] = {"edge_index": ends, **data}
    return edges


def _of_type(graph: Graph, rows: Array) -> dict[str, Any]:
    """Return the data of some nodes; labels and masks only where one of them has any."""
    data: dict[str, Any] = {"num_nodes": len(rows), "node_ids": rows}
    picked = torch.from_numpy(rows)
    for name, value in graph.node_data["node"].items():
        part: Any = value.rows(picked) if isinstance(value, SparseFeatures) else value[picked]
        if name == "x" or bool((part >= 0).any() if name == "y" and part.dim() == 1 else part.any()):
            data[name] = part
    return data


def _check_node_type(node_type: Array, num_nodes: int, names: Array | None, path: Path) -> None:
    if node_type.shape != (num_nodes,) or node_type.dtype.kind not in "iu":
        raise FormatError(
            f"{path}: node_type must hold {num_nodes:,} whole numbers, the type of each node, got "
            f"{node_type.dtype} {node_type.shape}"
        )
    if names is not None and (node_type.min() < 0 or node_type.max() >= len(names)):
        problem = f"node_types names {len(names)} types, node_type has {node_type.min()} … {node_type.max()}"
        raise FormatError(f"{path}: {problem}")


def _type_names(names: Array, path: Path) -> list[str]:
    """Return the names of the node types; two of one name would leave the nodes of one of them out."""
    words = _words(names) if names.ndim == 1 else []
    if not words or len(set(words)) < len(words):
        raise FormatError(f"{path}: node_types must hold a name of its own for each type, got {words[:20]}")
    return words


def _words(names: Array) -> list[str]:
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]


def _masks(arrays: _Arrays, path: Path, split: int | None, num_nodes: int | None) -> dict[str, Any]:
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
    names = [name for name in MASKS if f"{name}_{chosen}" in arrays]
    return {f"{name}_mask": mask_of(arrays[f"{name}_{chosen}"], num_nodes, path) for name in names}


def _rows(arrays: _Arrays, split: int, path: Path) -> dict[str, Any]:
    """Return one row of each `*_masks`; a file may have no validation or no test nodes."""
    several = {f"{name}_mask": arrays[f"{name}_masks"] for name in MASKS if f"{name}_masks" in arrays}
    for name, masks in several.items():
        if masks.ndim != 2:
            raise FormatError(f"{path}: {name}s must be (splits, nodes), got shape {masks.shape}")
        if not 0 <= split < len(masks):
            raise FormatError(f"{path}: no split {split}; it has 0 … {len(masks) - 1}")
    return {name: masks[split] for name, masks in several.items()}


def _features(arrays: _Arrays, name: str, path: Path) -> Array | SparseFeatures | None:
    if f"{name}_data" not in arrays:
        return cast(Array | None, arrays.get(name))
    parts = [f"{name}_{part}" for part in ("indptr", "indices", "data", "shape")]
    missing = [part for part in parts if part not in arrays]
    if missing:
        raise FormatError(f"{path}: sparse features {name!r} lack {', '.join(missing)}")
    return sparse_features(*(arrays[part] for part in parts), where=f"{path}: {name}")


def _scalar(arrays: _Arrays, name: str, path: Path) -> int | None:
    if name not in arrays:
        return None
    if arrays[name].size != 1 or arrays[name].dtype.kind not in "iu":
        raise FormatError(
            f"{path}: {name} must be one whole number, got {arrays[name].dtype} {arrays[name].shape}"
        )
    return int(arrays[name].item())


def _typed_graph(arrays: _Arrays, path: Path, split: int | None) -> Graph:
    types = _type_names(arrays["node_types"], path)
    if "num_nodes" not in arrays or arrays["num_nodes"].shape != (len(types),):
        raise FormatError(f"{path}: num_nodes must hold {len(types)} counts, one for each of node_types")
    if arrays["num_nodes"].dtype.kind not in "iu":
        raise FormatError(f"{path}: num_nodes must hold whole numbers, got {arrays['num_nodes'].dtype}")
    counts = {name: expect_nodes(int(n), path, name) for name, n in zip(types, arrays["num_nodes"])}
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


def _typed_edges(arrays: _Arrays, types: list[str], path: Path) -> dict[Any, dict[str, Any]]:
    """Return the edges of each relation; a key names its source and target type, and maybe the relation."""
    edges: dict[Any, dict[str, Any]] = {}
    for key in arrays:
        if not key.startswith("edge_"):
            continue
        rest = key.removeprefix("edge_")
        targets = [t for t in types if rest.endswith(f"_{t}")]  # first: there may be thousands of types
        ends = [(s, t) for s in types if rest.startswith(f"{s}_") for t in targets]
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
