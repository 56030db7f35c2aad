"""Batches of a few sizes only: rows and edges are padded, so that what was captured for one serves others.

A CUDA graph replays kernels on the addresses and shapes that it was captured with. The rows of a hop are
rounded up by at most a sixteenth, its edges to what as many rows could have. Rows that are too many have no
edge, name some node of the graph and are read by nobody: the numbers of the others are what they were. Edges
that are too many are real ones of the graph or of another batch, and belong to no row: kernels go by rows and
do not come to them. So messages run where the compiler made kernels of all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from weft.graph.message.block import Block
from weft.graph.message.compiled import (
    REDUCTIONS,
    SWITCHED_OFF,
    compiled_of,
    compiles,
    propagate_compiled,
)
from weft.graph.message.reduction import Propagation, times_rows
from weft.graph.relations import RelationBlock
from weft.kernels import Transposed, gpu
from weft.kernels.registration import index_dtype
from weft.samplers.base import Batch
from weft.samplers.core.block import SampledBlock
from weft.samplers.core.slices import node_rows

_LEAST = 32


class PaddingError(Exception):
    """A layer asked a block for something that padding would change; says what."""


class Sizes(NamedTuple):
    """What a padded batch is captured for."""

    num_seeds: int
    rows: tuple[int, ...]
    """Rows after each hop."""

    @staticmethod
    def of(batch: Batch) -> "Sizes":
        """Return the sizes that a batch is padded to: a function of its own alone."""
        return Sizes(batch.seeds.numel(), tuple(padded(block.num_src) for block in reversed(batch.blocks)))


def padded(count: int) -> int:
    """Return the number of rows that so many are padded to, at most a sixteenth more."""
    step = max(_LEAST, 1 << max(count.bit_length() - 5, 0))
    return -(-count // step) * step


class PaddedBlock(SampledBlock):
    """Drawn edges with room for more of them at the end, which belong to no row."""

    padded = True
    brought: Mapping[str, Tensor] = {}
    """Edge data that came with the batch, since those of all edges lie elsewhere."""

    def edge(self, name: str) -> Tensor:
        """Return edge data, [E, ...]; those of edges that are too many mean nothing."""
        return self.brought[name] if name in self.brought else super().edge(name)

    @property
    def transposed(self) -> Transposed:
        """The edges by source row, found without waiting for the GPU."""
        return self.cached("transposed", self._turned)

    def _turned(self) -> Transposed:
        number = torch.arange(self.num_edges, device=self.device)
        far = torch.where(number < self.indptr[-1], self.indices, self.num_src)
        ordered, edges = torch.sort(far, stable=True)
        bounds = torch.arange(self.num_src + 1, dtype=ordered.dtype, device=self.device)
        indptr = torch.searchsorted(ordered, bounds)
        rows = torch.searchsorted(self.indptr, edges, right=True) - 1
        kind = index_dtype(max(self.num_dst + 1, self.num_edges))
        gpu.bound(indptr, self.num_edges)
        return Transposed(indptr, rows.to(kind), edges.to(kind))

    @property
    def edge_dst(self) -> Tensor:
        """Refused: an edge that is too many has no destination."""
        raise PaddingError("a layer reads the destination of every edge")

    def _reduce_messages(self, how: Propagation) -> Tensor:
        """Return the messages reduced by kernels, which go by rows; refused where there are none for all."""
        reason = message_obstacle(how)
        if reason:
            raise PaddingError(f"a message is not compiled: {reason}")
        how = replace(how, src=[self.src(t) for t in how.src])
        made = propagate_compiled(self, how, _refused, always=True)
        assert made is not None, "nothing is in its way"
        return times_rows(made[0], self.mean_scale(made[0].dtype)) if how.reduce == "mean" else made[0]

    def by_relation(self) -> RelationBlock:
        """Refused, as are all blocks made of some of the edges."""
        raise PaddingError("a layer reads the edges by relation")

    def relation(self, relation: int) -> Block:
        """Refused, as are all blocks made of some of the edges."""
        raise PaddingError("a layer reads the edges of one relation")


def message_obstacle(how: Propagation) -> str:
    """Return why messages cannot be reduced without looking at single edges; "" where nothing is known."""
    if how.kernel_reduce not in REDUCTIONS:
        return f"reduce={how.reduce!r} has no kernel"
    if not compiles():
        return SWITCHED_OFF
    if not how.per_edge:
        return "it reads nothing of its edge"
    compiled = compiled_of(how)
    if isinstance(compiled, str):
        return compiled
    if compiled[0].by_relation is not None:
        return "its matrices by relation are found by looking at every edge"
    return next((each.reason for each in compiled[0].reductions if each.program is None), "")


def _refused(block: Block, how: Propagation) -> NoReturn:
    raise PaddingError("a message is not compiled: there is no kernel for a part of it")


class PaddedBatch(Batch):
    """A batch at fixed addresses: `fill` copies another of the same sizes there.

    Its clock lies on the device too, so that draws of a replay are those of its step.
    """

    blocks: list[PaddedBlock]  # type: ignore[assignment]

    def __init__(self, batch: Batch, sizes: Sizes, fanout: Sequence[int], *, reads_x: bool) -> None:
        device = batch.nodes.device
        self.device_clock = torch.zeros(3, dtype=torch.int64, device=device)
        nodes = torch.zeros(sizes.rows[-1], dtype=torch.int64, device=device)
        rows = (sizes.num_seeds, *sizes.rows)
        blocks = [
            _block(block, nodes, rows[hop], rows[hop + 1], fanout[hop])
            for hop, block in enumerate(reversed(batch.blocks))
        ]
        data: dict[str, Any] = {} if batch.y is None else {"y": torch.zeros_like(batch.y)}
        if not reads_x:
            data["x"] = batch.x.new_zeros((len(nodes), *batch.x.shape[1:]))
        super().__init__(batch.graph, [*reversed(blocks)], nodes, num_seeds=sizes.num_seeds, data=data)
        self.set_clock(None)

    def fill(self, batch: Batch, clock: Tensor) -> None:
        """Take over a batch and the moment (seed, epoch, step) of its draws."""
        self.nodes[: batch.num_nodes].copy_(batch.nodes)
        self.device_clock.copy_(clock, non_blocking=True)
        for name, value in self._data.items():
            rows = batch.y if name == "y" else batch.x
            value[: len(rows)].copy_(rows)  # type: ignore[arg-type]
        for own, block in zip(self.blocks, batch.blocks):
            own.indptr[: block.num_dst + 1].copy_(block.indptr)
            # Rows beyond the batch begin and end behind its last edge: they have none.
            own.indptr[block.num_dst + 1 :].fill_(block.num_edges)
            own.indices[: block.num_edges].copy_(block.indices)
            own.edge_ids[: block.num_edges].copy_(block.edge_ids)
            for name, buffer in own.brought.items():
                buffer[: block.num_edges].copy_(block.edge(name))

    def anew(self, *, reads_x: bool) -> Batch:
        """Return a batch of the same tensors whose blocks remember nothing."""
        blocks: list[Block] = [_again(block) for block in self.blocks]
        data = dict(self._data)
        if reads_x:
            data["x"] = node_rows(self.graph, self.nodes)
        made = _Fixed(self.graph, blocks, self.nodes, num_seeds=self.seeds.numel(), data=data)
        for block in blocks:
            block.clock = self.device_clock
        return made


class _Fixed(Batch):
    """A batch whose clock stays the one of its blocks."""

    def set_clock(self, clock: Tensor | None) -> None:
        """Leave the clock as it is."""


def _block(block: Block, nodes: Tensor, num_dst: int, num_src: int, fanout: int) -> PaddedBlock:
    device, room = nodes.device, num_dst * fanout
    made = PaddedBlock(
        torch.zeros(num_dst + 1, dtype=torch.int64, device=device),
        torch.zeros(room, dtype=block.indices.dtype, device=device),
        num_src=num_src,
        src_ids=nodes[:num_src],
        edge_ids=torch.zeros(room, dtype=torch.int64, device=device),
        edge_data=block.edge_data,
        degrees=block.degree_source,
    )
    made.brought = {
        name: _room(block.edge(name).to(device), room)
        for name, value in block.edge_data.items()
        if value.device != device
    }
    return made


def _room(rows: Tensor, room: int) -> Tensor:
    """Return room for rows of edges, full of one that there is: not every function has a slope at 0."""
    if not len(rows):
        return rows.new_zeros(room, *rows.shape[1:])
    return rows[:1].expand(room, *rows.shape[1:]).clone()


def _again(block: PaddedBlock) -> PaddedBlock:
    # Said before the capture, which may not wait for the GPU: a row has at most its fanout of edges.
    gpu.without_hubs(block.indptr, block.num_edges)
    made = PaddedBlock(
        block.indptr,
        block.indices,
        num_src=block.num_src,
        src_ids=block.src_ids,
        edge_ids=block.edge_ids,
        edge_data=block.edge_data,
        degrees=block.degree_source,
    )
    made.brought = block.brought
    return made
