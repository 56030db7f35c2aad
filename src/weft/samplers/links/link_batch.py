"""A batch of links, as a model of weft takes it and as PyG's loader gives it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.graph.build import EdgeType
from weft.samplers.core.pair_ends import AroundEnds


@dataclass(eq=False, repr=False)
class LinkBatch(AroundEnds):
    """Links of one step and the neighbourhood of their ends: `h = model(batch.blocks, batch.x)`.

    `h[batch.src]` and `h[batch.dst]` are the two ends; `to_pyg()` is the batch as PyG's loader gives it.
    """

    input_id: Tensor
    """[n] places of the links among those that the loader was given."""
    src: Tensor
    """[n + m] rows of seeds; the m random links of mode "binary" come last."""
    dst: Tensor
    """[n + m]"""
    negative: Tensor | None
    """[n, amount] rows of seeds that the sources are not joined to, in mode "triplet"."""
    label: Tensor | None
    """[n + m]; 0 for random links."""
    time: Tensor | None
    """[n + m]"""
    kind: EdgeType | None
    """The links' relation, where node types are named."""

    def __repr__(self) -> str:
        drawn = 0 if self.negative is None else self.negative.numel()
        extra = len(self.src) - len(self.input_id) + drawn
        return f"LinkBatch(links={len(self.input_id):,}, negatives={extra:,}, nodes={self.nodes!r})"

    def to_pyg(self) -> Any:
        """Return a `Data` or `HeteroData` with edge_label_index, edge_label, edge_label_time and input_id, or
        src_index, dst_pos_index, dst_neg_index and seed_time for triplets.
        """
        data = self.nodes.to_pyg()
        for store in data.stores:  # of a batch of nodes
            store.pop("batch_size", None)
        link, source, target = (data, data, data)
        if self.kind is not None:
            link, source, target = data[self.kind], data[self.kind[0]], data[self.kind[2]]
        link.input_id = self.input_id
        src, dst = self._within(self.src, 0), self._within(self.dst, 2)
        if self.negative is None:
            link.edge_label_index = torch.stack([src, dst])
            link.edge_label, link.edge_label_time = self.label, self.time
            return data
        source.src_index, target.dst_pos_index = src, dst
        target.dst_neg_index = self._within(self.negative, 2).squeeze(-1)
        source.seed_time = target.seed_time = self.time
        return data

    def _within(self, rows: Tensor, end: int) -> Tensor:
        """Return rows of seeds, which are sorted by type, as rows among those of their type."""
        if self.kind is None:
            return rows
        graph = self.nodes.graph
        first = graph.node_offsets[graph.node_types.index(self.kind[end])]
        return rows - int((self.nodes.seeds < first).sum())
