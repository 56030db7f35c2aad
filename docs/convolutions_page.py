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
"""How a convolution is made, and what it is called with beside x and edge_index, or a name of `_CALLS`."""
_CALLS = {
    "by type": ("x_dict", "edge_index_dict"),
    "signed": ("x", "positive", "negative"),
    "layers": ("x_layers", "edge_index"),
    "mesh": ("x", "mesh"),
    "points": ("x", "pos"),
    "features alone": ("x",),
    "colours": ("colours", "edge_index"),
}
"""All arguments of convolutions that are not called with x and edge_index first."""
_KINDS = [("node", "likes", "node"), ("node", "knows", "node")]
NOT_TRIED = {
    "FusedGATConv": "it is one operator of the package dgNN, without messages",
    "PANConv": "it multiplies and sums matrices of torch-sparse, without messages of edges",
    "SplineConv": "its message is two operators of pyg-lib, which no backend of ours knows",
}
"""Why PyG's own code runs, of convolutions that PyG makes or runs with other packages alone."""
_NO_MESSAGES = {
    "WLConv": "it has no messages: it numbers colours in Python",
    "XConv": "it has no messages: nothing is reduced over edges",
}
NEAREST = ("DynamicEdgeConv", "GravNetConv", "XConv")
"""Convolutions that join nearest points, which takes longer than all else that they do."""
_BASES = ("MessagePassing", "CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv")
"""Of PyG's list, what is no convolution of its own, and what is another library's kernels."""


def mlp(width: int, out: int = 6) -> nn.Module:
    """Return a small network."""
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, out))


def cases(wide: int = 6, out: int = 4) -> dict[str, Case]:
    """Return PyG's convolutions, each as it is usually made, from `wide` columns to `out`."""
    made = _of_edges(wide, out) | _of_kinds(wide, out) | _of_points(wide, out)
    return dict(sorted(made.items(), key=lambda item: item[0].lower()))


def untried(names: list[str]) -> list[str]:
    """Return the convolutions of PyG's list that are none of these."""
    from torch_geometric.nn import conv

    known = {*(name.split(",")[0] for name in names), *NOT_TRIED, *_BASES}
    return sorted(set(conv.__all__) - known)


