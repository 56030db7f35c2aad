"""Features, labels and splits by name: the same for a whole graph and for the rows that a rank holds."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import GraphError
from weft.graph.checks import SPLITS
from weft.graph.sparse import Features
from weft.reading.json_values import Maybe, WholeNumber

AS_IT_IS = ("y", "time")
"""Node data that no choice of a floating type changes: what is compared, with all its digits."""


class TargetCounts(NamedTuple):
    """What y of all nodes is, wherever these are: files keep it, and workers who hold some of them."""

    num_classes: int = 0
    """Columns of several 0/1 columns, else the largest class + 1; 0 without any."""
    multilabel: bool = False
    """Whether a node has several."""

    @classmethod
    def of(cls, y: Any) -> Self:
        """Return that of a tensor or an array, or of None."""
        if y is None or 0 in y.shape:
            return cls(0, y is not None and y.ndim == 2)
        if y.ndim == 2:
            return cls(int(y.shape[1]), True)
        return cls() if "float" in str(y.dtype) else cls(int(y.max()) + 1)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Self:
        """Return what `_asdict` wrote."""
        return cls(int(told["num_classes"]), bool(told["multilabel"]))

    def as_y(self, values: NDArray[Any]) -> Tensor:
        """Return some rows of y, which a file has one after the other, in the type that y has."""
        if self.multilabel:
            return torch.from_numpy(values.astype(np.float32).reshape(-1, self.num_classes))
        return torch.from_numpy(values.astype(np.float64 if values.dtype.kind == "f" else np.int64))


COUNTS_SHAPE = {"num_classes": Maybe(WholeNumber()), "multilabel": Maybe(bool)}
"""What a file may hold of it."""


def data_by_splits(y: Tensor, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Return the data of rows that stand one split after the other: y, and which rows each split has."""
    data, first = {"y": y}, 0
    for split, size in sizes.items():
        if f"{split}_mask" in SPLITS:
            mask = data[f"{split}_mask"] = torch.zeros(len(y), dtype=torch.bool)
            mask[first : first + size] = True
        first += size
    return data


class NodeData:
    """Gives the data of nodes their names. Who inherits it provides the six below."""

    node_types: list[str]
    node_offsets: list[int]
    node_data: dict[str, dict[str, Features]]
    target_rows: slice
    """The rows of the target type."""
    target_counts: TargetCounts
    """What y of the whole graph is."""

    @property
    def target_type(self) -> str:
        """The node type that targets are of."""
        raise NotImplementedError

    @property
    def x(self) -> Any:
        """The features: a matrix where there is one node type, else a matrix for each type that has one."""
        if len(self.node_types) == 1:
            return self.node_data[self.node_types[0]].get("x")
        return {kind: data["x"] for kind, data in self.node_data.items() if "x" in data}

    @property
    def y(self) -> Tensor | None:
        """What is known of the target type: [n] int64 classes, [n, C] float32 several, [n] float64 numbers.

        A class of -1 and a number nan are unknown.
        """
        return self.of_target("y")

    @property
    def num_classes(self) -> int:
        """The number of classes: columns of a multi-label y, else the largest label + 1; 0 without any."""
        return self.target_counts.num_classes

    @property
    def multilabel(self) -> bool:
        """Whether a node has several labels."""
        return self.target_counts.multilabel

    @property
    def is_labelled(self) -> bool:
        """Whether nodes of some type have a y."""
        return any("y" in data for data in self.node_data.values())

    @property
    def has_values(self) -> bool:
        """Whether y holds numbers to predict rather than classes."""
        return self.y is not None and self.y.dim() == 1 and self.y.is_floating_point()

    def labelled(self, rows: Tensor) -> Tensor:
        """Return those of some rows of the target type whose y is known."""
        y = self.y
        if y is None or y.dim() == 2:
            return rows
        return rows[~y[rows].isnan()] if y.is_floating_point() else rows[y[rows] >= 0]

    def known_of(self, rows: Tensor) -> Tensor | None:
        """Return y of some rows, which must be of the target type; None where there is no y."""
        y, own = self.y, self.target_rows
        if y is None:
            return None
        if len(self.node_types) == 1:
            return y[rows]
        places = rows - own.start
        if places.numel() and (int(places.min()) < 0 or int(places.max()) >= own.stop - own.start):
            raise GraphError(f"not all seeds are of type {self.target_type!r}, the one with labels")
        return y[places]

    def seeds(self) -> Tensor:
        """Return the rows to train on, in the memory of the host: of the training split, with a known y."""
        mask = self.train_mask
        if mask is None:
            raise GraphError("the graph has no train_mask; give the loader its seeds, node ids")
        return self.labelled(mask.nonzero().flatten()).cpu() + int(self.target_rows.start)

    def seeds_or_all(self) -> Tensor:
        """Return the rows to train on; all, where nothing says which."""
        return torch.arange(self.node_offsets[-1]) if self.train_mask is None else self.seeds()

    @property
    def train_mask(self) -> Tensor | None:
        """The nodes of the target type to train on, [n] bool."""
        return self.of_target("train_mask")

    @property
    def val_mask(self) -> Tensor | None:
        """The nodes of the target type to choose a model by, [n] bool."""
        return self.of_target("val_mask")

    @property
    def test_mask(self) -> Tensor | None:
        """The nodes of the target type to test on, [n] bool."""
        return self.of_target("test_mask")

    def of_target(self, name: str) -> Tensor | None:
        """Return what the target type has under a name; None where it has nothing."""
        value = self.node_data[self.target_type].get(name)
        assert value is None or isinstance(value, Tensor)
        return value
