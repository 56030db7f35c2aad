"""Dense inputs that are almost all zeros."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

import weft
from weft.interop.pyg.accelerate import inputs
from weft.interop.pyg.accelerate.inputs import SparseBacked, sparse_of


@pytest.fixture
def x(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    monkeypatch.setattr(inputs, "_SMALLEST", 100)
    generator = torch.Generator().manual_seed(0)
    return torch.rand(60, 50, generator=generator) * (torch.rand(60, 50, generator=generator) < 0.03)


def test_an_input_is_looked_into_when_it_comes_again_unchanged(x):
    assert sparse_of(x) is None
    sparse = sparse_of(x)
    assert torch.equal(sparse.to_dense(), x)
    assert sparse_of(x) is sparse
    x[0, 0] = 7.0
    assert torch.equal(sparse_of(x).to_dense(), x)


def test_dense_small_and_differentiable_inputs_stay_as_they_are(x):
    for other in (torch.rand(60, 50), torch.zeros(3, 3), x.clone().requires_grad_(), x.to(torch.int64)):
        assert sparse_of(other) is None
        assert sparse_of(other) is None


def test_backed_tensor_is_the_dense_one_for_everybody_else(x):
    backed = SparseBacked(weft.SparseFeatures.from_dense(x))
    assert isinstance(backed, torch.Tensor)
    assert backed.shape == x.shape
    assert torch.equal(backed + 1, x + 1)
    assert torch.equal(torch.relu(backed), x)
    assert torch.equal(backed[3], x[3])
    weight = torch.randn(4, 50, requires_grad=True)
    F.linear(backed, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(4, 50))


def test_backed_tensor_that_is_written_to_forgets_its_non_zeros(x):
    backed = SparseBacked(weft.SparseFeatures.from_dense(x))
    backed.mul_(2.0)
    assert sparse_of(backed) is None
    assert torch.equal(backed + 0, 2 * x)


class Net(nn.Module):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.seen: list[type] = []

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        x = F.dropout(x, 0.5, training=self.training)
        self.seen.append(type(x))
        return self.conv(x, edge_index)


@pytest.mark.parametrize(
    "make", [lambda: GATConv(50, 4, heads=2), lambda: GCNConv(50, 4), lambda: SAGEConv(50, 4)]
)
def test_dropout_of_a_sparse_input_stays_sparse_and_trains_as_before(x, make):
    torch.manual_seed(0)
    edges, model = torch.randint(0, 60, (2, 200)), weft.accelerate(Net(make()))
    for _ in range(3):
        model(x, edges)
    assert model.seen == [torch.Tensor, SparseBacked, SparseBacked]
    model.eval()
    torch.testing.assert_close(model(x, edges), make().__class__.forward(model.conv, x, edges))
    assert model.seen[-1] is torch.Tensor


def test_dropped_values_are_zero_or_scaled(x):
    model = weft.accelerate(Net(SAGEConv(50, 4)))
    with inputs._Dropout():
        F.dropout(x, 0.25)
        out = F.dropout(x, 0.25)
    assert isinstance(out, SparseBacked)
    kept = out.dense() != 0
    torch.testing.assert_close(out.dense()[kept], x[kept] / 0.75)
    assert 0.5 < kept.sum() / (x != 0).sum() < 0.95
    assert model is not None


def test_an_error_in_the_model_leaves_no_mode_behind(x):
    model = weft.accelerate(Net(SAGEConv(50, 4)))
    with pytest.raises((RuntimeError, ValueError)):
        model(x[:, :7], torch.tensor([[0], [1]]))
    assert inputs._entered.models == []
    assert type(F.dropout(x, 0.5)) is torch.Tensor


def test_large_hidden_matrices_are_dropped_by_counters_with_their_gradient(monkeypatch):
    monkeypatch.setattr(inputs, "_SMALLEST", 100)
    h = torch.ones(60, 50, requires_grad=True)
    with inputs._Dropout():
        torch.manual_seed(0)
        out, other = F.dropout(h, 0.25), F.dropout(h, 0.25)
        torch.manual_seed(0)
        assert torch.equal(F.dropout(h, 0.25), out)
        assert F.dropout(h, 0.25, training=False) is h
    assert not torch.equal(out, other)
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    out.sum().backward()
    assert torch.equal(h.grad, out.detach())


def test_a_matrix_that_is_filled_anew_without_a_new_version_is_seen(x):
    sparse_of(x), sparse_of(x)
    x.data.mul_(2.0)
    assert torch.equal(sparse_of(x).to_dense(), x)
    x.numpy()[:] = 0.0
    assert torch.equal(sparse_of(x).to_dense(), x)
    x.numpy()[3, 4] = 1.0
    assert torch.equal(sparse_of(x).to_dense(), x)


def test_a_column_of_zeros_that_is_filled_without_a_new_version_is_seen(monkeypatch):
    monkeypatch.setattr(inputs, "_SMALLEST", 100)
    x = torch.eye(300, 310)
    sparse_of(x), sparse_of(x)
    x.numpy()[:, 305] = 1.0
    assert torch.equal(sparse_of(x).to_dense(), x)
