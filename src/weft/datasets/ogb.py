"""OGB folders for node prediction: `raw/` with csv.gz or npz files, `split/SCHEME/{train,valid,test}.csv.gz`.

Three layouts are read: csv (arxiv, products, proteins), npz (papers100M) and typed csv (mag). A path may be
the folder of the data set or its `raw`. A class that is missing is -1; a table of several label columns is
multi-label, and must be complete.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.datasets import datasets, formats
from weft.datasets.foreign_files import (
    expect_nodes,
    expect_rows,
    mask_of,
    naming,
    read_table,
    read_words,
    whole_numbers,
)
from weft.errors import FormatError
from weft.graph.graph import Graph
from weft.reading.arrays import Array, NpzArrays

MARKERS = ("edge.csv.gz", "data.npz", "triplet-type-list.csv.gz")
ROLES = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


@formats.add("ogb")
def is_ogb(path: Path) -> bool:
    """an OGB folder (raw/edge.csv.gz, raw/data.npz or raw/triplet-type-list.csv.gz)."""
    return any((folder / marker).is_file() for folder in (path, path / "raw") for marker in MARKERS)


@datasets.add("ogb")
def ogb(path: Path, *, split: str | None = None) -> Graph:
    """Return the graph of an OGB folder; `split` is the scheme, needed only where the folder has several."""
    path = Path(path)
    raw = path / "raw" if (path / "raw").is_dir() else path
    scheme = _scheme(path if raw != path else path.parent, split)
    with naming(path):
        if (raw / "triplet-type-list.csv.gz").is_file():
            return _typed_graph(raw, scheme)
        return _graph(_binary(raw) if (raw / "data.npz").is_file() else _tables(raw), scheme)


def _graph(parts: dict[str, Any], scheme: Path | None) -> Graph:
    num_nodes = parts["num_nodes"]
    return Graph.from_edges(
        parts["edge_index"],
        num_nodes=num_nodes,
        x=parts.get("x"),
        y=parts.get("y"),
        edge_attr=parts.get("edge_attr"),
        **_masks(scheme, num_nodes),
    )


def _tables(raw: Path) -> dict[str, Any]:
    """Return the arrays of the csv layout."""
    counted = raw / "num-node-list.csv.gz"
    num_nodes = expect_nodes(_only_count(counted), counted)
    parts: dict[str, Any] = {"num_nodes": num_nodes, "edge_index": _edges(raw)}
    for name, key in (("node-feat", "x"), ("node-label", "y")):
        if (file := raw / f"{name}.csv.gz").is_file():
            parts[key] = _node_table(file, num_nodes, labels=key == "y")
    if (file := raw / "edge-feat.csv.gz").is_file():
        parts["edge_attr"] = read_table(file).astype(np.float32)
        expect_rows(parts["edge_attr"], parts["edge_index"].shape[1], file, "edge")
    return parts


def _binary(raw: Path) -> dict[str, Any]:
    """Return the arrays of the npz layout."""
    path = raw / "data.npz"
    arrays = NpzArrays(path)
    missing = [name for name in ("edge_index", "num_nodes_list") if name not in arrays]
    if missing:
        raise FormatError(f"{path}: lacks {', '.join(missing)}; it holds: {', '.join(sorted(arrays))}")
    if arrays["num_nodes_list"].size != 1:
        raise FormatError(
            f"{path}: holds {arrays['num_nodes_list'].size} graphs; only node data sets of one are read"
        )
    if arrays["num_nodes_list"].dtype.kind not in "iu":
        raise FormatError(f"{path}: num_nodes_list must be a whole number")
    num_nodes = expect_nodes(int(arrays["num_nodes_list"].item()), path)
    parts: dict[str, Any] = {"num_nodes": num_nodes, "edge_index": arrays["edge_index"]}
    parts |= {
        key: arrays[name] for name, key in (("node_feat", "x"), ("edge_feat", "edge_attr")) if name in arrays
    }
    if (file := raw / "node-label.npz").is_file():
        held = NpzArrays(file)
        if "node_label" not in held:
            raise FormatError(f"{file}: lacks node_label; it holds: {', '.join(sorted(held))}")
        expect_rows(held["node_label"], num_nodes, file, "node")
        parts["y"] = _labels(held["node_label"].reshape(num_nodes, -1), file)
    return parts


def _typed_graph(raw: Path, scheme: Path | None) -> Graph:
    """Return the graph of the typed csv layout."""
    header, *rows = read_words(raw / "num-node-dict.csv.gz")
    if len(rows) != 1 or len(rows[0]) != len(header):
        raise FormatError(
            f"{raw / 'num-node-dict.csv.gz'}: expected a line of node types and a line of counts"
        )
    counts = {name: int(count) for name, count in zip(header, rows[0], strict=True)}
    nodes: dict[str, dict[str, Any]] = {}
    for name, count in counts.items():
        nodes[name] = {"num_nodes": expect_nodes(count, raw / "num-node-dict.csv.gz", name)}
        for table, key in (("node-feat", "x"), ("node-label", "y")):
            if (file := raw / table / name / f"{table}.csv.gz").is_file():
                nodes[name][key] = _node_table(file, count, labels=key == "y")
        if scheme is not None and (scheme / name / "train.csv.gz").is_file():
            nodes[name] |= _masks(scheme / name, count)
    edges = {}
    for triple in read_words(listing := raw / "triplet-type-list.csv.gz"):
        if len(triple) != 3 or triple[0] not in counts or triple[2] not in counts:
            raise FormatError(f"{listing}: {','.join(triple)} is not source, relation, target of known types")
        folder = raw / "relations" / "___".join(triple)
        edges[triple[0], triple[1], triple[2]] = {"edge_index": _edges(folder)}
    return Graph.from_types(nodes=nodes, edges=edges)


def _edges(folder: Path) -> NDArray[np.int64]:
    path = folder / "edge.csv.gz"
    edges = whole_numbers(read_table(path, columns=2), path, "node ids").T
    if (counts := folder / "num-edge-list.csv.gz").is_file():
        expect_rows(edges.T, _only_count(counts), path, "edge that num-edge-list counts")
    return edges


def _only_count(path: Path) -> int:
    counts = whole_numbers(read_table(path, columns=1), path, "counts")
    if len(counts) != 1:
        raise FormatError(
            f"{path}: describes {len(counts):,} graphs; only node data sets, of one graph, are read"
        )
    return int(counts.item())


def _node_table(path: Path, num_nodes: int, *, labels: bool) -> Array:
    table = read_table(path)
    expect_rows(table, num_nodes, path, "node")
    return _labels(table, path) if labels else table.astype(np.float32)


def _labels(table: Array, path: Path) -> Array:
    """Return class numbers [N] with -1 for missing, or several labels a node [N, C] as 0 and 1."""
    known = np.isfinite(table) if table.dtype.kind == "f" else np.ones(table.shape, np.bool_)
    values = whole_numbers(np.where(known, table, -1), path, "labels")
    if values.shape[1] == 1:
        return values[:, 0]
    unclear = (values != 0) & (values != 1)
    if unclear.any():
        count, node = int(unclear.sum()), int(unclear.any(axis=1).argmax())
        raise FormatError(
            f"{path}: {count:,} of {values.size:,} labels {'is' if count == 1 else 'are'} neither 0 nor 1, "
            f"the first at node {node}; a table of several labels a node must be complete"
        )
    return values.astype(np.uint8)


def _scheme(root: Path, wanted: str | None) -> Path | None:
    """Return the folder of the wanted split, or of the only one; None where the data set has none."""
    folder = root / "split"
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    if wanted is None and not names:
        return None
    if wanted is None and len(names) == 1:
        wanted = names[0]
    if wanted not in names:
        what = "several splits; set split to one" if wanted is None else f"no split {wanted!r}"
        raise FormatError(f"{folder}: holds {what} of: {', '.join(names) or 'none'}")
    return folder / wanted


def _masks(folder: Path | None, num_nodes: int) -> dict[str, Any]:
    if folder is None:
        return {}
    if (folder / "split_dict.pt").is_file() and not (folder / "train.csv.gz").is_file():
        raise FormatError(
            f"{folder / 'split_dict.pt'}: is a pickle, which weft never opens; use train.csv.gz …"
        )
    files = {mask: folder / f"{role}.csv.gz" for role, mask in ROLES.items()}
    return {mask: mask_of(read_table(file, columns=1), num_nodes, file) for mask, file in files.items()}
