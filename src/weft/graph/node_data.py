"""Features, labels and splits by name: the same for a whole graph and for the rows that a rank holds."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.checks import SPLITS
from weft.graph.sparse import Features


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
    """Gives the data of nodes their names. Who inherits it provides the four below."""

    node_types: list[str]
    node_data: dict[str, dict[str, Features]]
    target_rows: slice
    """The rows of the target type."""

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
