"""What chunks cost."""

from weft.graph.graph import Graph
from weft.strategies.offload.chunks import Cost


def least_memory(graph: Graph, cost: Cost) -> int:
    """Return what the most expensive node takes alone."""
    degree = graph.indptr.diff()
    return max(cost(int(d) + 1, 1, int(d)) for d in degree)
