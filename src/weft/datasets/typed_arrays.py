"""Typed graphs of `.npz` files that name no types: the names of their arrays do.

`edge_SOURCE_TARGET` or `edge_SOURCE_RELATION_TARGET` (2, E) have the edges, `TYPE_triples` (n, 3) those of a
knowledge graph whose relations `relation` names. `TYPE` holds the names of nodes, by which they are told and
found, `num_TYPEs` how many there are, `x_TYPE` features. `edge_NAME` (E,) is data of the relation that has as
many edges, `TYPE_NAME` data of the nodes of a type.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.datasets.foreign_files import expect_nodes, rows_by_number
from weft.errors import FormatError
from weft.graph.graph import Graph
from weft.reading.arrays import Array

_TRIPLES = "_triples"
Ends = dict[tuple[str, str, str], dict[str, Any]]


def names_types(arrays: Mapping[str, Array]) -> bool:
    """Return whether edges lie in arrays that are named by the types that they join."""
    return "edge_index" not in arrays and any(_relation(*entry) for entry in arrays.items())


def graph_of_arrays(
    arrays: Mapping[str, Array],
    path: Path,
    *,
    features: Callable[[str], Any],
    names: Callable[[str, Array], list[str]],
) -> Graph:
    """Return the graph; `features` reads those of a name, `names` the words of numbers."""
    edges: Ends = {}
    for name, array in arrays.items():
        relation = _relation(name, array)
        if relation is not None:
            edges[relation] = {"edge_index": arrays[name]}
    types = dict.fromkeys(kind for ends in edges for kind in (ends[0], ends[2]))
    for name in [name for name in arrays if name.endswith(_TRIPLES)]:
        kind, triples = name.removesuffix(_TRIPLES), _checked_triples(arrays, name, path)
        types |= {kind: None}
        words = names("relation", triples[:, 1])
        for word, rows in zip(words, rows_by_number(triples[:, 1], len(words))):
            edges[kind, word, kind] = {"edge_index": triples[rows][:, ::2].T}
    nodes = {kind: _nodes(arrays, kind, edges, features) for kind in types}
    for kind, data in nodes.items():
        expect_nodes(data["num_nodes"], path, kind)
    _add_edge_data(arrays, edges, path)
    _add_node_data(arrays, nodes)
    return Graph.from_types(nodes, edges)


def _relation(name: str, array: Array) -> tuple[str, str, str] | None:
    """Return the (source, relation, target) that an array's name tells; None where it holds no edges."""
    words = name.split("_")
    if words[0] != "edge" or len(words) not in (3, 4) or not all(words):
        return None
    if array.ndim != 2 or len(array) != 2 or array.dtype.kind not in "iu":
        return None
    return words[1], words[2] if len(words) == 4 else "to", words[-1]


def _checked_triples(arrays: Mapping[str, Array], name: str, path: Path) -> Array:
    triples = arrays[name]
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype.kind not in "iu":
        expected = f"whole numbers (n, 3), head, relation and tail, got {triples.dtype} {triples.shape}"
        raise FormatError(f"{path}: {name} must hold {expected}")
    return triples.astype(np.int64)


def _nodes(
    arrays: Mapping[str, Array], kind: str, edges: Ends, features: Callable[[str], Any]
) -> dict[str, Any]:
    """Return how many nodes a type has, their names and features."""
    ends = [
        edge["edge_index"][side] for ends, edge in edges.items() for side in (0, 1) if ends[2 * side] == kind
    ]
    count = 1 + max(int(end.max(initial=-1)) for end in ends)
    for name in (f"num_{kind}", f"num_{kind}s", f"num_{kind.removesuffix('y')}ies"):
        if name in arrays and arrays[name].size == 1 and arrays[name].dtype.kind in "iu":
            count = int(arrays[name].item())
    data: dict[str, Any] = {"num_nodes": count}
    if kind in arrays and arrays[kind].ndim == 1:
        words = arrays[kind].tolist()
        ids = [word.decode() if isinstance(word, bytes) else word for word in words]
        data = {"num_nodes": len(ids), "node_ids": np.array(ids)}
    x = features(f"x_{kind}")
    return data if x is None else {**data, "x": x}


def _add_edge_data(arrays: Mapping[str, Array], edges: Ends, path: Path) -> None:
    """Give each `edge_NAME` to the relation that has as many edges."""
    for name, array in arrays.items():
        if not name.startswith("edge_") or _relation(name, array) is not None:
            continue
        size = len(array) if array.ndim else 1
        able = [ends for ends, known in edges.items() if known["edge_index"].shape[1] == size]
        if len(able) != 1:
            how_many = "several relations have" if able else "no relation has"
            raise FormatError(f"{path}: {name} holds {size:,} values, and {how_many} as many edges")
        values = arrays[name]
        exact = name != "edge_weight"  # which messages are multiplied by
        edges[able[0]][name.removeprefix("edge_")] = values if exact else values.astype(np.float32)


def _add_node_data(arrays: Mapping[str, Array], nodes: dict[str, dict[str, Any]]) -> None:
    """Give `TYPE_NAME`, one value per node, to the nodes of the type."""
    for name, values in arrays.items():
        kind, _, what = name.partition("_")
        data = nodes.get(kind)
        if (
            data is not None
            and what
            and not name.endswith(_TRIPLES)
            and values.shape[:1] == (data["num_nodes"],)
        ):
            data[what] = arrays[name]
