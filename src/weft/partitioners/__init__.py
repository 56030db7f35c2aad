"""Ways of cutting a graph into parts, one a file, entered in a registry by name.

assignment = weft.partitioners.partition(graph, 8)                  # metis, in a child process, verified
assignment.quality.halo_rows, assignment.quality.balance
weft.graph.parts.partition.write_partition("parts", graph, assignment)    # a folder a part
"""

from weft.graph.parts.assignment import Assignment, Quality
from weft.partitioners.base import Partitioner, partitioners
from weft.partitioners.guarded import partition

__all__ = ["Assignment", "Partitioner", "Quality", "partition", "partitioners"]
