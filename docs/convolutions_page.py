"""Writes docs/convolutions.md: what `weft.accelerate` does with each convolution of PyG, found by running it.

python docs/convolutions_page.py            # write the page
python docs/convolutions_page.py --check    # exit 1 if the page is out of date
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import weft
from weft.compiler.programs.match import match
from weft.graph.message import compiled

PAGE = Path(__file__).with_name("convolutions.md")
RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "convolutions.json"
NODES, EDGES = 20, 90

Case = tuple[Callable[[], nn.Module], tuple[str, ...]]
"""How a convolution is made, and what it is called with beside x and edge_index."""


def mlp(width: int, out: int = 6) -> nn.Module:
    """Return a small network."""
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, out))


def cases(wide: int = 6, out: int = 4) -> dict[str, Case]:
    """Return PyG's convolutions of one kind of nodes, each as it is usually made, from `wide` columns to `out`."""
    from torch_geometric import nn as pyg

    degrees = torch.tensor([1, 5, 6, 4])
    return {
        "AGNNConv": (pyg.AGNNConv, ()),
        "APPNP": (lambda: pyg.APPNP(2, 0.1), ()),
        "ARMAConv": (lambda: pyg.ARMAConv(wide, out), ()),
        "AntiSymmetricConv": (lambda: pyg.AntiSymmetricConv(wide), ()),
        "CGConv": (lambda: pyg.CGConv(wide, dim=3), ("edge_attr",)),
        "ChebConv": (lambda: pyg.ChebConv(wide, out, K=3), ()),
        "ClusterGCNConv": (lambda: pyg.ClusterGCNConv(wide, out), ()),
        "EGConv": (lambda: pyg.EGConv(wide, out, num_heads=2), ()),
        "EdgeConv": (lambda: pyg.EdgeConv(mlp(2 * wide, wide)), ()),
        "FAConv": (lambda: pyg.FAConv(wide), ("x_0",)),
        "FeaStConv": (lambda: pyg.FeaStConv(wide, out, heads=2), ()),
        "FiLMConv": (lambda: pyg.FiLMConv(wide, out), ()),
        "GATConv, edge features": (lambda: pyg.GATConv(wide, out, edge_dim=3), ("edge_attr",)),
        "GATConv": (lambda: pyg.GATConv(wide, out, heads=2), ()),
        "GATv2Conv": (lambda: pyg.GATv2Conv(wide, out, heads=2), ()),
        "GCN2Conv": (lambda: pyg.GCN2Conv(wide, 0.1), ("x_0",)),
        "GCNConv": (lambda: pyg.GCNConv(wide, out), ()),
        "GENConv": (lambda: pyg.GENConv(wide, out), ()),
        "GINConv": (lambda: pyg.GINConv(mlp(wide)), ()),
        "GINEConv": (lambda: pyg.GINEConv(mlp(wide), edge_dim=3), ("edge_attr",)),
        "GINEConv, max": (lambda: pyg.GINEConv(mlp(wide), edge_dim=3, aggr="max"), ("edge_attr",)),
        "GMMConv": (lambda: pyg.GMMConv(wide, out, dim=3, kernel_size=2), ("edge_attr",)),
        "GatedGraphConv": (lambda: pyg.GatedGraphConv(wide, num_layers=2), ()),
        "GeneralConv": (lambda: pyg.GeneralConv(wide, out), ()),
        "GraphConv": (lambda: pyg.GraphConv(wide, out), ("edge_weight",)),
        "LEConv": (lambda: pyg.LEConv(wide, out), ()),
        "LGConv": (pyg.LGConv, ()),
        "MFConv": (lambda: pyg.MFConv(wide, out), ()),
        "MixHopConv": (lambda: pyg.MixHopConv(wide, out), ()),
        "NNConv": (lambda: pyg.NNConv(wide, out, mlp(3, wide * out)), ("edge_attr",)),
        "PDNConv": (lambda: pyg.PDNConv(wide, out, 3, 4), ("edge_attr",)),
        "PNAConv": (lambda: pyg.PNAConv(wide, out, ["mean", "std"], ["identity"], degrees), ()),
        "PPFConv": (lambda: pyg.PPFConv(mlp(wide + 4), mlp(6)), ("pos", "normal")),
        "PointNetConv": (lambda: pyg.PointNetConv(mlp(wide + 3), mlp(6)), ("pos",)),
        "PointTransformerConv": (lambda: pyg.PointTransformerConv(wide, out), ("pos",)),
        "RGATConv": (lambda: pyg.RGATConv(wide, out, 2), ("edge_type",)),
        "RGCNConv": (lambda: pyg.RGCNConv(wide, out, 2), ("edge_type",)),
        "RGCNConv, blocks": (lambda: pyg.RGCNConv(wide, out, 2, num_blocks=2), ("edge_type",)),
        "ResGatedGraphConv": (lambda: pyg.ResGatedGraphConv(wide, out), ()),
        "SAGEConv": (lambda: pyg.SAGEConv(wide, out), ()),
        "SGConv": (lambda: pyg.SGConv(wide, out, K=2), ()),
        "SSGConv": (lambda: pyg.SSGConv(wide, out, alpha=0.1, K=2), ()),
        "SimpleConv": (lambda: pyg.SimpleConv("mean"), ()),
        "SuperGATConv": (lambda: pyg.SuperGATConv(wide, out), ()),
        "TAGConv": (lambda: pyg.TAGConv(wide, out), ()),
        "TransformerConv": (lambda: pyg.TransformerConv(wide, out, heads=2), ()),
        "TransformerConv, edge features": (
            lambda: pyg.TransformerConv(wide, out, edge_dim=3),
            ("edge_attr",),
        ),
        "WLConvContinuous": (pyg.WLConvContinuous, ()),
    }


