"""Everything a model is made of: `weft.nn.SAGE`, `weft.nn.Stack` …, resolved on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.interop.pyg.layer import PyG
    from weft.layers.appnp import APPNP
    from weft.layers.base import GraphInfo, Layer, Linear, layers, number_draws
    from weft.layers.dropout import Dropout
    from weft.layers.edgeconv import EdgeConv
    from weft.layers.encoder import Encoder
    from weft.layers.gat import GAT
    from weft.layers.gatv2 import GATv2
    from weft.layers.gcn import GCN
    from weft.layers.gin import GIN
    from weft.layers.gine import GINE
    from weft.layers.hgt import HGT
    from weft.layers.monet import MoNet
    from weft.layers.no_layers import NoLayers
    from weft.layers.rgcn import RGCN
    from weft.layers.sage import SAGE
    from weft.layers.sgc import SGC
    from weft.layers.stack import Stack

_HOME = {
    "APPNP": "weft.layers.appnp",
    "Dropout": "weft.layers.dropout",
    "EdgeConv": "weft.layers.edgeconv",
    "Encoder": "weft.layers.encoder",
    "GAT": "weft.layers.gat",
    "GATv2": "weft.layers.gatv2",
    "GCN": "weft.layers.gcn",
    "GIN": "weft.layers.gin",
    "GINE": "weft.layers.gine",
    "GraphInfo": "weft.layers.base",
    "HGT": "weft.layers.hgt",
    "Layer": "weft.layers.base",
    "Linear": "weft.layers.base",
    "MoNet": "weft.layers.monet",
    "NoLayers": "weft.layers.no_layers",
    "PyG": "weft.interop.pyg.layer",
    "RGCN": "weft.layers.rgcn",
    "SAGE": "weft.layers.sage",
    "SGC": "weft.layers.sgc",
    "Stack": "weft.layers.stack",
    "layers": "weft.layers.base",
    "number_draws": "weft.layers.base",
}

__all__ = [
    "APPNP",
    "GAT",
    "GCN",
    "GIN",
    "GINE",
    "HGT",
    "RGCN",
    "SAGE",
    "SGC",
    "Dropout",
    "EdgeConv",
    "Encoder",
    "GATv2",
    "GraphInfo",
    "Layer",
    "Linear",
    "MoNet",
    "NoLayers",
    "PyG",
    "Stack",
    "layers",
    "number_draws",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
