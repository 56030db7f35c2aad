"""Graph convolutions, one a file, entered in a registry by name; `weft.nn` is the front."""

from weft.layers.base import Layer, layers

__all__ = ["Layer", "layers"]