def arguments(
    names: tuple[str, ...],
    dtype: torch.dtype = torch.float64,
    nodes: int = NODES,
    edges: int = EDGES,
    wide: int = 6,
) -> list[Tensor]:
    """Return x, edge_index and the rest of a call; on a small graph each pair of nodes is there at most once."""
    draw = torch.Generator().manual_seed(2)
    if nodes == NODES:
        pairs = torch.randperm(nodes * nodes, generator=draw)[:edges]
    else:
        pairs = torch.randint(0, nodes * nodes, (edges,), generator=draw)
    edge_index = torch.stack([pairs // nodes, pairs % nodes])
    rows = {"x": (nodes, wide), "x_0": (nodes, wide), "pos": (nodes, 3), "normal": (nodes, 3)}
    rows |= {"edge_attr": (edges, 3), "edge_weight": (edges,)}
    made = {
        name: torch.rand(shape, generator=draw, dtype=dtype).requires_grad_() for name, shape in rows.items()
    }
    made["edge_type"] = torch.randint(0, 2, (edges,), generator=draw)
    first = [made["x"], *(made[name] for name in names if name in ("x_0", "pos", "normal"))]
    return [*first, edge_index, *(made[name] for name in names if name.startswith("edge"))]


def tried(name: str) -> tuple[nn.Module, list[str], list[str]]:
    """Return an accelerated convolution, why it, or a call of it, runs PyG's own code, and what runs on edges."""
    make, names = cases()[name]
    torch.manual_seed(0)
    conv = make().double()
    conv.eval()
    before, compiled.LEAST_NUMBERS = compiled.LEAST_NUMBERS, 0
    try:
        with warnings.catch_warnings(record=True) as told, compiled.watched() as asked:
            warnings.simplefilter("always")
            weft.accelerate(conv)
            conv(*arguments(names))
    finally:
        compiled.LEAST_NUMBERS = before
    reasons = [str(each.message) for each in told if issubclass(each.category, weft.WeftWarning)]
    return conv, reasons, sorted({on_edges(each.found) for each in asked})


def on_edges(found: Any) -> str:
    """Return what runs on the edges of a compiled message."""
    if isinstance(found, str):
        return "PyG's own"
    kinds = set()
    for reduction in (one for each in (*found[0].inner, found[0]) for one in each.reductions):
        kernel = None if reduction.program is None else match(reduction.program)
        kinds.add(
            "plain torch" if reduction.program is None else "program" if kernel is None else kernel.name
        )
    return ", ".join(sorted(kinds))


def speedups() -> dict[str, str]:
    """Return how many times PyG's own speed each convolution has, where `convolutions` was measured."""
    if not RESULT.exists():
        return {}
    table = json.loads(RESULT.read_text())["table"][2:]
    found = ([each.strip() for each in line.strip("|").split("|")] for line in table)
    return {name: f"{ratio} x" for name, _, _, ratio in found}


def lines() -> Iterator[str]:
    """Give the page."""
    yield from _HEAD
    measured = speedups()
    for name in sorted(cases(), key=str.lower):
        conv, reasons, edges = tried(name)
        own = [each.split(": ", 1)[1] for each in reasons if " runs PyG's own " in each]
        covered = sorted(weft.accelerated(conv))
        how = (
            "hand-made"
            if any("Accelerated" in type(each).__name__ for each in conv.modules())
            else "compiled"
        )
        shown = "; ".join(edges) if how == "compiled" and not own else ""
        how = how if covered and not own else "-"
        yield f"| `{name}` | {how} | {shown} | {measured.get(name, '')} | {'; '.join(own)} |"


_HEAD = [
    "# PyG's convolutions under `weft.accelerate`",
    "",
    "Written by `python docs/convolutions_page.py`, which runs each of them on a small graph and compares outputs and",
    "gradients with PyG's own. *hand-made*: a forward of weft's on its kernels. *compiled*: PyG's own forward, whose",
    "messages and aggregation weft compiles ([Messages](messages.md)); what is then left on edges is a kernel of weft's,",
    "a program of the compiler's, or plain torch, which has an operator that programs do not. Where nothing stands,",
    "PyG's own code runs, for the reason given. *PyG / weft* is the time of PyG's own forward and backward over that of",
    "the accelerated ones, on two threads of a CPU (`python -m benchmarks.run convolutions`,",
    "[with the times](../benchmarks/results/README.md)); where nothing stands, it was not measured.",
    "",
    "| convolution | runs | on edges | PyG / weft | PyG's own code, because |",
    "|---|---|---|---|---|",
]


def main() -> int:
    """Write the page, or say whether it is up to date."""
    text = "\n".join(lines()) + "\n"
    if "--check" in sys.argv:
        return int(not PAGE.exists() or PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
