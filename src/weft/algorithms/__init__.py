"""Graph algorithms on the primitive that layers use, `block.aggregate`: in one process, or on parts."""

from weft.algorithms.base import GraphParts
from weft.algorithms.label_propagation import label_propagation
from weft.algorithms.pagerank import pagerank

__all__ = ["GraphParts", "label_propagation", "pagerank"]