def _of_kinds(wide: int, out: int) -> dict[str, Case]:
    """Return convolutions of nodes, edges or messages of several kinds, and of other convolutions."""
    from torch_geometric import nn as pyg

    kinds = (["node"], _KINDS)
    return {
        "DirGNNConv": (lambda: pyg.DirGNNConv(pyg.SAGEConv(wide, out)), ()),
        "DNAConv": (lambda: pyg.DNAConv(wide, heads=2), ("layers",)),
        "GPSConv": (
            lambda: pyg.GPSConv(wide, pyg.GINConv(mlp(wide, wide)), heads=2, attn_type="performer"),
            (),
        ),
        "HANConv": (lambda: pyg.HANConv(wide, out, kinds, heads=2), ("by type",)),
        "HEATConv": (
            lambda: pyg.HEATConv(wide, out, 2, 2, 2, 3, 4),
            ("node_type", "edge_type", "edge_attr"),
        ),
        "HeteroConv": (
            lambda: pyg.HeteroConv({each: pyg.SAGEConv(wide, out) for each in _KINDS}),
            ("by type",),
        ),
        "HGTConv": (lambda: pyg.HGTConv(wide, out, kinds, heads=2), ("by type",)),
        "HypergraphConv": (lambda: pyg.HypergraphConv(wide, out), ()),
        "HypergraphConv, attention": (
            lambda: pyg.HypergraphConv(wide, out, use_attention=True, heads=2),
            ("edge_weights_of_rows", "edge_rows"),
        ),
        "MeshCNNConv": (lambda: pyg.MeshCNNConv(wide, out), ("mesh",)),
        "SignedConv": (lambda: pyg.SignedConv(wide, out, first_aggr=True), ("signed",)),
        "SignedConv, later": (lambda: pyg.SignedConv(wide // 2, out, first_aggr=False), ("signed",)),
        "WLConv": (pyg.WLConv, ("colours",)),
    }


def _of_points(wide: int, out: int) -> dict[str, Case]:
    """Return convolutions that join nearest points."""
    from torch_geometric import nn as pyg

    with_nearest()
    return {
        "DynamicEdgeConv": (lambda: pyg.DynamicEdgeConv(mlp(2 * wide), 5), ("features alone",)),
        "GravNetConv": (lambda: pyg.GravNetConv(wide, out, 3, 4, 5), ("features alone",)),
        "XConv": (lambda: pyg.XConv(wide, out, 3, 5, hidden_channels=4), ("points",)),
    }


def with_nearest() -> None:
    """Give PyG a search for the nearest points in plain torch, where pyg-lib, which has it, is not there."""
    from torch_geometric import typing

    if typing.WITH_KNN:
        return
    typing.WITH_KNN = True
    library = torch.library.Library("pyg", "FRAGMENT")
    library.define("knn(Tensor x, Tensor y, Tensor? p, Tensor? q, int k, bool cosine, int workers) -> Tensor")
    library.impl("knn", _nearest, "CompositeExplicitAutograd")
    _LIBRARIES.append(library)


_LIBRARIES: list[Any] = []
"""Kept, as operators go with them."""


def _nearest(x: Tensor, y: Tensor, p: Any, q: Any, k: int, cosine: bool, workers: int) -> Tensor:
    near = torch.cdist(y, x).topk(k, largest=False).indices
    rows = torch.arange(y.shape[0], device=y.device).repeat_interleave(k)
    return torch.stack([rows, near.flatten()])


def _of_edges(wide: int, out: int) -> dict[str, Case]:
    """Return convolutions of one kind of nodes and edges that are given."""
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
        "FastRGCNConv": (lambda: pyg.FastRGCNConv(wide, out, 2), ("edge_type",)),
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
        "PointGNNConv": (
            lambda: pyg.PointGNNConv(mlp(wide, 3), mlp(wide + 3), mlp(6, wide)),
            ("pos",),
        ),
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
) -> list[Any]:
    """Return x, edge_index and the rest of a call; on a small graph each pair of nodes is there at most once."""
    draw = torch.Generator().manual_seed(2)
    if nodes == NODES:
        pairs = torch.randperm(nodes * nodes, generator=draw)[:edges]
    else:
        pairs = torch.randint(0, nodes * nodes, (edges,), generator=draw)
    edge_index = torch.stack([pairs // nodes, pairs % nodes])
    rows = {"x": (nodes, wide), "x_0": (nodes, wide), "pos": (nodes, 3), "normal": (nodes, 3)}
    rows |= {"edge_attr": (edges, 3), "edge_weight": (edges,)}
    rows |= {"edge_rows": (nodes, wide), "edge_weights_of_rows": (nodes,), "x_layers": (nodes, 3, wide)}
    made: dict[str, Any] = {
        name: torch.rand(shape, generator=draw, dtype=dtype).requires_grad_() for name, shape in rows.items()
    }
    made["edge_type"] = kind = torch.randint(0, 2, (edges,), generator=draw)
    made["node_type"] = torch.randint(0, 2, (nodes,), generator=draw).sort().values
    made["colours"] = made["node_type"]
    made["positive"], made["negative"] = edge_index[:, kind == 0], edge_index[:, kind == 1]
    made["x_dict"] = {"node": made["x"]}
    made["edge_index_dict"] = dict(zip(_KINDS, (made["positive"], made["negative"])))
    four = torch.randint(0, nodes, (4 * nodes,), generator=draw)
    made["mesh"] = torch.stack([four, torch.arange(nodes).repeat_interleave(4)])
    made["edge_index"] = edge_index
    if names and names[0] in _CALLS:
        return [made[name] for name in _CALLS[names[0]]]
    first = ["x", *(name for name in names if name in ("x_0", "pos", "normal"))]
    rest = [name for name in names if name not in first]
    return [made[name] for name in (*first, "edge_index", *rest)]


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


def is_left_alone(name: str) -> bool:
    """Return whether PyG's own code runs."""
    return not _how(name)[0].strip("-")


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
    rows = {name: _row(name, measured.get(name, "")) for name in cases()}
    rows |= {name: f"| `{name}` | - |  |  | {reason} |" for name, reason in NOT_TRIED.items()}
    yield from (rows[name] for name in sorted(rows, key=str.lower))


def _row(name: str, measured: str) -> str:
    how, edges, own = _how(name)
    return f"| `{name}` | {how} | {edges} | {measured} | {own} |"


def _how(name: str) -> tuple[str, str, str]:
    """Return how a convolution runs, what runs on its edges, and why PyG's own code runs instead."""
    conv, reasons, edges = tried(name)
    own = [each.split(": ", 1)[1] for each in reasons if " runs PyG's own " in each]
    own += [_NO_MESSAGES[name]] if name in _NO_MESSAGES else []
    if own or not weft.accelerated(conv):
        return "-", "", "; ".join(own)
    if any("Accelerated" in type(each).__name__ for each in conv.modules()):
        return "hand-made", "", ""
    return "compiled", "; ".join(edges), ""


_HEAD = [
    "# PyG's convolutions under `weft.accelerate`",
    "",
    "Written by `python docs/convolutions_page.py`, which runs each of them on a small graph and compares outputs and",
    "gradients with PyG's own. *hand-made*: a forward of weft's on its kernels. *compiled*: PyG's own forward, whose",
    "messages and aggregation weft compiles ([Messages](messages.md)); what is then left on edges is a kernel of weft's,",
    "a program of the compiler's, or plain torch, which has an operator that programs do not. Where nothing stands,",
    "PyG's own code runs, for the reason given. *PyG / weft* is the time of PyG's own forward and backward over that of",
    "the accelerated ones, on two threads of a CPU (`python -m benchmarks.run convolutions`,",
    "[with the times](../benchmarks/results/README.md)); where nothing stands, it was not measured. Those that join nearest",
    "points search for them in plain torch here where pyg-lib is not installed, and are not measured. `MessagePassing` itself,",
    "and the three of CuGraph, which are kernels of another library, have no row.",
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
