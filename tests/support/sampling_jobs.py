"""What ranks do to see that a sampled halo is right in the mean, for every layer that adds up."""

from collections.abc import Callable
from typing import Any

import torch
from halo_jobs import far, graph_of, local_graph, parts_of
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric import nn as pyg

import weft
from weft.comm.group import Group
from weft.draw import draw
from weft.exchanges import sampled
from weft.layers.base import layers
from weft.strategies.halo.halo import Halo

WIDTH, OUT, DRAWS = 6, 3, 4


def _as_linear(layer: Any) -> Any:
    """Return the layer with its network after the sum kept where ReLU is the identity."""
    with torch.no_grad():
        layer.nn[0].bias.fill_(1000.0)
    return layer


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: layers["gcn"](WIDTH, OUT),
    "sage": lambda: layers["sage"](WIDTH, OUT),
    "sage gcn": lambda: layers["sage"](WIDTH, OUT, aggregate="gcn"),
    "sage sum": lambda: layers["sage"](WIDTH, OUT, aggregate="sum"),
    "gin": lambda: _as_linear(layers["gin"](WIDTH, OUT)),
    "gine": lambda: _as_linear(layers["gine"](WIDTH, OUT, edge_features=5)),
    "edgeconv": lambda: layers["edgeconv"](WIDTH, OUT, aggregate="sum"),
    "edgeconv mean": lambda: layers["edgeconv"](WIDTH, OUT, aggregate="mean"),
    "monet": lambda: layers["monet"](WIDTH, OUT),
    "rgcn": lambda: layers["rgcn"](WIDTH, OUT, num_relations=1),
    "sgc": lambda: layers["sgc"](WIDTH, OUT, hops=1),
    "appnp": lambda: layers["appnp"](WIDTH, OUT, hops=1),
    "PyG GCNConv": lambda: weft.nn.PyG(pyg.GCNConv(WIDTH, OUT, add_self_loops=False)),
    "PyG SAGEConv": lambda: weft.nn.PyG(pyg.SAGEConv(WIDTH, OUT)),
    "PyG GraphConv": lambda: weft.nn.PyG(pyg.GraphConv(WIDTH, OUT)),
    "PyG GINConv": lambda: weft.nn.PyG(pyg.GINConv(nn.Linear(WIDTH, OUT))),
    "PyG EdgeConv": lambda: weft.nn.PyG(pyg.EdgeConv(nn.Linear(2 * WIDTH, OUT), aggr="mean")),
}
NOT_SUMS = {"gat", "gatv2", "hgt"}  # attention normalises itself


def right_in_the_mean(group: Group) -> list[str]:
    """Return the layers whose outputs or gradients, in the mean of draws, are not those of all rows, or
    whose steps take memory for rows that were not drawn.

    The draws are such that each halo row exists in one of four: their mean is then exact, not only nearly.
    """
    missing = set(layers.names()) - NOT_SUMS - {name.split()[0] for name in LAYERS}
    wrong = [f"{name} is not tried" for name in sorted(missing)]
    graph = graph_of("attributed").to(dtype=torch.float64)
    local = local_graph(group, graph, parts_of("attributed", group.size), group.size)
    before = sampled._chosen
    try:
        for by_link in (False, True):
            strategy = Halo(local, group=group, exchange={"name": "sampled", "p": 1 / DRAWS})
            if by_link:  # as "auto" would choose
                strategy.layout.exchange.links = torch.full((group.size, group.size), 1 / DRAWS)
            for name in LAYERS if not by_link else ("sage", "edgeconv", "PyG SAGEConv"):
                wrong += [f"{name}{' by link' * by_link}: {what}" for what in _tried(strategy, name)]
    finally:
        sampled._chosen = before
    return wrong + memory_for_what_was_drawn(group)


def _tried(strategy: Halo, name: str) -> list[str]:
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    group = strategy.shared.group
    exact = _run(strategy.layout.exact_block(), layer, group)
    strategy.end_step()
    total: dict[str, Tensor] = {}
    for number in range(DRAWS):
        sampled._chosen = _one_of(number)
        for what, value in _run(strategy.layout.training_block(), layer, group).items():
            total[what] = total.get(what, 0.0) + value / DRAWS
        strategy.end_step()
    return [what for what, value in exact.items() if far(total[what], value) > 1e-9]


def _one_of(number: int) -> Callable[..., Tensor]:
    def chosen(key: int, ids: Tensor, probability: Tensor) -> Tensor:
        return torch.from_numpy(draw(11, ids.numpy()).astype("int64") % DRAWS == number)

    return chosen


def _run(block: Any, layer: nn.Module, group: Group) -> dict[str, Tensor]:
    """Return the output and the gradients of the rows of this rank, and those of parameters of all ranks.

    On which rank a parameter's gradient arises depends on what travels: rows before or after it was used.
    """
    generator = torch.Generator().manual_seed(1)
    nodes = torch.randn(36, WIDTH, dtype=torch.float64, generator=generator)
    weighting = torch.randn(36, OUT, dtype=torch.float64, generator=generator)
    h = nodes[block.dst_ids].requires_grad_()
    layer.zero_grad()
    out = layer(block, h)
    (out * weighting[block.dst_ids]).sum().backward()
    held = {
        f"gradient of {name}": group.all_reduce(value.grad.clone()).wait()
        for name, value in layer.named_parameters()
        if value.grad is not None
    }
    assert h.grad is not None
    return {"output": out.detach(), "gradient of rows": h.grad, **held}


class Made(TorchDispatchMode):
    """Notes the tensors that operations make: rows of numbers, and the bytes of the largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = self.bytes = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = call(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, Tensor) and each._base is None:
                self.bytes = max(self.bytes, each.numel() * each.element_size())
                if each.is_floating_point() and each.dim() > 1:
                    self.rows = max(self.rows, len(each))
        return made


def memory_for_what_was_drawn(group: Group) -> list[str]:
    """Return the layers for which a step makes tensors of rows that do not exist, or copies edges."""
    generator = torch.Generator().manual_seed(4)
    edges = torch.randint(0, 200, (2, 8000), generator=generator)
    data = {"x": torch.rand(200, 4), "y": torch.arange(200) % 2, "train_mask": torch.arange(200) < 100}
    graph = weft.Graph.from_edges(edges, num_nodes=200, **data)
    local = local_graph(group, graph, (torch.arange(200) % group.size).int(), group.size)
    strategy = Halo(local, group=group, exchange={"name": "sampled", "p": 0.1})
    wrong = []
    for name, options in (("sage", {}), ("sage", {"aggregate": "max"}), ("gat", {})):
        layer = layers[name](4, 4, **options)
        for _ in range(2):  # what is kept for all steps is made in the first
            with Made() as made:
                block: Any = strategy.layout.training_block()
                h = torch.rand(block.num_own, 4).requires_grad_()
                layer(block, h).sum().backward()
            drawn = int(strategy.layout.exchange.kept.sum())
            strategy.end_step()
            strategy.clock[1] += 1
        if made.rows > block.num_own + drawn:
            wrong.append(f"{name} {options}: {made.rows} rows, there are {block.num_own} and {drawn}")
        if name == "sage" and not options and made.bytes >= 4 * len(block.shard.indices) // 2:
            wrong.append(f"{name}: a tensor of {made.bytes} bytes")
    return wrong
