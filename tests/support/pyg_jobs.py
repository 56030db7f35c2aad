"""PyG's convolutions inside weft models on several ranks: the numbers of one process, and the bytes."""

from typing import Any

import torch
from halo_jobs import NODES, trained
from layout_jobs import differences
from message_jobs import layouts, message_graph
from torch import Tensor, nn
from torch_geometric import nn as pyg

import weft
from weft.comm.group import Group
from weft.strategies.single import Single


class Convolutions(nn.Module):
    """Convolutions of each kind of reduction on rows that the graph does not hold."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        plain = {"add_self_loops": False}
        self.first = nn.Linear(width, 12)
        self.convs = nn.ModuleList(
            weft.nn.PyG(conv)
            for conv in (
                pyg.GATConv(12, 2, heads=2, **plain),
                pyg.TransformerConv(12, 3, edge_dim=3),
                pyg.ResGatedGraphConv(12, 3, edge_dim=3),
                pyg.EdgeConv(nn.Sequential(nn.Linear(24, 5), nn.ReLU(), nn.Linear(5, 3)), aggr="mean"),
                pyg.SAGEConv(12, 3, aggr="max"),
                pyg.LEConv(12, 3),
            )
        )
        self.last = nn.LazyLinear(classes)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        return self.last(torch.cat([conv(blocks[0], h) for conv in self.convs], 1))  # type: ignore[no-any-return]


def convolutions(graph: Any) -> nn.Module:
    """Return the model, with the same first weights everywhere."""
    torch.manual_seed(1)
    model = Convolutions(6, 3).double()
    model([graph.block()], graph.x)
    return model


def equal_one_process(group: Group) -> list[str]:
    """Train by every layout; return where that differs from one process."""
    graph, wrong = message_graph("hub"), []
    reference = trained(Single(graph, seed=3), convolutions(graph))
    for name, strategy in layouts(group, graph, "hub").items():
        found = trained(strategy, convolutions(graph))
        if group.rank == 0:
            wrong += differences(found, reference, name, torch.float64)
    return wrong


def bytes_of_a_convolution(group: Group) -> dict[str, dict[str, Any]]:
    """Return, by layout, what a rank sends for the layer `gat`, PyG's, and PyG's where raw rows travel."""
    graph = message_graph("hub")
    torch.manual_seed(1)
    own, raw = (weft.nn.PyG(pyg.GATConv(16, 2, heads=3, add_self_loops=False)).double() for _ in range(2))
    raw.load_state_dict(own.state_dict())
    raw.raw = {True: "to be compared with"}
    ways = {"gat": weft.nn.GAT(16, 2, heads=3).double(), "own": own, "raw": raw}
    found: dict[str, dict[str, Any]] = {}
    for name, strategy in layouts(group, graph, "hub").items():
        sent, results = {}, []
        for way, layer in ways.items():
            if way == "raw" and name not in ("halo", "sequential"):
                continue
            block = strategy.layout.training_block()
            torch.manual_seed(2)
            h = torch.randn(NODES, 16).double()[block.dst_ids].requires_grad_()
            group.ledger.clear()
            out = layer(block, h)
            out.square().sum().backward()
            strategy.end_step()
            sent[way] = group.ledger.bytes_sent
            if way != "gat":
                results.append([out.detach(), h.grad])
        same = all(torch.allclose(a, b) for other in results[1:] for a, b in zip(results[0], other))
        found[name] = {**sent, "same": same}
    return found


def promises(group: Group) -> dict[str, Any]:
    """Do all in one launch."""
    return {"wrong": equal_one_process(group), "bytes": bytes_of_a_convolution(group)}
