"""Features and weights without values: of the same shape, beside indices that are real; the source stays."""

import torch
from torch._subclasses.fake_tensor import FakeTensor

import weft
from weft.graph.sparse import SparseFeatures
from weft.plan.rehearse.fakes import empty_graph, empty_weights, fake_mode, without_values


def test_a_graph_without_values_leaves_the_graph_as_it_was() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=50, features=4)
    made = empty_graph(graph, fake_mode())
    assert isinstance(made.x, FakeTensor)
    assert list(made.x.shape) == list(graph.x.shape)
    assert not isinstance(graph.x, FakeTensor)
    assert not isinstance(made.indices, FakeTensor)


def test_sparse_features_keep_their_places() -> None:
    x = SparseFeatures.from_dense(torch.eye(3))
    made = without_values(x, fake_mode())
    assert isinstance(made.values, FakeTensor)
    assert made.indices is x.indices


def test_weights_that_are_shared_stay_shared() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    empty_weights(model, fake_mode())
    assert isinstance(model[0].weight, FakeTensor)
    assert model[1].weight is model[0].weight
    assert model[0].bias is not model[1].bias
