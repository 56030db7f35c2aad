"""Planetoid raw folders: `ind.NAME.{x,tx,allx,y,ty,ally,graph,test.index}` of cora, citeseer and pubmed.

`x` are the labelled training nodes, `allx` all but the test nodes, `tx` the test nodes in the order of
`test.index`. Citeseer's test ids have gaps: those nodes are isolated, have no features and, here, no label.
The files are pickles; `opcodes` reads them without unpickling.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.datasets import datasets, formats
from weft.datasets.foreign_files import expect_nodes, expect_rows, naming
from weft.datasets.npz import sparse_features
from weft.datasets.opcodes import CsrArrays, read_opcodes
from weft.errors import FormatError
from weft.graph.graph import Graph
from weft.reading.arrays import Array

NUM_VALIDATION = 500  # the public split: the 500 nodes after the training nodes


@formats.add("planetoid")
def is_planetoid(path: Path) -> bool:
    """a Planetoid raw folder (ind.NAME.x …)."""
    return any(folder.is_dir() and any(folder.glob("ind.*.graph")) for folder in (path, path / "raw"))


@datasets.add("planetoid")
def planetoid(path: Path, *, dataset: str | None = None) -> Graph:
    """Return the graph of a Planetoid raw folder with its public split; `dataset` chooses among several."""
    folder = Path(path)
    folder = folder / "raw" if (folder / "raw").is_dir() else folder
    stem = f"ind.{_only_name(folder, dataset)}"
    parts = {
        part: read_opcodes(folder / f"{stem}.{part}") for part in ("x", "tx", "allx", "ty", "ally", "graph")
    }
    test_ids = _test_ids(folder / f"{stem}.test.index")
    for part in ("x", "tx", "allx"):
        if not isinstance(parts[part], CsrArrays):
            raise FormatError(
                f"{folder / stem}.{part}: expected a CSR matrix, got {type(parts[part]).__name__}"
            )
    num_train, num_known = parts["x"].shape[0], parts["allx"].shape[0]
    num_nodes = expect_nodes(max(num_known, int(test_ids.max()) + 1), folder / f"{stem}.test.index")
    if test_ids.min() < num_known:
        raise FormatError(
            f"{folder / stem}.test.index: node {test_ids.min()} is one of the {num_known:,} of allx, too"
        )
    expect_rows(test_ids, parts["tx"].shape[0], folder / f"{stem}.test.index", "row of tx")
    rows = np.concatenate([np.arange(num_known), test_ids])
    with naming(folder / stem):
        return Graph.from_edges(
            _edges(parts["graph"], num_nodes, folder / f"{stem}.graph"),
            num_nodes=num_nodes,
            x=_features(parts["allx"], parts["tx"], rows, num_nodes, where=f"{folder / stem}.allx"),
            y=_labels(parts["ally"], parts["ty"], rows, num_nodes, folder / f"{stem}.ally"),
            **_public_split(num_train, num_known, test_ids, num_nodes),
        )


def _only_name(folder: Path, dataset: str | None) -> str:
    names = sorted(file.name.split(".")[1] for file in folder.glob("ind.*.graph"))
    if dataset is None and len(names) == 1:
        return names[0]
    if dataset not in names:
        what = "several data sets; set dataset to one" if dataset is None else f"no data set {dataset!r}"
        raise FormatError(f"{folder}: holds {what} of: {', '.join(names) or 'none'}")
    return dataset


def _test_ids(path: Path) -> NDArray[np.int64]:
    try:
        ids = np.array([int(line) for line in path.read_text().split()], np.int64)
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except (OSError, ValueError, OverflowError) as error:
        raise FormatError(f"{path}: expected one node id a line: {error}") from None
    if not len(ids) or ids.min() < 0 or len(np.unique(ids)) != len(ids):
        raise FormatError(f"{path}: expected distinct node ids, one a line")
    return ids


def _edges(graph: Any, num_nodes: int, path: Path) -> NDArray[np.int64]:
    """Return both directions of every pair once; the lists hold a few duplicates and self loops."""
    if not isinstance(graph, dict) or not all(isinstance(row, list) for row in graph.values()):
        raise FormatError(f"{path}: expected a dictionary of neighbour lists")
    lengths = [len(row) for row in graph.values()]
    if sum(lengths) > path.stat().st_size:  # one list can be named as that of many nodes
        raise FormatError(f"{path}: {sum(lengths):,} neighbours, far more than its bytes can tell")
    if not all(type(node) is int for nodes in (graph, *graph.values()) for node in nodes):
        raise FormatError(f"{path}: node ids must be whole numbers")
    try:
        src = np.repeat(np.array(list(graph), np.int64), lengths)
        dst = np.array([node for row in graph.values() for node in row], np.int64)
    except OverflowError as error:
        raise FormatError(f"{path}: node ids must be whole numbers ({error})") from error
    if len(dst) and (min(src.min(), dst.min()) < 0 or max(src.max(), dst.max()) >= num_nodes):
        raise FormatError(f"{path}: node ids must lie in 0 … {num_nodes - 1}")
    both = np.concatenate([src, dst]) * num_nodes + np.concatenate([dst, src])
    pairs = np.unique(both)
    edges = np.stack([pairs // num_nodes, pairs % num_nodes])
    return edges[:, edges[0] != edges[1]]


def _features(known: CsrArrays, test: CsrArrays, rows: Array, num_nodes: int, *, where: str) -> Any:
    """Return the features with row i of (known, test) at node rows[i]; nodes named by neither have none."""
    if known.shape[1] != test.shape[1]:
        raise FormatError(f"{where}: {known.shape[1]} columns, but tx has {test.shape[1]}")
    for matrix, name in ((known, "allx"), (test, "tx")):
        told = f"{where.removesuffix('allx')}{name}"
        sparse_features(matrix.indptr, matrix.indices, matrix.data, matrix.shape, where=told)
    lengths = np.zeros(num_nodes, np.int64)
    counts = np.concatenate([np.diff(known.indptr), np.diff(test.indptr)])
    lengths[rows] = counts
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    # The node of every value, then a stable sort by node, moves the rows to their places.
    order = np.argsort(np.repeat(rows, counts), kind="stable")
    indices = np.concatenate([known.indices, test.indices])[order]
    data = np.concatenate([known.data, test.data])[order]
    return sparse_features(indptr, indices, data, (num_nodes, known.shape[1]), where=where)


def _labels(known: Any, test: Any, rows: Array, num_nodes: int, path: Path) -> NDArray[np.int64]:
    if not (isinstance(known, np.ndarray) and isinstance(test, np.ndarray) and known.ndim == test.ndim == 2):
        raise FormatError(f"{path}: expected a matrix of one-hot labels, as in ty")
    if known.shape[1] != test.shape[1] or len(known) + len(test) != len(rows):
        raise FormatError(f"{path}: {known.shape} and {test.shape} labels for {len(rows):,} nodes")
    one_hot = np.concatenate([known, test])
    if not np.isin(one_hot, (0, 1)).all() or (one_hot.sum(axis=1, dtype=np.int64) > 1).any():
        raise FormatError(f"{path}: a row of labels marks one class by 1, or none; some, or of ty, do not")
    y = np.full(num_nodes, -1, np.int64)
    y[rows] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    return y


def _public_split(num_train: int, num_known: int, test_ids: Array, num_nodes: int) -> dict[str, Any]:
    masks = {name: np.zeros(num_nodes, np.bool_) for name in ("train_mask", "val_mask", "test_mask")}
    masks["train_mask"][:num_train] = True
    masks["val_mask"][num_train : min(num_train + NUM_VALIDATION, num_known)] = True
    masks["test_mask"][test_ids] = True
    return masks
