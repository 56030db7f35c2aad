"""Writes docs/convolutions.md: what `weft.accelerate` does with each convolution of PyG, found by running it.

python docs/convolutions_page.py            # write the page
python docs/convolutions_page.py --check    # exit 1 if the page is out of date
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import weft
from weft.compiler.match import match
from weft.graph.message import compiled

PAGE = Path(__file__).with_name("convolutions.md")
NODES, EDGES = 20, 90

Case = tuple[Callable[[], nn.Module], tuple[str, ...]]
"""How a convolution is made, and what it is called with beside x and edge_index."""


def mlp(width: int, out: int = 6) -> nn.Module:
    """Return a small network."""
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, out))


def cases() -> dict[str, Case]:
    """Return PyG's convolutions of one kind of nodes, each as it is usually made."""
    from torch_geometric import nn as pyg

    degrees = torch.tensor([1, 5, 6, 4])
    return {
        "AGNNConv": (pyg.AGNNConv, ()),
        "APPNP": (lambda: pyg.APPNP(2, 0.1), ()),
        "ARMAConv": (lambda: pyg.ARMAConv(6, 4), ()),
        "AntiSymmetricConv": (lambda: pyg.AntiSymmetricConv(6), ()),
        "CGConv": (lambda: pyg.CGConv(6, dim=3), ("edge_attr",)),
        "ChebConv": (lambda: pyg.ChebConv(6, 4, K=3), ()),
        "ClusterGCNConv": (lambda: pyg.ClusterGCNConv(6, 4), ()),
        "EGConv": (lambda: pyg.EGConv(6, 4, num_heads=2), ()),
        "EdgeConv": (lambda: pyg.EdgeConv(mlp(12)), ()),
        "FAConv": (lambda: pyg.FAConv(6), ("x_0",)),
        "FeaStConv": (lambda: pyg.FeaStConv(6, 4, heads=2), ()),
        "FiLMConv": (lambda: pyg.FiLMConv(6, 4), ()),
        "GATConv, edge features": (lambda: pyg.GATConv(6, 4, edge_dim=3), ("edge_attr",)),
        "GATConv": (lambda: pyg.GATConv(6, 4, heads=2), ()),
        "GATv2Conv": (lambda: pyg.GATv2Conv(6, 4, heads=2), ()),
        "GCN2Conv": (lambda: pyg.GCN2Conv(6, 0.1), ("x_0",)),
        "GCNConv": (lambda: pyg.GCNConv(6, 4), ()),
        "GENConv": (lambda: pyg.GENConv(6, 4), ()),
        "GINConv": (lambda: pyg.GINConv(mlp(6)), ()),
        "GINEConv": (lambda: pyg.GINEConv(mlp(6), edge_dim=3), ("edge_attr",)),
        "GINEConv, max": (lambda: pyg.GINEConv(mlp(6), edge_dim=3, aggr="max"), ("edge_attr",)),
        "GMMConv": (lambda: pyg.GMMConv(6, 4, dim=3, kernel_size=2), ("edge_attr",)),
        "GatedGraphConv": (lambda: pyg.GatedGraphConv(6, num_layers=2), ()),
        "GeneralConv": (lambda: pyg.GeneralConv(6, 4), ()),
        "GraphConv": (lambda: pyg.GraphConv(6, 4), ("edge_weight",)),
        "LEConv": (lambda: pyg.LEConv(6, 4), ()),
        "LGConv": (pyg.LGConv, ()),
        "MFConv": (lambda: pyg.MFConv(6, 4), ()),
        "MixHopConv": (lambda: pyg.MixHopConv(6, 4), ()),
        "NNConv": (lambda: pyg.NNConv(6, 4, mlp(3, 24)), ("edge_attr",)),
        "PDNConv": (lambda: pyg.PDNConv(6, 4, 3, 4), ("edge_attr",)),
        "PNAConv": (lambda: pyg.PNAConv(6, 4, ["mean", "std"], ["identity"], degrees), ()),
        "PPFConv": (lambda: pyg.PPFConv(mlp(10), mlp(6)), ("pos", "normal")),
        "PointNetConv": (lambda: pyg.PointNetConv(mlp(9), mlp(6)), ("pos",)),
        "PointTransformerConv": (lambda: pyg.PointTransformerConv(6, 4), ("pos",)),
        "RGATConv": (lambda: pyg.RGATConv(6, 4, 2), ("edge_type",)),
        "RGCNConv": (lambda: pyg.RGCNConv(6, 4, 2), ("edge_type",)),
        "RGCNConv, blocks": (lambda: pyg.RGCNConv(6, 4, 2, num_blocks=2), ("edge_type",)),
        "ResGatedGraphConv": (lambda: pyg.ResGatedGraphConv(6, 4), ()),
        "SAGEConv": (lambda: pyg.SAGEConv(6, 4), ()),
        "SGConv": (lambda: pyg.SGConv(6, 4, K=2), ()),
        "SSGConv": (lambda: pyg.SSGConv(6, 4, alpha=0.1, K=2), ()),
        "SimpleConv": (lambda: pyg.SimpleConv("mean"), ()),
        "SuperGATConv": (lambda: pyg.SuperGATConv(6, 4), ()),
        "TAGConv": (lambda: pyg.TAGConv(6, 4), ()),
        "TransformerConv": (lambda: pyg.TransformerConv(6, 4, heads=2), ()),
        "TransformerConv, edge features": (lambda: pyg.TransformerConv(6, 4, edge_dim=3), ("edge_attr",)),
        "WLConvContinuous": (pyg.WLConvContinuous, ()),
    }


def arguments(names: tuple[str, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return x, edge_index and the rest of a call on a small graph: each pair of nodes at most once."""
    draw = torch.Generator().manual_seed(2)
    pairs = torch.randperm(NODES * NODES, generator=draw)[:EDGES]
    edge_index = torch.stack([pairs // NODES, pairs % NODES])
    rows = {"x": (NODES, 6), "x_0": (NODES, 6), "pos": (NODES, 3), "normal": (NODES, 3)}
    rows |= {"edge_attr": (EDGES, 3), "edge_weight": (EDGES,)}
    made = {
        name: torch.rand(shape, generator=draw, dtype=dtype).requires_grad_() for name, shape in rows.items()
    }
    made["edge_type"] = torch.randint(0, 2, (EDGES,), generator=draw)
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


def lines() -> Iterator[str]:
    """Give the page."""
    yield from _HEAD
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
        yield f"| `{name}` | {how if covered and not own else '-'} | {shown} | {'; '.join(own)} |"


_HEAD = [
    "# PyG's convolutions under `weft.accelerate`",
    "",
    "Written by `python docs/convolutions_page.py`, which runs each of them on a small graph and compares outputs and",
    "gradients with PyG's own. *hand-made*: a forward of weft's on its kernels. *compiled*: PyG's own forward, whose",
    "messages and aggregation weft compiles ([Messages](messages.md)); what is then left on edges is a kernel of weft's,",
    "a program of the compiler's, or plain torch, which has an operator that programs do not. Where nothing stands,",
    "PyG's own code runs, for the reason given.",
    "",
    "| convolution | runs | on edges | PyG's own code, because |",
    "|---|---|---|---|",
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
