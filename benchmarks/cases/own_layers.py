"""Our own layers as they are, by hand where they are so, against the same formula written as one message.

Forward and backward with all gradients on a random graph, on the CPU: what stays made by hand has to be the
faster, or to do what messages cannot.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from benchmarks.graphs import tiny
from benchmarks.measure import Case, Step, agree, with_gradients
from weft.graph.message.block import Block
from weft.layers import layers

WIDTH, HEADS, EDGE_WIDTH, RELATIONS = 64, 4, 2, 4
Written = Callable[[Any, Block, Tensor], Tensor]


def gat(layer: Any, block: Block, x: Tensor) -> Tensor:
    """GAT, by its scores and values."""

    def message(there: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        value, own = (layer.lin(each).view(-1, HEADS, WIDTH // HEADS) for each in (there, here))
        score = (value * layer.att_src).sum(-1) + (own * layer.att_dst).sum(-1)
        return F.leaky_relu(score, 0.2), value

    return block.propagate(message, src=(x,), dst=(x,), reduce="softmax").flatten(1) + layer.bias


def gatv2(layer: Any, block: Block, x: Tensor) -> Tensor:
    """GATv2, by its scores and values."""

    def message(there: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        value = layer.lin_l(there).view(-1, HEADS, WIDTH // HEADS)
        bent = F.leaky_relu(value + layer.lin_r(here).view(-1, HEADS, WIDTH // HEADS), 0.2)
        return (bent * layer.att[0]).sum(-1), value

    return block.propagate(message, src=(x,), dst=(x,), reduce="softmax").flatten(1) + layer.bias


def monet(layer: Any, block: Block, x: Tensor) -> Tensor:
    """MoNet, a mixture of maps by Gaussians of an edge."""

    def message(there: Tensor, edge: Tensor) -> Tensor:
        away = -0.5 * (edge.unsqueeze(1) - layer.mu).square() / (1e-15 + layer.sigma.square())
        maps = (there @ layer.g).view(-1, layer.kernels, WIDTH)
        return (away.sum(-1).exp().unsqueeze(-1) * maps).sum(1)

    summed = block.propagate(message, src=(x,), edge=(block.edge("attr"),), reduce="mean")
    return summed + layer.root(x) + layer.bias


def gine(layer: Any, block: Block, x: Tensor) -> Tensor:
    """GINE, with its parameters captured instead of given."""

    def message(there: Tensor, edge: Tensor) -> Tensor:
        return (there + layer.lin(edge)).relu()

    summed = block.propagate(message, src=(x,), edge=(block.edge("attr"),), reduce="sum")
    return layer.nn(summed + (1 + layer.eps) * x)  # type: ignore[no-any-return]


def edgeconv(layer: Any, block: Block, x: Tensor) -> Tensor:
    """EdgeConv as its formula says."""

    def message(there: Tensor, here: Tensor) -> Tensor:
        return layer.nn(torch.cat([here, there - here], -1))  # type: ignore[no-any-return]

    return block.propagate(message, src=(x,), dst=(x,), reduce="max")


def hgt(layer: Any, block: Block, x: Tensor) -> Tensor:
    """HGT, with the matrices of each relation and head looked up."""
    width, kind = WIDTH // HEADS, block.edge_type.long()
    lin = next(iter(layer.kqv_lin.values()))
    matrices = (layer.k_rel * layer.p_rel[:, :, None, None], layer.v_rel)

    def related(rows: Tensor, matrices: Tensor) -> Tensor:
        return torch.einsum("ehi,ehij->ehj", rows.reshape(-1, HEADS, width), matrices)

    def message(
        there: Tensor, here: Tensor, kind: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        key, _, value = lin(there).chunk(3, 1)
        query = lin(here).chunk(3, 1)[1].reshape(-1, HEADS, width)
        score = (related(key, keys[kind]) * query).sum(-1) / math.sqrt(width)
        return score, related(value, values[kind])

    out = block.propagate(message, (x,), (x,), (kind,), "softmax", matrices).flatten(1)
    return layer._finish(block, out, x)  # type: ignore[no-any-return]


def _data(make: Callable[[], nn.Module]) -> dict[str, Any]:
    nodes, edges = (300, 4_000) if tiny() else (100_000, 1_000_000)
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    graph = weft.Graph.from_edges(
        torch.randint(0, nodes, (2, edges), generator=draw),
        num_nodes=nodes,
        edge_attr=torch.rand(edges, EDGE_WIDTH, generator=draw),
        edge_type=torch.randint(0, RELATIONS, (edges,), generator=draw),
        num_relations=RELATIONS,
    )
    x = torch.randn(nodes, WIDTH, generator=draw)
    return {"layer": make(), "block": graph.block(), "x": x}


def _step(data: dict[str, Any], call: Written) -> Step:
    layer, x = data["layer"], data["x"].clone().requires_grad_()
    leaves = [x, *layer.parameters()]
    out = call(layer, data["block"], x)
    return with_gradients(lambda: call(layer, data["block"], x), leaves, torch.ones_like(out))


def _case(name: str, written: Written, **options: Any) -> Case:
    def make() -> nn.Module:
        heads = options.get("heads", 1) if name in ("gat", "gatv2") else 1
        return layers[name](WIDTH, WIDTH // heads, **options)

    return Case(
        name=f"own_{name}",
        title=f"the layer {name} and the same as one message, {WIDTH} columns, forward + backward",
        setup=lambda: _data(make),
        contenders={
            "the layer": lambda data: _step(data, lambda layer, block, x: layer(block, x)),
            "as a message": lambda data: _step(data, written),
        },
        memory=True,
        repeat=5,
        check=lambda results: agree(results, 1e-3),
    )


_RELATED = tuple(("node", str(each), "node") for each in range(RELATIONS))
CASES = [
    _case("gat", gat, heads=HEADS),
    _case("gatv2", gatv2, heads=HEADS),
    _case("monet", monet, edge_features=EDGE_WIDTH),
    _case("gine", gine, edge_features=EDGE_WIDTH),
    _case("edgeconv", edgeconv),
    _case("hgt", hgt, heads=HEADS, edge_types=_RELATED),
]
