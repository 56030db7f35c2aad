"""Graph algorithms on the primitive that layers use, `block.aggregate`."""

from weft.algorithms.label_propagation import label_propagation
from weft.algorithms.pagerank import pagerank

__all__ = ["label_propagation", "pagerank"]
