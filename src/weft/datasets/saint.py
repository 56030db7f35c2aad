"""GraphSAINT folders (Flickr, Reddit, Yelp …): adj_full.npz, feats.npy, class_map.json, role.json."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.datasets import datasets, formats
from weft.datasets.foreign_files import expect_rows, mask_of, naming, whole_numbers
from weft.errors import FormatError
from weft.graph.graph import Graph
from weft.reading.arrays import Array, NpzArrays, read_npy
from weft.reading.json_values import WholeNumber, read_json

ROLES = {"tr": "train_mask", "va": "val_mask", "te": "test_mask"}


@formats.add("saint")
def is_saint(path: Path) -> bool:
    """a GraphSAINT folder (adj_full.npz, role.json …)."""
    return any((folder / "adj_full.npz").is_file() for folder in (path, path / "raw"))


@datasets.add("saint")
def saint(path: Path, *, standardise: bool = False) -> Graph:
    """Return the graph of a GraphSAINT folder.

    `standardise` gives every feature mean 0 and variance 1 over the training nodes, as GraphSAINT's own code
    does.
    """
    folder = Path(path)
    folder = folder if (folder / "adj_full.npz").is_file() else folder / "raw"
    edge_index, num_nodes = _edges(folder / "adj_full.npz")
    masks = _roles(folder / "role.json", num_nodes)
    x = read_npy(folder / "feats.npy")
    if x.ndim != 2 or x.dtype.kind not in "iuf":
        raise FormatError(
            f"{folder / 'feats.npy'}: expected numbers [nodes, features], got {x.dtype} {x.shape}"
        )
    expect_rows(x, num_nodes, folder / "feats.npy", "node")
    if standardise:
        x = _standardised(x, masks["train_mask"])
    with naming(folder):
        return Graph.from_edges(
            edge_index,
            num_nodes=num_nodes,
            x=np.asarray(x, np.float32),
            y=_labels(folder / "class_map.json", num_nodes),
            **masks,
        )


def _edges(path: Path) -> tuple[NDArray[np.int64], int]:
    arrays = NpzArrays(path)
    missing = [name for name in ("indptr", "indices", "shape") if name not in arrays]
    if missing:
        raise FormatError(f"{path}: expected a CSR matrix as scipy saves it; it lacks {', '.join(missing)}")
    kind = str(arrays["format"].astype(str)) if "format" in arrays else "csr"
    if kind != "csr":
        raise FormatError(f"{path}: expected a CSR matrix, got format {kind!r}")
    for name in ("indptr", "indices", "shape"):
        if arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu":  # 1.9 would become node 1
            got = f"{arrays[name].dtype} {arrays[name].shape}"
            raise FormatError(f"{path}: {name} must be a list of whole numbers, got {got}")
    num_nodes, indptr, indices = int(arrays["shape"][0]), arrays["indptr"], arrays["indices"]
    if len(indptr) != num_nodes + 1 or (np.diff(indptr) < 0).any() or indptr[-1] != len(indices):
        raise FormatError(
            f"{path}: indptr does not describe {num_nodes:,} rows of {len(indices):,} neighbours"
        )
    src = np.repeat(np.arange(num_nodes), np.diff(indptr))
    return np.stack([src, indices.astype(np.int64)]), num_nodes


def _roles(path: Path, num_nodes: int) -> dict[str, Any]:
    roles = read_json(path, {role: [WholeNumber()] for role in ROLES})
    return {mask: mask_of(np.array(roles[role]), num_nodes, path) for role, mask in ROLES.items()}


def _labels(path: Path, num_nodes: int) -> Array:
    """Return class numbers [N], -1 where a node has none, or the multi-hot rows [N, C]."""
    classes: Any = read_json(path)
    if not isinstance(classes, dict) or not classes:
        raise FormatError(f"{path}: expected an object with the class, or the list of labels, of each node")
    odd = next((node for node in classes if not re.fullmatch("0|[1-9][0-9]{0,17}", node)), None)
    if odd is not None:  # "00" would be another name of node 0
        raise FormatError(f"{path}: node ids must be whole numbers, got {odd[:40]!r}")
    try:
        ids = np.array([int(node) for node in classes], np.int64)
        values = np.array(list(classes.values()))
    except ValueError as error:
        raise FormatError(f"{path}: node ids must be whole numbers and label lists equally long") from error
    if values.ndim > 2 or values.dtype.kind not in "iufb" or ids.min() < 0 or ids.max() >= num_nodes:
        raise FormatError(
            f"{path}: expected a class number or a list of 0 and 1 for nodes 0 … {num_nodes - 1}"
        )
    if values.ndim == 2 and len(set(ids.tolist())) < num_nodes:
        # A row of zeros would say that the node has none of the labels, which nobody knows.
        absent = min(set(range(num_nodes)) - set(ids.tolist()))
        raise FormatError(
            f"{path}: node {absent} has no list of labels; where nodes have several, each needs one"
        )
    labels = np.full((num_nodes, *values.shape[1:]), -1 if values.ndim == 1 else 0, np.int64)
    labels[ids] = whole_numbers(values, path, "classes")
    return labels if values.ndim == 1 else labels.astype(np.uint8)


def _standardised(x: Array, train_mask: Array) -> Array:
    known = np.asarray(x[train_mask], np.float64)
    spread = known.std(axis=0)
    # A column that is constant over the training nodes carries nothing: leave its scale alone.
    scaled: Array = ((x - known.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    return scaled
