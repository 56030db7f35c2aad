"""Messages of a user, compiled, under every layout: the numbers of one process without the compiler."""

from typing import Any

import torch
import torch.nn.functional as F
from halo_jobs import graph_of, local_graph, parts_of, trained
from layout_jobs import GRIDS, cell, differences, replicas
from torch import Tensor, nn

import weft
from weft.comm.group import Group
from weft.graph import Graph
from weft.graph.message import compiled
from weft.strategies.halo.halo import Halo
from weft.strategies.merged.grid import Grid
from weft.strategies.merged.vertex_cut import VertexCut
from weft.strategies.sequential.sequential import Sequential
from weft.strategies.single import Single

KINDS = ("hub", "isolated")


class Messages(nn.Module):
    """Five messages, each reduced in its own way, and a linear map of all."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(2 * width, 4), nn.Linear(2 * width, 4)
        self.network = nn.Sequential(nn.Linear(2 * width, 5), nn.ReLU(), nn.Linear(5, 4))
        self.heads = nn.Linear(width, 4, bias=False)
        self.attention = nn.Parameter(torch.randn(2, 2))
        self.last = nn.Linear(4 * 4 + width, classes)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        block = blocks[0]
        ends = {"src": (x,), "dst": (block.dst(x),)}
        made = [
            block.propagate(self.gated, **ends),
            block.propagate(self.attended, reduce="softmax", **ends).flatten(1),
            block.propagate(self.edge_conv, reduce="mean", **ends),
            block.propagate(self.edge_conv, reduce="max", **ends),
            block.propagate(self.distance, **ends),
        ]
        return self.last(torch.cat(made, 1))  # type: ignore[no-any-return]

    def gated(self, u: Tensor, v: Tensor) -> Tensor:
        both = torch.cat([u, v], 1)
        return self.gate(both).sigmoid() * self.value(both).relu()  # type: ignore[no-any-return]

    def attended(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        u, v = self.heads(u).view(-1, 2, 2), self.heads(v).view(-1, 2, 2)
        return F.leaky_relu((u * self.attention).sum(-1) + (v * self.attention).sum(-1), 0.2), u

    def edge_conv(self, u: Tensor, v: Tensor) -> Tensor:
        return self.network(torch.cat([v, u - v], 1))  # type: ignore[no-any-return]

    def distance(self, u: Tensor, v: Tensor) -> Tensor:
        return torch.exp(-(u - v).norm(dim=1, keepdim=True)) * u


def model_of(graph: Any) -> nn.Module:
    """Return the model, with the same first weights everywhere."""
    torch.manual_seed(1)
    return Messages(6, 3).double()


def equal_one_process(group: Group) -> list[str]:
    """Train by every layout with messages compiled; return where that differs from one process without."""
    compiled.LEAST_NUMBERS = 0
    wrong: list[str] = []
    for kind in KINDS:
        graph = graph_of(kind).to(dtype=torch.float64)
        weft.compile_messages(False)
        reference = trained(Single(graph, seed=3), model_of(graph))
        weft.compile_messages(True)
        with compiled.watched() as asked:
            for name, strategy in layouts(group, graph, kind).items():
                found = trained(strategy, model_of(graph))
                if group.rank == 0:
                    wrong += differences(found, reference, f"{name} on {kind}", torch.float64)
        wrong += [f"not compiled: {each.found}" for each in asked if isinstance(each.found, str)]
        wrong += [] if asked else ["no message was asked for"]
    return wrong


def layouts(group: Group, graph: Graph, kind: str) -> dict[str, Any]:
    """Return every layout of a graph's nodes and edges on this rank."""
    parts = parts_of(kind, group.size)
    shape = GRIDS[group.size][0]
    local = local_graph(group, graph, parts, group.size)
    return {
        "halo": Halo(local, seed=3, group=group),
        "sequential": Sequential(local, seed=3, group=group),
        "grid": Grid(cell(group, graph, parts, shape), seed=3, group=group, rows=shape[0], columns=shape[1]),
        "vertex cut": VertexCut(replicas(group, graph, kind, group.size), seed=3, group=group),
    }
