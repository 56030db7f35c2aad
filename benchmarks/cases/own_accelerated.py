"""PyG's convolutions that have a forward by hand in `weft.accelerate`, against the same ones compiled.

Forward and backward with all gradients on a random graph, on the CPU. A class of the user's own that only
inherits takes the compiled way. What stays made by hand has to be the faster, or to do what the compiler
cannot.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

import weft
from benchmarks.graphs import tiny
from benchmarks.measure import Step, Study, agree, time_by_turns, with_gradients

WIDTH, HEADS, RELATIONS = 64, 4, 4
SMALL, LARGE = (300, 4_000), (100_000, 1_000_000)
ROUNDS = {SMALL: 51, LARGE: 7}
"""By nodes and edges."""
WIDE, NARROW = 256, 16


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


HEAD = WIDTH // HEADS
MAKE: dict[str, tuple[Callable[..., nn.Module], tuple[Any, ...], dict[str, Any]]] = {
    "GCNConv": (pyg.GCNConv, (WIDTH, WIDTH), {}),
    "GCNConv, cached": (pyg.GCNConv, (WIDTH, WIDTH), {"cached": True}),
    "SAGEConv": (pyg.SAGEConv, (WIDTH, WIDTH), {}),
    f"SAGEConv, {WIDE} to {NARROW}": (pyg.SAGEConv, (WIDE, NARROW), {}),
    "SAGEConv, max": (pyg.SAGEConv, (WIDTH, WIDTH), {"aggr": "max"}),
    "GraphConv": (pyg.GraphConv, (WIDTH, WIDTH), {}),
    f"GraphConv, {WIDE} to {NARROW}": (pyg.GraphConv, (WIDE, NARROW), {}),
    "GINConv": (pyg.GINConv, (), {}),
    "SGConv": (pyg.SGConv, (WIDTH, WIDTH), {"K": 2}),
    "APPNP": (pyg.APPNP, (4, 0.1), {}),
    "GATConv": (pyg.GATConv, (WIDTH, HEAD), {"heads": HEADS}),
    "GATConv, no loops": (pyg.GATConv, (WIDTH, HEAD), {"heads": HEADS, "add_self_loops": False}),
    "GATv2Conv": (pyg.GATv2Conv, (WIDTH, HEAD), {"heads": HEADS}),
    "GATv2Conv, no loops": (pyg.GATv2Conv, (WIDTH, HEAD), {"heads": HEADS, "add_self_loops": False}),
    "TransformerConv": (pyg.TransformerConv, (WIDTH, HEAD), {"heads": HEADS}),
    "RGCNConv": (pyg.RGCNConv, (WIDTH, WIDTH, RELATIONS), {}),
    "FastRGCNConv": (pyg.FastRGCNConv, (WIDTH, WIDTH, RELATIONS), {}),
}


def inherited(kind: Any) -> Any:
    """Return a class that only inherits, and is taken for one of PyG's: its attributes are known."""
    return type(f"Own{kind.__name__}", (kind,), {"__module__": kind.__module__})


Inputs = tuple[Tensor, Tensor, Tensor]


def _inputs(nodes: int, edges: int) -> Inputs:
    draw = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, nodes, (2, edges), generator=draw)
    kind = torch.randint(0, RELATIONS, (edges,), generator=draw)
    return torch.randn(nodes, WIDE, generator=draw), edge_index, kind


def _step(conv: nn.Module, given: Inputs) -> Step:
    x, edge_index, kind = given
    x = x[:, : getattr(conv, "in_channels", WIDTH)].clone().requires_grad_()
    rest = (kind,) if isinstance(conv, pyg.RGCNConv) else ()
    out = conv(x, edge_index, *rest)
    leaves = [x, *(each for each in conv.parameters() if each.requires_grad)]
    return with_gradients(lambda: conv(x, edge_index, *rest), leaves, torch.ones_like(out))


def steps(name: str, given: Inputs) -> dict[str, Step]:
    """Return the steps of a convolution by hand and compiled, of the same parameters."""
    kind, args, options = MAKE[name]
    args = (_mlp(),) if name == "GINConv" else args
    torch.manual_seed(0)
    first = kind(*args, **copy.deepcopy(options))
    second = inherited(kind)(*copy.deepcopy(args), **options)
    second.load_state_dict(first.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error", weft.WeftWarning)  # PyG's own forward would be no contender
        made = {"hand": first, "compiled": second}
        return {way: _step(weft.accelerate(each, check=False), given) for way, each in made.items()}


def rows() -> Iterator[str]:
    """Measure one convolution after the other, on a small graph and on a large one."""
    sizes = (SMALL,) if tiny() else (SMALL, LARGE)
    of_sizes = " | ".join(f"by hand, {edges:,} edges | compiled | compiled / by hand" for _, edges in sizes)
    yield f"| convolution | {of_sizes} |"
    yield "|---" * (1 + 3 * len(sizes)) + "|"
    given = {size: _inputs(*size) for size in sizes}
    for name in MAKE:
        yield f"| {name} | {' | '.join(_cells(name, each, ROUNDS[size]) for size, each in given.items())} |"


def _cells(name: str, given: Inputs, rounds: int) -> str:
    try:
        taken = steps(name, given)
    except weft.WeftWarning as reason:
        return f"– | {str(reason).split(': ', 1)[1]} | –"
    agree({way: step() for way, step in taken.items()}, 1e-3)
    timings = time_by_turns(taken, rounds)
    hand, compiled = (timings[each].median for each in ("hand", "compiled"))
    return f"{1e3 * hand:.1f} ms | {1e3 * compiled:.1f} ms | {compiled / hand:.2f}"


CASES = [
    Study(
        "own_accelerated",
        f"PyG's convolutions by hand and compiled, {WIDTH} columns, forward + backward, cpu",
        rows,
        note="300 nodes with 4,000 edges and 100,000 with 1,000,000, at random; medians of rounds by turns, "
        "compared first.",
    )
]
