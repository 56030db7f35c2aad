"""What comes in is checked here, once: arrays become tensors, and what cannot be right is told in one line.

Each function takes what a user may pass (torch, numpy, scipy sparse) and returns what weft holds. With
`check=False` only the conversion is done: for arrays that a checked graph already held.
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.source import RowSource
from weft.graph.sparse import Features, SparseFeatures
from weft.machine import free_memory
from weft.sizes import shown

SPLITS = ("train_mask", "val_mask", "test_mask")

# Bytes that need no look at how much is free.
_SMALL = 1 << 26


_RELATIONS = 1 << 20
"""Relations that a graph may have though it has fewer edges."""


def as_tensor(value: Any, name: str) -> Tensor:
    """Return a tensor that shares memory with the given array where it can."""
    if isinstance(value, Tensor):
        return value.detach() if value.requires_grad else value
    try:
        if isinstance(value, (list, tuple)):
            return torch.as_tensor(value)  # torch's default types, float32 and int64
        array = np.asarray(value)
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = _signed(array, name)
        if array.dtype.hasobject or array.dtype.kind in "USV":
            raise TypeError(f"dtype {array.dtype}")
        # Torch must not write into memory that is read-only.
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError) as error:
        raise GraphError(f"{name} must be an array of numbers, got {_describe(value)}: {error}") from error


def as_edge_index(value: Any, name: str = "edge_index", *, check: bool = True) -> Tensor:
    """Return (2, E) integers, row 0 the sources, row 1 the targets."""
    edges = as_tensor(value, name)
    if not check:
        return edges
    if edges.dim() != 2 or edges.shape[0] != 2:
        hint = "; pass its transpose" if edges.dim() == 2 and edges.shape[1] == 2 else ""
        raise GraphError(
            f"{name} must have shape (2, E), sources then targets; got {tuple(edges.shape)}{hint}"
        )
    if edges.is_floating_point() or edges.is_complex() or edges.dtype == torch.bool:
        if edges.numel() == 0:
            return edges.to(torch.int64)  # an empty list has no dtype of its own
        raise GraphError(
            f"{name} must hold integers, got {edges.dtype}; convert it with .long() if the ids are whole"
        )
    return edges if edges.dtype in (torch.int32, torch.int64) else edges.to(torch.int64)


def check_edge_range(
    edges: Tensor, num_src: int, num_dst: int, name: str = "edge_index", *, counted: str | None = None
) -> None:
    """Raise where an edge names a node that does not exist; `counted` is the data that said how many do."""
    for row, limit, end in ((0, num_src, "source"), (1, num_dst, "target")):
        if edges.shape[1] == 0:
            return
        low, high = (int(bound) for bound in torch.aminmax(edges[row]))
        if low >= 0 and high < limit:
            continue
        bad = (edges[row] < 0) | (edges[row] >= limit)
        first = int(bad.nonzero()[0])
        count = int(bad.sum())
        rows = f", as many as {counted} has rows" if counted else ""
        raise GraphError(
            f"{name}: edge {first:,} has {end} {int(edges[row, first]):,}, nodes are 0 … {limit - 1:,}"
            f" ({limit:,} nodes{rows}; {count:,} such edge{'s' if count > 1 else ''})"
        )


def infer_num_nodes(num_nodes: int | None, edges: Tensor, rows: Mapping[str, Any]) -> tuple[int, str | None]:
    """Return the number of nodes: as given, else the length of the node data, else the largest id + 1.

    With it comes the name of the node data that was counted, None where none was.
    """
    counted = next((name for name, value in rows.items() if num_nodes is None and value is not None), None)
    if counted is not None:
        held = rows[counted]
        num_nodes = int(held.shape[0]) if hasattr(held, "shape") else len(held)
    if num_nodes is None:
        num_nodes = highest_id(edges) + 1
        check_room(num_nodes, f"edge_index holds the id {num_nodes - 1:,}")
    if isinstance(num_nodes, bool) or not hasattr(num_nodes, "__index__"):
        raise GraphError(f"num_nodes must be a whole number, got {num_nodes!r}")
    if num_nodes < 1:
        raise GraphError(f"a graph needs at least one node, got num_nodes={num_nodes}")
    check_room(int(num_nodes), f"num_nodes is {int(num_nodes):,}")
    return int(num_nodes), counted


def highest_id(edges: Tensor) -> int:
    """Return the largest id that edges name; -1 where there are none."""
    return int(edges.max()) if edges.numel() else -1


def check_room(num_nodes: int, why: str) -> None:
    """Refuse a number of nodes whose pointers alone do not fit in memory; `why` is what said so many."""
    needed = 8 * (num_nodes + 1)
    if needed > _SMALL and needed > (free := free_memory()):
        raise GraphError(
            f"{why}: a graph of {num_nodes:,} nodes takes {shown(needed)} before any data, and {shown(free)} "
            "are free; number nodes from 0 on without gaps, or keep your ids with `weft ingest`"
        )


def as_node_data(
    values: Mapping[str, Any], num_nodes: int, node_type: str = "node", *, check: bool = True
) -> dict[str, Features]:
    """Return the data of one node type, checked: features, labels, masks and all with one row per node."""
    where = "" if node_type == "node" else f" of {node_type!r}"
    data: dict[str, Features] = {}
    for name, value in values.items():
        if value is None:
            continue
        if name == "x":
            data[name] = as_features(value, num_nodes, f"x{where}", check=check)
        elif name == "y":
            data[name] = as_labels(value, num_nodes, f"y{where}", check=check)
        elif name in SPLITS:
            data[name] = as_mask(value, num_nodes, f"{name}{where}", check=check)
        else:
            data[name] = _check_rows(as_tensor(value, f"{name}{where}"), num_nodes, f"{name}{where}", "node")
    if check:
        _check_splits(data, where)
    return data


def as_features(value: Any, num_nodes: int, name: str = "x", *, check: bool = True) -> Features:
    """Return features [N, F], dense or sparse, in a floating type; refuse NaN and infinity.

    Those of a store are taken as they are: nothing of them is read.
    """
    if isinstance(value, RowSource):
        return cast(Tensor, _check_rows(value, num_nodes, name, "node"))
    sparse = isinstance(value, SparseFeatures) or hasattr(value, "tocsr")
    if sparse or (isinstance(value, Tensor) and value.layout is not torch.strided):
        features: Features = SparseFeatures.from_any(value)
    else:
        dense = as_tensor(value, name)
        if dense.is_complex():
            raise GraphError(f"{name} must hold real numbers, got {dense.dtype}")
        features = dense if dense.is_floating_point() else dense.to(torch.float32)
    if not check:
        return features
    if features.dim() != 2:
        shape = tuple(features.shape)
        raise GraphError(f"{name} must have shape (num_nodes, num_features), got {shape}")
    _check_rows(features, num_nodes, name, "node")
    if isinstance(features, SparseFeatures) and not is_csr(
        features.indptr, features.indices, features.shape[1]
    ):
        raise GraphError(
            f"{name}: not valid CSR: pointers must ascend, columns be 0 … {features.shape[1] - 1:,}"
        )
    _check_finite(features, name)
    return features


def as_labels(value: Any, num_nodes: int, name: str = "y", *, check: bool = True) -> Tensor:
    """Return labels: [N] int64 with -1 for "no label", or [N, C] float32 of 0 and 1 for several a node.

    Numbers that cannot be classes are to be predicted: [N] float64, nan where unknown. Such are those with a
    fraction, too large or nan, and in a floating type those below -1.
    """
    _refuse_text(value, name)
    labels = as_tensor(value, name)
    if labels.dim() == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]  # OGB's shape
    if labels.dim() == 1 and _are_values(labels, num_nodes):
        values = labels.to(torch.float64)
        if check:
            _check_rows(values, num_nodes, name, "node")
            _check_values(values, name)
        return values
    if check:
        if labels.dim() not in (1, 2):
            raise GraphError(
                f"{name} must have shape (num_nodes,) or (num_nodes, num_classes), got {tuple(labels.shape)}"
            )
        _check_rows(labels, num_nodes, name, "node")
        _check_label_values(labels, num_nodes, name)
    return labels.to(torch.int64 if labels.dim() == 1 else torch.float32)


def as_mask(value: Any, num_nodes: int, name: str, *, check: bool = True) -> Tensor:
    """Return a mask [N] of booleans with at least one node in it."""
    mask = as_tensor(value, name)
    if not check:
        return mask
    if mask.dtype != torch.bool:
        raise GraphError(f"{name} must be boolean, got {mask.dtype}; pass {name}.bool() if 1 means chosen")
    if mask.dim() == 2:
        raise GraphError(
            f"{name} has shape {tuple(mask.shape)}: several splits; choose one column, as in {name}[:, 0]"
        )
    _check_rows(mask, num_nodes, name, "node")
    if not bool(mask.any()):
        raise GraphError(
            f"{name} chooses none of the {num_nodes:,} nodes; leave it out if there is no such split"
        )
    return mask


def as_edge_type(value: Any, num_edges: int, num_relations: int | None) -> tuple[Tensor, int]:
    """Return the relation of each edge as int32, and the number of relations."""
    kinds = as_tensor(value, "edge_type")
    whole = not (kinds.is_floating_point() or kinds.is_complex() or kinds.dtype == torch.bool)
    if kinds.dim() != 1 or not (whole or kinds.numel() == 0):
        shape = tuple(kinds.shape)
        raise GraphError(f"edge_type must be whole numbers of shape (E,), got {kinds.dtype} of shape {shape}")
    _check_rows(kinds, num_edges, "edge_type", "edge")
    low, high = (int(kinds.min()), int(kinds.max())) if kinds.numel() else (0, 0)
    limit = max(high + 1, 1) if num_relations is None else num_relations
    if limit > max(num_edges, _RELATIONS):  # each has a name and, in many models, weights
        raise GraphError(f"{limit:,} relations for {num_edges:,} edges; number those that are used from 0")
    if low < 0 or high >= limit or high >= 2**31 - 1:
        worst = low if low < 0 else high
        raise GraphError(
            f"edge_type holds {worst:,}, relations are 0 … {limit - 1:,}; set num_relations to allow more"
        )
    return kinds.to(torch.int32), limit


def as_edge_data(
    value: Any, num_edges: int, name: str, *, label: str | None = None, check: bool = True
) -> Tensor:
    """Return a weight, feature or time an edge, [E, ...]; weights and features floating and finite.

    `name` is that of the data (weight, attr, time, ...); messages call it `label`, by default edge_<name>.
    """
    label = label or f"edge_{name}"
    data = as_tensor(value, label)
    _check_rows(data, num_edges, label, "edge")
    if name in ("weight", "attr"):
        if name == "weight" and data.dim() == 2 and data.shape[1] == 1:
            data = data[:, 0]
        if name == "weight" and data.dim() != 1:
            raise GraphError(
                f"{label} must have shape (E,), got {tuple(data.shape)}; use edge_attr for several columns"
            )
        data = data if data.is_floating_point() else data.to(torch.float32)
    if check and data.is_floating_point():
        unknown = torch.isnan(data) if name in ("label", "rating") else None  # what is to be predicted
        _check_finite(data if unknown is None else data[~unknown], label)
    return data


def _check_rows(value: Any, expected: int, name: str, of: str) -> Any:
    got = int(value.shape[0]) if len(value.shape) else 0
    if got != expected:
        rows = "row" if got == 1 else "rows"
        raise GraphError(f"{name} has {got:,} {rows}, but there are {expected:,} {of}s: each needs one row")
    return value


def is_csr(indptr: Tensor, indices: Tensor, limit: int) -> bool:
    """Return whether pointers ascend from 0 to the number of indices and these are 0 … limit − 1."""
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices) or not bool((indptr[1:] >= indptr[:-1]).all()):
        return False
    return within(indices, limit)


def within(values: Tensor, limit: int) -> bool:
    """Return whether all values are 0 … limit − 1."""
    if values.numel() == 0:
        return True
    low, high = torch.aminmax(values)
    return int(low) >= 0 and int(high) < limit


def _check_finite(features: Features, name: str) -> None:
    values = features.values if isinstance(features, SparseFeatures) else features
    if values.numel() == 0 or bool(torch.isfinite(values.sum())):
        return  # a finite sum has no NaN and no infinity in it: one pass, no memory
    bad = ~torch.isfinite(values)
    count = int(bad.sum())
    if count == 0:
        return  # finite values whose sum overflows
    place = bad.nonzero()[0]
    if isinstance(features, SparseFeatures):
        row, column = int(features.row_ids[place[0]]), int(features.indices[place[0]])
        columns = int(torch.bincount(features.indices[bad]).count_nonzero())
    else:
        row, column = int(place[0]), int(place[1]) if bad.dim() > 1 else 0
        columns = int(bad.flatten(1).any(0).sum()) if bad.dim() > 1 else 1
    values_are = "value that is" if count == 1 else "values that are"
    more = f" and in {columns - 1:,} more column{'s' if columns > 2 else ''}" if columns > 1 else ""
    raise GraphError(
        f"{name} holds {count:,} {values_are} NaN or infinite, in column {column:,}{more}"
        f" (first at row {row:,}); clean or impute them first"
    )


def _refuse_text(value: Any, name: str) -> None:
    """Say how to number labels that are words."""
    first = value[0] if isinstance(value, list | tuple) and value else None
    if isinstance(first, str) or (isinstance(value, np.ndarray) and value.dtype.kind in "USO" and value.size):
        shown = first if first is not None else np.asarray(value).flat[0]
        raise GraphError(
            f"{name} holds {str(shown)!r}: labels are numbers 0 … C-1, -1 for no label; "
            "numpy.unique(labels, return_inverse=True)[1] numbers words"
        )


def _are_values(y: Tensor, num_nodes: int) -> bool:
    """Return whether numbers, one per node, are no classes: some have a fraction, are too large or nan."""
    if y.numel() == 0 or y.is_complex() or y.dtype == torch.bool:
        return False
    if y.is_floating_point() and bool(y.isnan().any()):
        return True  # a class that is not known is -1
    return not may_be_classes(y, num_nodes)


def may_be_classes(y: Tensor, num_nodes: int) -> bool:
    """Return whether the known of numbers, one per node, are whole and no larger than classes are.

    Integers below -1 are, too: as classes that are wrong they are refused.
    """
    known = y[y.isfinite()] if y.is_floating_point() else y
    if not known.numel():
        return True
    if known.is_floating_point() and (bool((known != known.round()).any()) or float(known.min()) < -1):
        return False
    return int(known.min()) < -1 or int(known.max()) < most_classes(num_nodes)


def _check_values(values: Tensor, name: str) -> None:
    wrong = values.isinf()
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise GraphError(
            f"{name} holds {float(values[row]):g} at node {row:,}: expected numbers, nan where unknown"
        )


def most_classes(num_nodes: int) -> int:
    """Return a number of classes above any known data set's: beyond it are ids, times or values."""
    return max(num_nodes, 1 << 16)


