"""`weft.nn.PyG(conv)`: an unmodified one-hop PyG convolution as a layer on any block.

A convolution is right on a block if what it computes for a row depends on that row, its incoming edges and
their sources alone. Most of PyG's are; those that normalise by degrees are given the whole graph's, and the
rest is refused with the reason. `_HANDLING` says what is known of PyG's classes. In addition every
convolution is tried when it is wrapped: on a small graph whole, and on the same graph in two halves, which
must agree.
"""

import inspect
from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.interop.pyg.own_rows import NotCovered, on_own_rows
from weft.interop.pyg.trial import network_width, own_width, problem
from weft.interop.pyg.weighing import NEITHER, weighing
from weft.layers.base import Layer, dense, inverse_sqrt
from weft.registry import require

_MULTI_HOP = (
    "it reaches over several hops in one call and a block holds one; see weft.nn.SGC and weft.nn.APPNP"
)
_GLOBAL = "it looks at all nodes at once, a block holds a part of them"
_TYPED = "it takes dictionaries by node type; use weft.nn.HGT or weft.nn.RGCN"
_BOTH_WAYS = "it needs the outgoing edges of a node too, a block holds the incoming ones"
_INPUTS = "it takes more inputs than x, edge_index and edge values"

# How PyG's classes are called: "pair" with (sources, destinations), "square" with the sources, of whose
# output
# the first rows are the destinations, "normalised" like square with the whole graph's normalisation as edge
# weights; anything else is the reason for refusing. Classes not listed are tried as pair, then as square.
_REFUSED = {
    _MULTI_HOP: "APPNP SGConv SSGConv TAGConv ChebConv ARMAConv MixHopConv PANConv "
    "GatedGraphConv AntiSymmetricConv",
    _GLOBAL: "GPSConv GravNetConv DynamicEdgeConv XConv WLConv WLConvContinuous",
    _TYPED: "HANConv HGTConv HeteroConv HEATConv",
    _BOTH_WAYS: "DirGNNConv HypergraphConv SignedConv MeshCNNConv",
    _INPUTS: "GCN2Conv FAConv DNAConv PointNetConv PPFConv PointGNNConv PointTransformerConv SplineConv",
    "it normalises by degrees of learned edge weights, which only the whole graph has": "PDNConv",
    "it draws negative edges from all nodes": "SuperGATConv",
}
_HANDLING = {name: reason for reason, names in _REFUSED.items() for name in names.split()}
_HANDLING |= {"GCNConv": "normalised", "LGConv": "normalised"}
_ENDS: tuple[Literal["src", "dst"], ...] = ("src", "dst")
_CALLS = ("pair", "square", "normalised")


