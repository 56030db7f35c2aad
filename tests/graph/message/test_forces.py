"""Second derivatives of messages: a loss of forces, compiled and not, against plain torch, or refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.errors import GraphError
from weft.graph import Graph
from weft.graph.message import compiled
from weft.graph.message import propagate as module

NODES, EDGES = 20, 300


@pytest.fixture(params=[True, False], ids=["compiled", "as it is"])
def compiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 0)
    before = weft.compile_messages(request.param)
    yield bool(request.param)
    weft.compile_messages(before)


class Potential(nn.Module):
    """A message of positions; both maps stay on edges, behind a function of both ends."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(3, 8).double(), nn.Linear(8, 4).double()

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        made: Tensor = self.last(torch.tanh(self.first((u - v) ** 2)))
        return made


class Attending(Potential):
    """Its score and value."""

    def forward(self, u: Tensor, v: Tensor) -> Any:
        made = super().forward(u, v)
        return made[:, :1].squeeze(1).sin(), made


def edges() -> Tensor:
    return torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(1))


def positions() -> Tensor:
    make = torch.Generator().manual_seed(2)
    return torch.randn(NODES, 3, dtype=torch.float64, generator=make).requires_grad_()


def forces_loss(energy: Callable[[Tensor], Tensor], weights: nn.Module) -> list[Tensor]:
    """Return the gradients of squared forces, by positions and by the weights."""
    x = positions()
    (force,) = torch.autograd.grad(energy(x).sum(), x, create_graph=True)
    found = torch.autograd.grad((force**2).mean(), [x, *weights.parameters()], allow_unused=True)
    return [torch.zeros(()).double() if each is None or not each.any() else each for each in found]


def plainly(model: nn.Module, reduce: str, x: Tensor) -> Tensor:
    src, dst = edges()
    made = model(x[src], x[dst])
    if reduce == "softmax":
        score, made = made
        power = score.exp()
        mass = torch.zeros(NODES).double().index_add(0, dst, power)
        made, reduce = made * (power / mass[dst])[:, None], "sum"
    index = dst[:, None].expand_as(made)
    kind = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    out = made.new_zeros(NODES, made.shape[1])
    return out.scatter_reduce(0, index, made, kind, include_self=False)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "softmax"])
def test_a_loss_of_forces_is_that_of_plain_torch(reduce: str, compiles: bool) -> None:
    model = Attending() if reduce == "softmax" else Potential()
    block = Graph.from_edges(edges(), num_nodes=NODES).block()

    def energy(x: Tensor) -> Tensor:
        return block.propagate(model, src=[x], dst=[block.dst(x)], reduce=reduce)

    expected = forces_loss(lambda x: plainly(model, reduce, x), model)
    assert all(float(each.abs().sum()) > 1e-3 for each in expected[:3])
    if compiles:
        with compiled.watched() as asked:
            energy(positions())
        assert not isinstance(asked[0].found, str)
    for got, want in zip(forces_loss(energy, model), expected, strict=True):
        torch.testing.assert_close(got, want)


def test_messages_made_in_chunks_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 40)
    before, model = weft.compile_messages(False), Potential()
    block = Graph.from_edges(edges(), num_nodes=NODES).block()
    try:
        with pytest.raises(GraphError, match=r"first derivatives alone; .* need fewer edges"):
            forces_loss(lambda x: block.propagate(model, src=[x], dst=[block.dst(x)]), model)
    finally:
        weft.compile_messages(before)


@pytest.mark.parametrize("name", ["GCNConv", "GATConv", "GATv2Conv", "TransformerConv", "EdgeConv"])
def test_an_accelerated_convolution_is_that_of_pyg(name: str, compiles: bool) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    conv = (pyg.EdgeConv(inner) if name == "EdgeConv" else getattr(pyg, name)(3, 4)).double()
    model = pyg.Sequential("x, edge_index", [(conv, "x, edge_index -> x")])
    expected = forces_loss(lambda x: torch.sin(model(x, edges())), model)
    weft.accelerate(model)
    for got, want in zip(forces_loss(lambda x: torch.sin(model(x, edges())), model), expected, strict=True):
        torch.testing.assert_close(got, want)
