"""Features, labels and splits by name: the same for a whole graph and for the rows that a rank holds."""

from typing import Any

from torch import Tensor

from weft.graph.sparse import Features


class NodeData:
    """Gives the data of nodes their names. Who inherits it provides the three below."""

    node_types: list[str]
    node_data: dict[str, dict[str, Features]]

    @property
    def target_type(self) -> str:
        """The node type that has labels."""
        raise NotImplementedError

    @property
    def x(self) -> Any:
        """The features: a matrix where there is one node type, else a matrix for each type that has one."""
        if len(self.node_types) == 1:
            return self.node_data[self.node_types[0]].get("x")
        return {kind: data["x"] for kind, data in self.node_data.items() if "x" in data}

    @property
    def y(self) -> Tensor | None:
        """The labels of the target type: [n] int64, or [n, C] float32 where a node has several."""
        return self.of_target("y")

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