def _check_label_values(labels: Tensor, num_nodes: int, name: str) -> None:
    if labels.numel() == 0:
        return
    if labels.is_floating_point():
        whole = torch.isfinite(labels) & (labels == labels.round())
        if not bool(whole.all()):
            row = int((~whole).nonzero()[0, 0])
            value = labels[row].flatten()[(~whole[row]).flatten()][0]
            raise GraphError(
                f"{name} holds {float(value):g} at node {row:,}: labels are whole numbers, -1 for no label"
            )
    low, high = int(labels.min()), int(labels.max())
    if labels.dim() == 2:
        if low < 0 or high > 1:
            worst = low if low < 0 else high
            raise GraphError(f"{name} has several columns, so its values must be 0 or 1; it holds {worst}")
        return
    limit = most_classes(num_nodes)
    if low < -1 or high >= limit:
        outside = low if low < -1 else high
        row = int((labels == outside).nonzero()[0])
        known = f"labels are 0 … {limit - 1:,}, or -1 for no label; numbers to predict are stored as floats"
        raise GraphError(f"{name} holds label {outside:,} at node {row:,}; {known}")


def _check_splits(data: Mapping[str, Features], where: str) -> None:
    masks = {name: data[name] for name in SPLITS if name in data}
    names = list(masks)
    for position, first in enumerate(names):
        for second in names[position + 1 :]:
            both = masks[first] & masks[second]  # type: ignore[operator]
            if bool(both.any()):
                node, count = int(both.nonzero()[0]), int(both.sum())
                raise GraphError(
                    f"{first} and {second}{where} overlap: {count:,} in both, the first is node {node:,}"
                )
    labels = data.get("y")
    if isinstance(labels, Tensor) and _are_classes(labels) and "train_mask" in masks:
        missing = masks["train_mask"] & (labels < 0)  # type: ignore[operator]
        if bool(missing.any()):
            node, count = int(missing.nonzero()[0]), int(missing.sum())
            raise GraphError(
                f"train_mask{where} holds nodes without a label: {count:,}, the first is node {node:,}; take "
                "them out of it"
            )


def _are_classes(y: Tensor) -> bool:
    """Return whether y is one class per node; numbers below 0 are numbers like others."""
    return y.dim() == 1 and not y.is_floating_point()


def _signed(array: "np.ndarray[Any, Any]", name: str) -> "np.ndarray[Any, Any]":
    """Return unsigned integers as the signed ones torch computes with."""
    if array.dtype.itemsize < 8:
        return array.astype(np.int32 if array.dtype.itemsize == 2 else np.int64)
    if array.size and int(array.max()) >= 2**63:
        raise GraphError(f"{name} holds {int(array.max()):,}, more than a 64-bit integer can")
    return array.astype(np.int64)


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"