class PyG(Layer):
    """Run a PyG convolution on blocks, as it is: `weft.nn.PyG(torch_geometric.nn.GATConv(16, 8, heads=4))`.

    Edge weights, attributes and types of the graph go to the arguments of those names. Whatever the
    convolution does with self loops it does itself, except that GCNConv's are expected in the graph
    (`self_loops`).
    """

    def __init__(self, conv: nn.Module) -> None:
        require("torch_geometric", "pyg")
        nn.Module.__init__(self)
        candidates = _candidates(conv)
        self.conv = conv
        self.in_features = _in_width(conv)  # 0: any
        self.out_features = 0
        self.weighs = NEITHER
        self.own_width: int | None = None
        """What a row travels as where messages tell it; 0: they do not. Found at first need."""
        self.raw: dict[bool, str] = {}
        """Why messages do not tell it, in training and outside."""
        self.arguments = frozenset(inspect.signature(conv.forward).parameters)
        problems = [problem(self, call) for call in candidates]  # finds out_features, too
        if all(problems):
            raise InputError(f"{type(conv).__name__} cannot run on blocks: {problems[-1]}")
        self.become(candidates[problems.index("")])

    def become(self, call: str) -> None:
        """Call the convolution this way from now on."""
        self.call = call
        self.self_loops = call == "normalised" and bool(getattr(self.conv, "add_self_loops", False))

    def forward(self, block: Block, h: Features) -> Tensor:
        rows = dense(h)
        if self.call != "normalised":
            block.need_sums(f"{type(self.conv).__name__} of PyG")
        if self._travels(block, h):
            try:
                return self.on_own_rows(block, rows)
            except NotCovered as error:
                self.raw[self.training] = str(error)
        if not block.whole_rows:
            raise InputError(
                f"{type(self.conv).__name__} needs all incoming edges of a row on one worker, which this "
                f"strategy does not have; use strategy 'halo'{_because(self.raw.get(self.training))}"
            )
        return self._called(block, block.src(rows), block.dst(rows))

    def on_own_rows(self, block: Block, rows: Tensor) -> Tensor:
        """Return the result where what messages read of rows of others is brought, or raise `NotCovered`."""
        with on_own_rows(self.conv, block):
            return self._called(block, rows, rows)

    def _travels(self, block: Block, h: Features) -> bool:
        """Return whether messages tell what travels, the same on all ranks: where that is less than rows.

        Rows that are fetched once for all steps cost nothing; edges that stand for others weigh whole ones.
        """
        held = block.rows_are_own or not block.whole_rows
        if (
            not held
            or h.shape[0] != block.num_dst
            or self.training in self.raw
            or torch.compiler.is_compiling()
        ):
            return False
        if block.multiplicity() is not None:
            return False
        if self.own_width is None:
            self.own_width = own_width(self)
        if not block.whole_rows:
            return True
        return 0 < self.own_width < h.shape[1] and not block.constant(h)

    def _called(self, block: Block, src: Tensor, dst: Tensor) -> Tensor:
        """Return what the convolution gives for rows of sources and destinations."""
        if self.call == "normalised":
            return self._normalised(block, src)
        given = (src, dst) if self.call == "pair" else src
        with weighing(self.conv, block, self.weighs):
            out: Tensor = self.conv(given, block.edge_index(), **self.edge_values(block, src.dtype))
        return out[: block.num_dst]

    def edge_values(self, block: Block, dtype: torch.dtype) -> dict[str, Any]:
        """Return the block's edge data for the arguments that the convolution has."""
        values: dict[str, Any] = {}
        for argument, name in (("edge_weight", "weight"), ("edge_attr", "attr")):
            if argument in self.arguments and block.has_edge(name):
                values[argument] = block.edge(name).to(dtype)
        if "edge_type" in self.arguments:
            kinds = block.edge_type
            values["edge_type"] = (
                torch.zeros(block.num_edges, dtype=torch.long) if kinds is None else kinds.long()
            )
        return values

    def _normalised(self, block: Block, src: Tensor) -> Tensor:
        """Run GCNConv with normalize=False on edge weights made of the whole graph's degrees."""
        conv: Any = self.conv
        key = ("pyg", self.self_loops, conv.normalize, _improved(conv), src.dtype)
        edge_index, weight = block.cached(key, lambda: self._weighted_edges(block, src.dtype))
        before = conv.normalize
        conv.normalize = False
        try:
            out: Tensor = conv(src, edge_index, weight)
        finally:
            conv.normalize = before
        return out[: block.num_dst]

    def _weighted_edges(self, block: Block, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the edges, self loops included where the layer has them, and their normalised weights."""
        edge_index, weighted = block.edge_index(), block.has_edge("weight")
        weight = block.edge("weight").double() if weighted else torch.ones(block.num_edges).double()
        if (stands_for := block.multiplicity()) is not None:  # drawn edges count for those that were not
            weight = weight * stands_for
        if not self.conv.normalize:
            return edge_index, weight.to(dtype)
        degrees = [block.in_degree(rows, weighted=weighted).double() for rows in _ENDS]
        if self.self_loops:
            fill = 2.0 if weighted and _improved(self.conv) else 1.0  # PyG ignores `improved` without weights
            edge_index, weight, added = _with_loops(block, edge_index, weight, fill)
            degrees = [degree + added for degree in degrees]
        scales = [inverse_sqrt(degree) for degree in degrees]
        return edge_index, (scales[0][edge_index[0]] * weight * scales[1][edge_index[1]]).to(dtype)


def _with_loops(
    block: Block, edge_index: Tensor, weight: Tensor, fill: float
) -> tuple[Tensor, Tensor, float]:
    """Return edges and weights with one loop of weight `fill` a destination, and what that adds to a degree.

    Loops that weft added to the graph weigh 1 each; a block without any comes from a graph without any.
    """
    loops = block.src_ids[edge_index[0]] == block.dst_ids[edge_index[1]]
    count = int(loops.sum())
    if count == 0:
        own = torch.arange(block.num_dst, device=block.device).expand(2, -1)
        return (
            torch.cat([edge_index, own], dim=1),
            torch.cat([weight, weight.new_full((own.shape[1],), fill)]),
            fill,
        )
    if block.num_src == block.num_dst and count != block.num_dst:
        raise InputError(
            f"{count} of {block.num_dst} nodes have a self loop; call graph.add_self_loops() first"
        )
    return edge_index, weight + (fill - 1.0) * loops, fill - 1.0


def _candidates(conv: nn.Module) -> list[str]:
    """Return the ways of calling the convolution that may be right, or raise with the reason for none."""
    from torch_geometric.nn import MessagePassing

    name = type(conv).__name__
    handling = _HANDLING.get(name) if type(conv).__module__.startswith("torch_geometric.") else None
    if handling is not None and handling not in _CALLS and not _one_step(conv):
        raise InputError(f"{name} cannot run on blocks: {handling}")
    if not isinstance(conv, MessagePassing):
        raise InputError(f"{name} cannot run on blocks: it is no torch_geometric.nn.MessagePassing")
    return [handling] if handling in _CALLS else ["pair", "square"]


def _in_width(conv: nn.Module) -> int:
    """Return the width of the input, told by the convolution or by the network inside it; 0: any."""
    found = getattr(conv, "in_channels", getattr(conv, "channels", None))
    if isinstance(found, tuple | list):
        if len(set(found)) > 1:
            raise InputError(
                f"{type(conv).__name__}: all rows of a block have one width, got in_channels={found}"
            )
        found = found[0]
    found = network_width(conv) if found is None else found
    if isinstance(found, int) and found < 0:
        raise InputError(f"{type(conv).__name__}: give in_channels as a number; a lazy layer cannot be tried")
    return found or int(getattr(conv, "out_channels", 0))


def _one_step(conv: nn.Module) -> bool:
    """Return whether a convolution of several hops was built with one."""
    return any(getattr(conv, name, None) == 1 for name in ("num_layers", "num_iters")) and not hasattr(
        conv, "phi"
    )


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _improved(conv: nn.Module) -> bool:
    return bool(getattr(conv, "improved", False))
