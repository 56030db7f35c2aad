"""A graph small enough to train on in a blink, whose labels need the graph."""

import pytest

import weft


@pytest.fixture(scope="session")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=300, degree=8, classes=3, features=8, seed=1)
