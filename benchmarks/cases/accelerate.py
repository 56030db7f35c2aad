"""`weft.accelerate` on the GAT of PyG's own example: the same module, the same loop, one line more."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric
from torch import Tensor, nn

import weft
from benchmarks.graphs import real
from benchmarks.measure import Case, Step


class ExampleGAT(nn.Module):
    """The shape of PyG's GAT example: 8 heads of 8, dropout 0.6 on inputs, hidden values and attention."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.conv1 = torch_geometric.nn.GATConv(in_features, 8, heads=8, dropout=0.6)
        self.conv2 = torch_geometric.nn.GATConv(64, out_features, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


def _data(name: str) -> dict[str, Any]:
    graph = real(name, symmetrise=True, normalise_features=True)
    torch.manual_seed(0)
    model = ExampleGAT(graph.x.shape[1], graph.num_classes)
    x = graph.x if isinstance(graph.x, Tensor) else graph.x.to_dense()
    return {"graph": graph, "model": model, "x": x, "edge_index": graph.edge_index}


def _training(data: dict[str, Any], model: nn.Module) -> Step:
    graph, x, edge_index = data["graph"], data["x"], data["edge_index"]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    model.train()

    def step() -> Tensor:
        optimizer.zero_grad()
        out = model(x, edge_index)
        loss = F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask].long())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _accelerated(data: dict[str, Any]) -> Step:
    return _training(data, weft.accelerate(copy.deepcopy(data["model"])))


def _plain(data: dict[str, Any]) -> Step:
    return _training(data, copy.deepcopy(data["model"]))


def _case(name: str, must: float | None, goal: float | None) -> Case:
    return Case(
        name=f"accelerate_{name}",
        title=f"PyG's GAT example, one training step, {name}",
        setup=lambda: _data(name),
        contenders={"accelerated": _accelerated, "as it is": _plain},
        must=must,
        goal=goal,
        repeat=9,
        memory=True,
    )


def _gine_data() -> dict[str, Any]:
    graph = real("wordnet30", symmetrise=True)
    torch.manual_seed(0)
    width = 64
    conv = torch_geometric.nn.GINEConv(nn.Linear(width, width), edge_dim=16)
    x, attr = torch.randn(graph.num_nodes, width), torch.randn(graph.num_edges, 16)
    return {"conv": conv, "x": x.requires_grad_(), "edge_index": graph.edge_index, "attr": attr}


def _gine(data: dict[str, Any], conv: nn.Module) -> Step:
    def step() -> Tensor:
        out = conv(data["x"], data["edge_index"], data["attr"])
        out.sum().backward()
        return out.detach()

    return step


CASES = [
    _case("cora", None, None),
    _case("wordnet30", 3.0, 6.0),
    Case(
        name="accelerate_gine",
        title="PyG's GINEConv, forward and backward, wordnet30, 64 columns, 16 of edges",
        setup=_gine_data,
        contenders={
            "accelerated": lambda data: _gine(data, weft.accelerate(copy.deepcopy(data["conv"]))),
            "as it is": lambda data: _gine(data, copy.deepcopy(data["conv"])),
        },
        must=1.0,
        goal=2.0,
        repeat=9,
        memory=True,
    ),
]
