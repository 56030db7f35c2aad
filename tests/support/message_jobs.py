"""Messages of a user, compiled, under every layout: the numbers of one process, the bytes of a layer."""

from typing import Any

import staged_jobs
import torch
import torch.nn.functional as F
from halo_jobs import NODES, graph_of, local_graph, parts_of, trained
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
    """Messages of every kind, each reduced in its own way, and a linear map of all."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(2 * width, 4), nn.Linear(2 * width, 4)
        self.network = nn.Sequential(nn.Linear(2 * width, 5), nn.ReLU(), nn.Linear(5, 4))
        self.heads = nn.Linear(width, 4, bias=False)
        self.attention = nn.Parameter(torch.randn(2, 2))
        self.centres = nn.Parameter(torch.randn(2, 3))
        self.kernels = nn.Linear(width, 2 * 3, bias=False)
        self.wide = nn.Linear(width, 9)
        self.by_relation = nn.Parameter(torch.randn(2, width, 2))
        self.last = nn.Linear(5 * 4 + width + 3 + 9 + 2, classes)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        block = blocks[0]
        ends = {"src": (x,), "dst": (block.dst(x),)}
        made = [
            block.propagate(self.gated, **ends),
            block.propagate(self.attended, reduce="softmax", **ends).flatten(1),
            block.propagate(self.edge_conv, reduce="mean", **ends),
            block.propagate(self.edge_conv, reduce="max", **ends),
            block.propagate(self.distance, **ends),
            block.propagate(self.mixture, src=(x,), edge=(block.edge("attr"),)),
            block.propagate(self.shared_out, reduce="mean", **ends),
            block.propagate(self.widened, reduce="mean", **ends),
            block.propagate(self.typed, src=(x,), edge=(block.edge("attr"),), reduce="max"),
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

    def mixture(self, u: Tensor, e: Tensor) -> Tensor:
        near = torch.exp(-0.5 * (e[:, None] - self.centres).square().sum(-1))
        return (near[:, :, None] * self.kernels(u).view(-1, 2, 3)).sum(1)

    def shared_out(self, u: Tensor, v: Tensor) -> Tensor:
        return self.heads(u) * (1 + v.square().sum(1, keepdim=True)).reciprocal()  # type: ignore[no-any-return]

    def widened(self, u: Tensor, v: Tensor) -> Tensor:
        return self.wide(u) * v[:, :1].sigmoid()  # type: ignore[no-any-return]

    def typed(self, u: Tensor, e: Tensor) -> Tensor:
        return torch.einsum("ef,efo->eo", u, self.by_relation[(e[:, 0] > 0).long()])


class TwoLayers(nn.Module):
    """The messages of rows that the graph does not hold: they are made anew in every step."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), Messages(width, classes)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        return self.second(blocks, self.first(x).tanh())  # type: ignore[no-any-return]


def message_graph(kind: str) -> Graph:
    """Return a graph of `halo_jobs` whose edges have attributes, in double precision."""
    graph = graph_of(kind)
    edges, draw = graph.edge_index, torch.Generator().manual_seed(7)
    attr = torch.randn(edges.shape[1], 3, generator=draw)
    held = {name: getattr(graph, name) for name in ("x", "y", "train_mask", "val_mask", "test_mask")}
    return Graph.from_edges(edges, num_nodes=NODES, edge_attr=attr, **held).to(dtype=torch.float64)


def model_of(graph: Any) -> nn.Module:
    """Return the model, with the same first weights everywhere."""
    torch.manual_seed(1)
    return TwoLayers(6, 3).double()


def equal_one_process(group: Group) -> list[str]:
    """Train by every layout with messages compiled; return where that differs from one process without."""
    wrong: list[str] = []
    least, compiled.LEAST_NUMBERS = compiled.LEAST_NUMBERS, 0
    for kind in KINDS:
        graph = message_graph(kind)
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
    compiled.LEAST_NUMBERS = least
    return wrong


def layouts(group: Group, graph: Graph, kind: str) -> dict[str, Any]:
    """Return every layout of a graph's nodes and edges on this rank."""
    parts = parts_of(kind, group.size)
    shape = GRIDS[group.size][-1]
    local = local_graph(group, graph, parts, group.size)
    return {
        "halo": Halo(local, seed=3, group=group),
        "sequential": Sequential(local, seed=3, group=group),
        "grid": Grid(cell(group, graph, parts, shape), seed=3, group=group, rows=shape[0], columns=shape[1]),
        "vertex cut": VertexCut(replicas(group, graph, kind, group.size), seed=3, group=group),
    }


