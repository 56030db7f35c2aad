"""What `edge_updater` gives is compiled with the message that reads it: PyG's numbers, always."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import weft
from weft.errors import InputError, WeftWarning
from weft.graph.message import compiled

pyg = pytest.importorskip("torch_geometric.nn")
utils = pytest.importorskip("torch_geometric.utils")


@pytest.fixture(autouse=True)
def on_small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 0)


class Attention(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """A user's attention: scores by edge_updater, of both ends, the edge and parameters."""

    def __init__(self, dropout: float = 0.0, way: str = "") -> None:
        super().__init__(aggr="add", node_dim=0)
        self.lin, self.att = nn.Linear(6, 8), nn.Parameter(torch.randn(1, 2, 4))
        self.edge = nn.Linear(3, 2)
        self.dropout, self.way = dropout, way

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
        h = self.lin(x).view(-1, 2, 4)
        alpha = self.edge_updater(edge_index, h=h, alpha=(h * self.att).sum(-1), edge_attr=edge_attr)
        if self.way == "read":
            alpha = alpha * 0.5 + alpha.detach()
        elif self.way == "written":
            alpha.mul_(2.0)
        elif self.way == "changed":
            h.mul_(2.0)
        out = self.propagate(edge_index, h=h, alpha=alpha)
        return out + alpha.sum() if self.way == "behind" else out

    def edge_update(
        self, h_i: Tensor, alpha_j: Tensor, alpha_i: Tensor, edge_attr: Tensor, index: Tensor, size_i: Any
    ) -> Tensor:
        score = F.leaky_relu(alpha_i + alpha_j + self.edge(edge_attr) + h_i.sum(-1), 0.2)
        return F.dropout(utils.softmax(score, index, num_nodes=size_i), self.dropout, self.training)

    def message(self, h_j: Tensor, alpha: Tensor) -> Tensor:
        return alpha.unsqueeze(-1) * h_j


class OwnGAT(pyg.GATConv):  # type: ignore[misc,name-defined]
    """A user's subclass, for which weft has no forward."""


def arguments() -> list[Tensor]:
    draw = torch.Generator().manual_seed(3)
    edge_index = torch.randint(0, 18, (2, 90), generator=draw)
    x, attr = (torch.randn(n, w, generator=draw, dtype=torch.float64) for n, w in ((20, 6), (90, 3)))
    return [x.requires_grad_(), edge_index, attr.requires_grad_()]


def results(conv: nn.Module, args: list[Tensor]) -> list[Tensor]:
    """Return the output and the gradients of all inputs and parameters."""
    leaves = [t for t in (*args, *conv.parameters()) if t.requires_grad]
    out = conv(*args)
    grad = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    grads = torch.autograd.grad(out, leaves, grad, allow_unused=True)
    return [out, *(torch.zeros_like(t) if g is None else g for t, g in zip(leaves, grads))]


def same(fast: nn.Module, conv: nn.Module, args: list[Tensor]) -> None:
    for ours, theirs in zip(results(fast, args), results(conv, args), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def both(make: Any) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    conv = make().double()
    return conv, weft.accelerate(copy.deepcopy(conv))


@pytest.mark.parametrize("make", [Attention, lambda: OwnGAT(6, 4, heads=2, edge_dim=3)])
def test_attention_is_one_reduction_with_its_message(make: Any) -> None:
    conv, fast = both(make)
    args = arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeftWarning)
        same(fast, conv, args)
        with compiled.watched() as asked:
            fast(*args)
    assert len(asked) == 1
    made, _ = asked[0].found
    assert [each.kind for each in made.reductions] == ["softmax"]
    assert not made.inner


@pytest.mark.parametrize(
    "way", ["read", *(pytest.param(each, marks=pytest.mark.slow) for each in ("written", "behind"))]
)
def test_whatever_else_reads_it_gets_pygs_values_and_gradients(way: str) -> None:
    conv, fast = both(lambda: Attention(way=way))
    with pytest.warns(WeftWarning, match="Attention runs PyG's own edge_updater: what it gives is read"):
        same(fast, conv, arguments())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(fast, conv, arguments())


@pytest.mark.slow
def test_second_derivatives_of_what_is_read_are_pygs() -> None:
    conv, fast = both(lambda: Attention(way="read"))
    found = []
    for each in (fast, conv):
        x, *rest = arguments()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (force,) = torch.autograd.grad(each(x, *rest).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(force.square().sum(), [x, *each.parameters()], allow_unused=True))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_dropout_of_attention_is_pygs_own_while_training() -> None:
    conv, fast = both(lambda: Attention(dropout=0.5))
    torch.manual_seed(1)
    with pytest.warns(WeftWarning, match="edge_updater: its edge_update is not compiled: it draws random"):
        ours = fast(*arguments())
    torch.manual_seed(1)
    torch.testing.assert_close(ours, conv(*arguments()))
    same(fast.eval(), conv.eval(), arguments())


def test_what_was_read_and_then_written_to_is_refused() -> None:
    with pytest.raises(InputError, match="Attention: a tensor that edge_updater read was written to"):
        both(lambda: Attention(way="changed"))[1](*arguments())
