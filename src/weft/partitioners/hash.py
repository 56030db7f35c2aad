"""Parts by a hash of the node's id."""

import numpy as np
import torch
from torch import Tensor

from weft.draw import Stream, draw, fold
from weft.graph.graph import Graph
from weft.partitioners.base import Partitioner, partitioners


@partitioners.add("hash")
class HashPartitioner(Partitioner):
    """Assign each node by a hash of its id. Balanced, blind to edges, needs no memory."""

    isolated = False

    def assign(self, graph: Graph, num_parts: int) -> Tensor:
        """Return the part of each node: 32 drawn bits, scaled to the number of parts."""
        bits = draw(fold(self.seed, Stream.SHUFFLE), np.arange(graph.num_nodes)).astype(np.uint64)
        return torch.from_numpy(((bits * np.uint64(num_parts)) >> np.uint64(32)).astype(np.int32))