class Sums(nn.Module):
    """Messages that are sums of rows, which stages give too."""

    def __init__(self) -> None:
        super().__init__()
        self.of = Messages(6, 3)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        block, h = blocks[0], self.of.heads(x).tanh()
        h = torch.cat([h, x[:, :2]], 1)
        made = [
            block.propagate(self.of.widened, src=(h,), dst=(h,), reduce="mean"),
            block.propagate(self.weighed, src=(h,), edge=(block.edge("attr")[:, :1].square(),)),
        ]
        joined = torch.cat([*made, h, h, h], 1)
        return joined @ self.of.last.weight.t()[: joined.shape[1]]  # type: ignore[no-any-return]

    def weighed(self, u: Tensor, e: Tensor) -> Tensor:
        return self.of.wide(u) * e


def staged_equals_one_process(group: Group) -> list[str]:
    """Train sums of rows in stages; return where that differs from one process."""
    wrong: list[str] = []
    graph = message_graph("hub")
    torch.manual_seed(1)
    model = Sums().double()
    first = {name: value.clone() for name, value in model.state_dict().items()}
    weft.compile_messages(False)
    reference = trained(Single(graph, seed=3), model)
    weft.compile_messages(True)
    for form in ("1d", "2d"):
        model.load_state_dict(first)
        found = trained(staged_jobs.made(group, graph, "hub", form), model)
        wrong += differences(found, reference, f"staged {form}", torch.float64)
    return wrong


class OwnGAT(nn.Module):
    """Graph attention as a user would write it, with the parameters of a layer."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, block: Any, h: Tensor) -> Tensor:
        return block.propagate(self.message, src=(h,), dst=(h,), reduce="softmax").flatten(1)  # type: ignore[no-any-return]

    def message(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.layer
        u, v = (layer.lin(end).view(-1, layer.heads, layer.out_features) for end in (u, v))
        score = (u * layer.att_src).sum(-1) + (v * layer.att_dst).sum(-1)
        return F.leaky_relu(score, layer.negative_slope), u


def bytes_of_attention(group: Group) -> dict[str, dict[str, Any]]:
    """Return, by layout, the bytes that a rank sends for `gat` and for a user's own, and what differs."""
    graph = message_graph("hub")
    torch.manual_seed(1)
    layer: Any = weft.nn.GAT(16, 4, heads=3, bias=False).double()
    found = {}
    for name, strategy in layouts(group, graph, "hub").items():
        sent, results = {}, []
        for way, run in (("layer", layer), ("own", OwnGAT(layer))):
            block = strategy.layout.training_block()
            torch.manual_seed(2)
            h = torch.randn(NODES, 16).double()[block.dst_ids].requires_grad_()
            group.ledger.clear()
            layer.zero_grad()
            out = run(block, h)
            out.square().sum().backward()
            strategy.end_step()
            sent[way] = group.ledger.bytes_sent
            of_weights = [group.all_reduce(p.grad).wait() for p in layer.parameters()]
            results.append([out.detach(), h.grad, *of_weights])
        wrong = [place for place, (a, b) in enumerate(zip(*results)) if not torch.allclose(a, b)]
        found[name] = {**sent, "wrong": wrong}
    return found


def promises(group: Group) -> dict[str, Any]:
    """Do what is not training in one launch."""
    found = {"bytes": bytes_of_attention(group), "means": bytes_of_means(group)}
    return {**found, "sampled": sampled_alike(group), "staged": staged_equals_one_process(group)}


def bytes_of_means(group: Group) -> dict[str, tuple[int, int]]:
    """Return, by layout, the bytes of a mean of rows, and of a message that widens them behind the mean."""
    graph, messages = message_graph("hub"), Messages(6, 3).double()
    ways = (
        lambda block, h: block.aggregate(h, "mean"),
        lambda block, h: block.propagate(messages.widened, src=(h,), dst=(h,), reduce="mean"),
    )
    found = {}
    for name, strategy in layouts(group, graph, "hub").items():
        sent = []
        for way in ways:
            block = strategy.layout.training_block()
            h = torch.ones(block.num_dst, 6).double().requires_grad_()
            group.ledger.clear()
            way(block, h).sum().backward()
            strategy.end_step()
            sent.append(group.ledger.bytes_sent)
        found[name] = (sent[0], sent[1])
    return found


def sampled_alike(group: Group) -> list[str]:
    """Train on half of the halo rows with messages compiled and not; return where the two differ."""
    graph = message_graph("hub")
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    exchange = {"name": "sampled", "p": 0.5}
    least, compiled.LEAST_NUMBERS = compiled.LEAST_NUMBERS, 0
    found = []
    for on in (False, True):
        before = weft.compile_messages(on)
        found.append(trained(Halo(local, seed=3, group=group, exchange=exchange), model_of(graph)))
        weft.compile_messages(before)
    compiled.LEAST_NUMBERS = least
    exact = trained(Halo(local, seed=3, group=group), model_of(graph))
    wrong = differences(found[1], found[0], "compiled", torch.float64)
    return wrong + ([] if differences(exact, found[0], "", torch.float64) else ["no row was left out"])
