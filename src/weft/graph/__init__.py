"""The typed graph, the blocks that layers see of it, and how it is read, checked, changed and stored."""

from os import PathLike

from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.message.scores import Additive, DotScore, GATv2Score
from weft.graph.relations import RelationBlock
from weft.graph.sparse import SparseFeatures

__all__ = ["Additive", "Block", "DotScore", "GATv2Score", "Graph", "RelationBlock", "SparseFeatures", "load"]


def load(path: str | PathLike[str], verify: bool = True) -> Graph:
    """Return the graph that `graph.save(path)` wrote, its arrays mapped from the files without a copy."""
    return Graph.load(path, verify)
