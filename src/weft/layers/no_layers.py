"""A model of learned rows alone: a row for each node, and no layers that would make others of them."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.layers.learned import LearnedRows


class NoLayers(nn.Module):
    """The place of a task's head. Its rows are in the tables of a run until it `holds` them."""

    hops = 1
    kind: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.ModuleList()
        # What `to` makes of it is the type of rows, also where a head has no weight to tell it.
        self.register_buffer("kind", torch.empty(0), persistent=False)

    def hold(self, rows: Tensor, offsets: Sequence[int]) -> None:
        """Take the rows of all nodes, [n, width], perhaps of a mapped file; `offsets` are those of types."""
        self.rows = nn.ModuleList()
        for first, last in itertools.pairwise(offsets):
            held = LearnedRows(range(0), rows.shape[1])
            held.nodes = range(first, last)
            held.take_back(rows[first:last])
            self.rows.append(held)

    @property
    def width(self) -> int:
        """The numbers of a row; 0 where it holds none."""
        return max((int(each.width) for each in self.rows if isinstance(each, LearnedRows)), default=0)

    def forward(self, blocks: Any, x: Any) -> Tensor:
        """Return the rows of the last block's destinations."""
        if not self.rows:
            raise InputError("a model without layers makes no rows; train it with strategy.name = 'buckets'")
        ids = (blocks[-1] if isinstance(blocks, Sequence) else blocks).dst_ids
        tables: list[Any] = [*self.rows]
        found = torch.empty(len(ids), tables[0].width, dtype=tables[0].weight.dtype, device=ids.device)
        for held in tables:
            mine = ((ids >= held.nodes.start) & (ids < held.nodes.stop)).nonzero().flatten()
            found = found.index_copy(0, mine, held(ids[mine]))
        return found


NO_LAYERS = f"{NoLayers.__module__}:{NoLayers.__qualname__}"
"""The name of the class, as runs keep it."""
EMBEDDINGS = "embeddings"
"""The folder of a run that holds its rows, `rows.npy`."""
