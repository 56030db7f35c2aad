"""PyG objects as data sets."""

import pytest
import torch

from weft.datasets import open_dataset

data_module = pytest.importorskip("torch_geometric.data")


def test_data_object_is_opened_and_prepared() -> None:
    data = data_module.Data(
        x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 0])
    )
    graph = open_dataset(name="pyg", data=data)
    assert graph.num_edges == 4
    assert torch.equal(graph.x, torch.eye(3))
    assert graph.train_mask is not None


def test_hetero_object_is_opened() -> None:
    data = data_module.HeteroData()
    data["a"].x, data["b"].num_nodes = torch.eye(2), 3
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [2, 0]])
    graph = open_dataset(name="pyg", data=data)
    assert graph.num_nodes == 5
    assert graph.num_edges == 4
