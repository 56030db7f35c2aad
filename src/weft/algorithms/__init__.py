"""Graph algorithms on the primitive that layers use, `block.aggregate`: in one process, or on parts."""

from weft.algorithms.label_propagation import label_propagation
from weft.algorithms.pagerank import pagerank
from weft.algorithms.parts import Parts

__all__ = ["Parts", "label_propagation", "pagerank"]
