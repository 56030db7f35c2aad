"""Everything a model is made of: `weft.nn.SAGE`, `weft.nn.Stack` …, resolved on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from weft.layers.pyg import PyG
    from weft.layers.rgcn import RGCN
    from weft.layers.sage import SAGE
    from weft.layers.sgc import SGC
    from weft.layers.stack import Stack

_HOME = {
    "APPNP": "appnp",
    "Dropout": "dropout",
    "EdgeConv": "edgeconv",
    "Encoder": "encoder",
    "GAT": "gat",
    "GATv2": "gatv2",
    "GCN": "gcn",
    "GIN": "gin",
    "GINE": "gine",
    "GraphInfo": "base",
    "HGT": "hgt",
    "Layer": "base",
    "Linear": "base",
    "MoNet": "monet",
    "PyG": "pyg",
    "RGCN": "rgcn",
    "SAGE": "sage",
    "SGC": "sgc",
    "Stack": "stack",
    "layers": "base",
    "number_draws": "base",
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
    "PyG",
    "Stack",
    "layers",
    "number_draws",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"weft.layers.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
