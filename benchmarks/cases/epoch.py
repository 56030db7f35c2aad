"""One full-graph epoch (forward, backward, Adam) of SAGE and GAT, 2 x 128, on wordnet30's sparse features."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric
from torch import Tensor, nn

import weft
from benchmarks.graphs import real
from benchmarks.measure import Case, Step

HIDDEN = 128
HEADS = 8


class PyGNet(nn.Module):
    """Two PyG convolutions with ReLU and dropout between them, as PyG's examples write it."""

    def __init__(self, name: str, in_features: int, out_features: int, dropout: float) -> None:
        super().__init__()
        if name == "sage":
            first = torch_geometric.nn.SAGEConv(in_features, HIDDEN)
            last = torch_geometric.nn.SAGEConv(HIDDEN, out_features)
        else:
            first = torch_geometric.nn.GATConv(
                in_features, HIDDEN // HEADS, heads=HEADS, add_self_loops=False
            )
            last = torch_geometric.nn.GATConv(HIDDEN, out_features, heads=1, add_self_loops=False)
        self.layers = nn.ModuleList([first, last])
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.relu(self.layers[0](x, edge_index))
        h = F.dropout(h, self.dropout, training=self.training)
        return self.layers[1](h, edge_index)


def _data(name: str) -> dict[str, Any]:
    # Self loops are added before, so that both sides work on the same edges.
    graph = real("wordnet30", symmetrise=True, normalise_features=True)
    graph = graph.add_self_loops() if name == "gat" else graph
    torch.manual_seed(0)
    rival = PyGNet(name, graph.x.shape[1], graph.num_classes, dropout=0.3)
    return {"graph": graph, "rival": rival, "name": name, "dense": graph.x.to_dense()}


def _ours(data: dict[str, Any]) -> Step:
    graph, block = data["graph"], data["graph"].block()
    options: dict[str, Any] = {"heads": HEADS} if data["name"] == "gat" else {}
    model = weft.nn.Stack(
        graph.x.shape[1], graph.num_classes, layer=data["name"], layers=2, hidden=HIDDEN, dropout=0.3,
        input_dropout=0.0, info=weft.nn.GraphInfo.of(graph), **options,
    )  # fmt: skip
    model.load_state_dict(data["rival"].state_dict(), strict=False)
    _same_outputs(model.eval()(block, graph.x), data)
    return _training(model.train(), graph, lambda: model(block, graph.x))


def _pyg(data: dict[str, Any]) -> Step:
    graph, model = data["graph"], data["rival"]
    edge_index = graph.edge_index
    return _training(model.train(), graph, lambda: model(data["dense"], edge_index))


def torch_csr(graph: weft.Graph) -> Tensor:
    """Return the adjacency matrix, transposed, as PyG's convolutions take it."""
    size = (graph.num_nodes, graph.num_nodes)
    return torch.sparse_csr_tensor(graph.indptr, graph.indices.long(), torch.ones(graph.num_edges), size)


def _pyg_csr(data: dict[str, Any]) -> Step:
    graph, model = data["graph"], data["rival"]
    adj_t = torch_csr(graph)
    return _training(model.train(), graph, lambda: model(data["dense"], adj_t))


def _training(model: nn.Module, graph: weft.Graph, forward: Callable[[], Tensor]) -> Step:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    rows = graph.train_mask.nonzero().flatten()
    labels = graph.y[rows].long()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward()[rows], labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _same_outputs(ours: Tensor, data: dict[str, Any]) -> None:
    with torch.no_grad():
        theirs = data["rival"].eval()(data["dense"], data["graph"].edge_index)
    error = (ours - theirs).abs().max().item()
    if error > 1e-4:
        raise AssertionError(f"the two models differ by {error:.2e} on the same weights")


def _case(name: str, rivals: dict[str, Callable[[Any], Step]]) -> Case:
    return Case(
        name=f"epoch_{name}_wordnet30",
        title=f"full-graph epoch, {name.upper()} 2 x 128, wordnet30 (117,659 nodes, 2,048 sparse features)",
        setup=lambda: _data(name),
        contenders={"weft": _ours, **rivals},
        must=3.0,
        goal=6.0,
        memory=True,
        repeat=7,
        note="Outputs on the same weights are compared before timing; PyG needs the features dense.",
    )


CASES = [
    _case("sage", {"PyG, edge_index": _pyg, "PyG, torch CSR": _pyg_csr}),
    _case("gat", {"PyG, edge_index": _pyg}),
]
