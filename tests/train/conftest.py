"""A graph small enough to train on in a blink, whose labels need the graph."""

import pytest
import torch

import weft


@pytest.fixture(scope="session")
def graph() -> weft.Graph:
    with torch.device("cpu"):  # should the kernels' tests on a GPU run in the same process
        return weft.datasets.open_dataset(
            name="community", nodes=300, degree=8, classes=3, features=8, seed=1
        )
