"""The typed graph, the blocks that layers see of it, and how it is read, checked, changed and stored."""

from weft.graph.block import Block, RelationBlock
from weft.graph.graph import Graph
from weft.graph.scores import Additive, Dot, GATv2
from weft.graph.sparse import SparseFeatures

__all__ = ["Additive", "Block", "Dot", "GATv2", "Graph", "RelationBlock", "SparseFeatures"]
