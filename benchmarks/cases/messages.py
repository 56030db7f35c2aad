"""Messages as users write them, compiled by weft, against the same in PyG as it is and under torch.compile.

Forward and backward of one layer on a random graph; `gpu_messages` has the same on a larger one on a GPU.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import weft
from benchmarks.graphs import tiny
from benchmarks.measure import Case, Step, with_gradients
from weft import kernels
from weft.graph.message.block import Block

WIDTH, HEADS, GAUSSIANS = 64, 4, 3


class Own(MessagePassing):  # type: ignore[misc]
    """A convolution of one message; attention takes the softmax of its scores itself, as PyG's own do."""

    attends = False
    takes_edges = False

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j: Tensor, x_i: Tensor) -> Tensor:
        return self.of_edge(x_j, x_i)  # type: ignore[no-any-return]


class EdgeConv(Own):
    def __init__(self, aggr: str) -> None:
        super().__init__(aggr=aggr)
        self.nn = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))

    def of_edge(self, there: Tensor, here: Tensor) -> Tensor:
        return self.nn(torch.cat([here, there - here], -1))  # type: ignore[no-any-return]


class Gated(Own):
    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.gate, self.value = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def of_edge(self, there: Tensor, here: Tensor) -> Tensor:
        both = torch.cat([there, here], -1)
        return torch.sigmoid(self.gate(both)) * self.value(both).relu()  # type: ignore[no-any-return]


class Attention(Own):
    attends = True

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.lin = nn.Linear(WIDTH, WIDTH, bias=False)
        self.a, self.b = (nn.Parameter(torch.randn(HEADS, WIDTH // HEADS)) for _ in range(2))

    def of_edge(self, there: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        value = self.lin(there).view(-1, HEADS, WIDTH // HEADS)
        own = self.lin(here).view(-1, HEADS, WIDTH // HEADS)
        return F.leaky_relu((value * self.a).sum(-1) + (own * self.b).sum(-1), 0.2), value

    def message(self, x_j: Tensor, x_i: Tensor, index: Tensor, size_i: Any) -> Tensor:
        score, value = self.of_edge(x_j, x_i)
        return softmax(score, index, num_nodes=size_i).unsqueeze(-1) * value  # type: ignore[no-any-return]


class MoNet(Own):
    takes_edges = True

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.lin = nn.Linear(WIDTH, GAUSSIANS * WIDTH, bias=False)
        self.mu, self.sigma = (nn.Parameter(torch.rand(GAUSSIANS, 2) + 0.5) for _ in range(2))

    def of_edge(self, there: Tensor, edge: Tensor) -> Tensor:
        distance = (edge.unsqueeze(1) - self.mu) / self.sigma
        weight = torch.exp(-0.5 * distance.square().sum(-1))
        return (weight.unsqueeze(-1) * self.lin(there).view(-1, GAUSSIANS, WIDTH)).sum(1)  # type: ignore[no-any-return]

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return self.of_edge(x_j, edge_attr)


def _data(make: Callable[[], Own]) -> dict[str, Any]:
    nodes, edges = (300, 4_000) if tiny() else (100_000, 1_000_000)
    draw = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, nodes, (2, edges), generator=draw)
    indptr, indices, order = kernels.build_csr(src, dst, nodes)
    torch.manual_seed(0)
    conv = make()
    attr = torch.rand(edges, 2, generator=draw)
    return {
        "conv": conv,
        "block": Block(indptr, indices, num_src=nodes),
        "edge_index": torch.stack([src, dst])[:, order],
        "x": torch.randn(nodes, WIDTH, generator=draw),
        "attr": attr[order],
    }


def _step(data: dict[str, Any], call: Callable[[Tensor], Tensor], conv: nn.Module) -> Step:
    x = data["x"].clone().requires_grad_()
    return with_gradients(lambda: call(x), [x, *conv.parameters()], torch.ones_like(call(x)))


def _ours(data: dict[str, Any]) -> Step:
    conv, block = copy.deepcopy(data["conv"]), data["block"]
    reduce = "softmax" if conv.attends else {"add": "sum", "sum": "sum"}.get(conv.aggr, conv.aggr)

    def call(x: Tensor) -> Tensor:
        ends: dict[str, Any] = {"edge": (data["attr"],)} if conv.takes_edges else {"dst": (x,)}
        return block.propagate(conv.of_edge, src=(x,), reduce=reduce, **ends)  # type: ignore[no-any-return]

    return _step(data, call, conv)


def _pyg(data: dict[str, Any], prepare: Callable[[Any], Any] = lambda conv: conv) -> Step:
    conv = prepare(copy.deepcopy(data["conv"]))
    return _step(data, lambda x: conv(x, data["edge_index"], data["attr"]), conv)


def _accelerated(data: dict[str, Any]) -> Step:
    return _pyg(data, weft.accelerate)


_MUST = {"edgeconv_max": 5.0, "edgeconv_mean": 5.0, "gated": 5.0, "attention": 10.0, "monet": 8.0}
"""How many times as fast as PyG as it is they have to be."""


def _case(name: str, make: Callable[[], Own], ours: str) -> Case:
    contenders: dict[str, Callable[[Any], Step]] = {
        ours: _ours if ours == "weft" else _accelerated,
        "PyG": _pyg,
        "PyG, torch.compile": lambda data: _pyg(data, torch.compile),
    }
    words = ["messages", name, *(["accelerated"] if ours != "weft" else [])]
    return Case(
        name="_".join(words),
        title=f"{name} by {ours}, {WIDTH} columns, forward + backward, cpu",
        setup=lambda: _data(make),
        contenders=contenders,
        memory=True,
        must=_MUST[name],
        against="PyG",
        repeat=21,
        seconds=80.0,
        note="Medians of rounds by turns, as many as fit in 80 seconds.",
    )


_MAKE: dict[str, Callable[[], Own]] = {
    "edgeconv_max": lambda: EdgeConv("max"),
    "edgeconv_mean": lambda: EdgeConv("mean"),
    "gated": Gated,
    "attention": Attention,
    "monet": MoNet,
}
CASES = [_case(name, make, "weft") for name, make in _MAKE.items()]
CASES += [_case(name, make, "weft.accelerate") for name, make in _MAKE.items()]
