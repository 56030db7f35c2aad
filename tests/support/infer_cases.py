"""Graphs and models that the tests of inference share, and what a forward over the whole graph gives."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from weft.graph import Graph, SparseFeatures
from weft.layers.base import GraphInfo
from weft.layers.stack import Stack
from weft.pipeline.infer import graph_tables as infer_tables
from weft.pipeline.infer import rounds as infer_rounds
from weft.pipeline.infer.inference import Setting, infer_model, model_scoring
from weft.train.model import adapt

MADE = torch.Generator().manual_seed(0)
EDGES = torch.randint(60, (2, 500), generator=MADE)
X = torch.randn(61, 6, generator=MADE)  # the last node has no edges
Y = [0, 1, 2] * 20 + [0]


def plain(**data: Any) -> Graph:
    """Return a graph of 61 nodes, with other data where given."""
    return Graph.from_edges(EDGES, num_nodes=61, **({"x": X, "y": Y} | data))


def typed() -> Graph:
    """Return a graph of authors and papers."""
    ids = [f"p{row}" for row in range(20)]
    return Graph.from_types(
        {"author": {"num_nodes": 9}, "paper": {"x": X[:20], "y": [0, 1] * 10, "node_ids": ids}},
        {
            ("author", "writes", "paper"): torch.stack([EDGES[0] % 9, EDGES[1] % 20]),
            ("paper", "by", "author"): torch.stack([EDGES[1] % 20, EDGES[0] % 9]),
        },
    )


def stack(graph: Graph, name: str, **options: Any) -> Stack:
    """Return a model of one kind of layer, with the same first weights everywhere."""
    info = GraphInfo.of(adapt(graph, name))
    width = info.in_features if len(info.node_types) > 1 else info.in_features["node"]
    torch.manual_seed(1)
    return Stack(width, graph.num_classes, layer=name, info=info, **({"layers": 2, "hidden": 8} | options))


def sparse() -> Graph:
    """Return the plain graph with sparse features."""
    return plain(x=SparseFeatures.from_dense(X * (X > 0.5)))


CASES: dict[str, tuple[Graph, Any]] = {
    "gcn": (plain(edge_weight=torch.rand(500, generator=MADE)), lambda g: stack(g, "gcn")),
    "sage": (plain(), lambda g: stack(g, "sage", layers=3, jumping="cat", norm="batch")),
    "gat": (plain(), lambda g: stack(g, "gat", heads=2, residual=True)),
    "sparse features": (sparse(), lambda g: stack(g, "gcn")),
    "two hops a layer": (plain(), lambda g: stack(g, "sgc", layers=1, hops=2)),
    "relations": (
        Graph.from_edges(EDGES, num_nodes=61, x=X, y=Y, edge_type=torch.arange(500) % 3),
        lambda g: stack(g, "rgcn"),
    ),
    "edge features": (plain(edge_attr=torch.rand(500, 2, generator=MADE)), lambda g: stack(g, "gine")),
    "types": (typed(), lambda g: stack(g, "rgcn")),
    "types with attention": (typed(), lambda g: stack(g, "hgt", heads=2)),
    "no features": (plain(x=None), lambda g: stack(g, "sage")),
    "double": (plain().to(dtype=torch.float64), lambda g: stack(g, "gat").double()),
}


def forward(model: nn.Module, graph: Graph) -> Tensor:
    """Return what the model gives on the whole graph at once."""
    model.eval()
    whole = adapt(graph, model)
    with torch.no_grad():
        out: Tensor = model(whole.block(), whole.x)
    return out


def outputs(folder: Path, name: str = "predictions", column: str = "output") -> Tensor:
    """Return a column of what inference wrote."""
    return torch.tensor(pq.read_table(folder / f"{name}.parquet").column(column).to_pylist())


def near(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are equal up to rounding."""
    far = (a.double() - b.double()).abs().max()
    return a.shape == b.shape and float(far) <= 1e-5 * max(1.0, float(b.abs().max()))


def hubs() -> Tensor:
    """Return 1,500 edges of which two thirds go to two nodes."""
    sources = torch.randint(60, (1000,), generator=torch.Generator().manual_seed(4))
    to = torch.cat([torch.zeros(600), torch.ones(400)]).long()
    return torch.cat([EDGES, torch.stack([sources, to])], dim=1)


def typed_hubs() -> Graph:
    """Return a graph of two types with hubs."""
    edges = hubs()
    return Graph.from_types(
        {"author": {"num_nodes": 60}, "paper": {"x": X[:60], "y": [0, 1] * 30}},
        {("author", "writes", "paper"): edges, ("paper", "cites", "paper"): edges.flip(1)},
    )


def with_hubs(**data: Any) -> Graph:
    """Return a graph with two hubs."""
    return Graph.from_edges(hubs(), num_nodes=61, **({"x": X, "y": Y} | data))


HUBS: dict[str, tuple[Graph, Any]] = {
    "gcn": (with_hubs(edge_weight=torch.rand(1500, generator=MADE)), lambda g: stack(g, "gcn")),
    "sage": (with_hubs(), lambda g: stack(g, "sage", residual=True, norm="layer")),
    "max": (with_hubs(), lambda g: stack(g, "sage", aggregate="max")),
    "gat": (with_hubs(), lambda g: stack(g, "gat", heads=2)),
    "gatv2": (with_hubs(), lambda g: stack(g, "gatv2", heads=2)),
    "relations": (with_hubs(edge_type=torch.arange(1500) % 3), lambda g: stack(g, "rgcn")),
    "edge features": (
        with_hubs(edge_attr=torch.rand(1500, 2, generator=MADE)),
        lambda g: stack(g, "gine", hidden=6),
    ),
    "any function": (with_hubs(), lambda g: stack(g, "edgeconv")),
    "sparse": (with_hubs(x=SparseFeatures.from_dense(X * (X > 0.5))), lambda g: stack(g, "gcn")),
    "types": (typed_hubs(), lambda g: stack(g, "rgcn")),
    "types with attention": (typed_hubs(), lambda g: stack(g, "hgt", heads=2)),
}


def on_spark(cases: dict[str, tuple[Graph, Any]], folder: Path) -> None:
    """Hold Spark to one forward over the whole graph."""
    for case, (graph, make) in cases.items():
        model = make(graph)
        out = folder / case
        infer_model(model_scoring(model, graph), out, setting=Setting("spark"))
        assert near(outputs(out), forward(model, graph)[graph.target_rows]), case


class Stopped(BaseException):
    """The end of a process, as far as anything in it can tell."""


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have several pieces of a small graph."""
    monkeypatch.setattr(infer_rounds, "PIECE", 8 * 4 * 8 * 100)  # a hundred edges and rows
    monkeypatch.setattr(infer_tables, "CHUNK", 50)
