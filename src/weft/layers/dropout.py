"""Dropout whose mask is a function of counters: the same for one process and for many, and after a resume."""

from typing import Literal

from torch import Tensor, nn

from weft import kernels
from weft.graph.message.block import Block
from weft.graph.sparse import Features, SparseFeatures
from weft.layers.base import held_rows, require_probability


class Dropout(nn.Module):
    """Zero each element with probability p, keyed by (clock, this module's number, global row id, column)."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        require_probability(self, p=p)
        self.p = float(p)
        self.draw_layer = 0

    def forward(self, block: Block, h: Features, rows: Literal["src", "dst", "held"] = "held") -> Features:
        """Return h with elements dropped; `rows`: which rows h holds, told by their number if "held"."""
        if not self.training or self.p == 0.0:
            return h
        ids = _ids(block, h, rows)
        clock = block.draw_clock()
        if isinstance(h, SparseFeatures):
            return h.dropout(self.p, ids, clock, self.draw_layer)
        return kernels.dropout(h, ids, self.p, clock=clock, layer=self.draw_layer)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def _ids(block: Block, h: Features, rows: str) -> Tensor:
    rows = held_rows(block, h) if rows == "held" else rows
    return block.src_ids if rows == "src" else block.dst_ids
