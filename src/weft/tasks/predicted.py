"""What the rows of predictions hold: columns for Arrow, made of a model's outputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from weft.errors import GraphError
from weft.registry import require

Columns = dict[str, Any]


def class_columns(outputs: Tensor, classes: Sequence[str] | None = None) -> Columns:
    """Return the likeliest class of each row, its probability, and the outputs."""
    best = outputs.softmax(dim=1).max(dim=1)
    return {
        "prediction": _named(best.indices, classes),
        "probability": best.values.float().numpy(),
        "output": lists(outputs),
    }


def label_columns(outputs: Tensor, labels: Sequence[str] | None = None) -> Columns:
    """Return the list of the labels of each row, those likelier than not, and the outputs."""
    arrow = require("pyarrow", "data")
    row, column = (outputs > 0).nonzero(as_tuple=True)
    ends = arrow.array(np.searchsorted(row.numpy(), np.arange(len(outputs) + 1)), arrow.int32())
    labels_of_rows = arrow.ListArray.from_arrays(ends, _named(column, labels))
    return {"prediction": labels_of_rows, "output": lists(outputs)}


def value_columns(outputs: Tensor) -> Columns:
    """Return the number of each row; a list where there are several."""
    return {"value": outputs[:, 0].numpy() if outputs.shape[1] == 1 else lists(outputs)}


def lists(rows: Tensor) -> Any:
    """Return the rows of a matrix as a column of lists."""
    arrow = require("pyarrow", "data")
    if rows.dim() != 2 or rows.numel() >= 2**31:  # a list column counts its values in 32 bits
        raise GraphError(f"expected rows [n, width], got shape {list(rows.shape)}; engines pass on vectors")
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    flat = arrow.array(rows.contiguous().reshape(-1).numpy())
    return arrow.ListArray.from_arrays(arrow.array(offsets.astype(np.int32)), flat)


def _named(places: Tensor, names: Sequence[str] | None) -> Any:
    arrow = require("pyarrow", "data")
    column = arrow.array(places.numpy())
    return column if names is None else arrow.array(list(names), arrow.string()).take(column)
