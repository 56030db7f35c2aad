"""A layer in two halves: what nodes send, made once a node, and what destinations make of what they read.

A layer is given its own rows and a block whose `src` brings the rows that messages are read from: as on a
shard. So the first half is the layer on a block without edges that notes what `src` is asked for, the second
the layer on the destinations of a chunk, whose `src` gives what the first half noted. Of a function of an
edge nodes send the narrowest values that it reads of a source.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.graph.graph import Graph
from weft.graph.message.block import Block, DegreeSource, PairTransform
from weft.graph.message.crossing import crossed
from weft.graph.message.reduction import Aggregation, Propagation
from weft.graph.message.scores import Score
from weft.graph.sparse import Features
from weft.layers.stack import Stack
from weft.strategies.offload.chunks import ChunkBlock, GraphChunk


class Message(NamedTuple):
    """One of the matrices that destinations read rows of."""

    shape: tuple[int, ...]
    """Of a row."""
    dtype: torch.dtype
    needs_grad: bool
    given: bool = False
    """Whether it is what the layer is given, not something that it makes."""

    @property
    def nbytes(self) -> int:
        """The bytes of a row."""
        return int(torch.Size(self.shape).numel()) * self.dtype.itemsize


class SendingBlock(Block):
    """Nodes without edges: notes the rows that messages would be read from, `sent`, and how often."""

    def __init__(
        self, graph: Graph, rows: slice, device: torch.device, degrees: DegreeSource, clock: Tensor | None
    ) -> None:
        count = rows.stop - rows.start
        super().__init__(
            torch.zeros(count + 1, dtype=torch.int64, device=device),
            torch.zeros(0, dtype=torch.int32, device=device),
            num_src=count,
            src_ids=torch.arange(rows.start, rows.stop, device=device),
            edge_ids=torch.zeros(0, dtype=torch.int64, device=device),
            edge_data={name: value[:0].to(device) for name, value in graph.edge_data.items()},
            degrees=degrees,
            clock=clock,
        )
        self.sent: list[Tensor] = []
        self.calls = 0

    def src(self, h: Any) -> Any:
        """Note the rows, each tensor once."""
        if not any(h is held for held in self.sent):
            self.sent.append(h)
        return super().src(h)

    def attend(self, score: Score, value: Tensor, dropout: float = 0.0, *, layer: int = 0) -> Tensor:
        """Return zeros."""
        self.calls += 1
        return super().attend(score, value, dropout, layer=layer)

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        self.calls += 1
        return super()._aggregate(h, how)

    def _propagate(self, how: Propagation) -> Tensor:
        self.calls += 1
        return super()._propagate(_halved(how))

    def aggregate_pairs(self, transform: PairTransform, *given: Any, **options: Any) -> Tensor:
        """Refused in two halves: pairs are made of the rows that are read."""
        raise NotHalvedError

    def attend_pairs(self, transform: PairTransform, *given: Any, **options: Any) -> Tensor:
        """Refused in two halves: pairs are made of the rows that are read."""
        raise NotHalvedError


def _halved(how: Propagation) -> Propagation:
    """Return the same messages of the narrowest values that nodes send for them, alike in both halves."""
    return crossed(how, lambda h: False, back=False)


class NotHalvedError(Exception):
    """A layer cannot be run in two halves."""


def messages_of(model: Stack, number: int, block: SendingBlock, own: Tensor) -> list[Message] | None:
    """Return what a node sends in a layer, found by a trial on one; None where it has no two halves."""
    try:
        with torch.enable_grad():
            model.run_layer(number, [block], own)
    except NotHalvedError:
        return None
    if block.calls != 1 or not all(isinstance(each, Tensor) for each in block.sent):
        return None
    return [Message(tuple(x.shape[1:]), x.dtype, x.requires_grad, x is own) for x in block.sent]


class ReadingBlock(ChunkBlock):
    """The edges of a chunk; the caller holds the rows of its destinations, `given` are what edges read."""

    given: Sequence[Tensor] = ()
    """In the order in which `src` is asked for them."""

    def reading(self, given: Sequence[Tensor]) -> "ReadingBlock":
        """Set what edges read, and return the block."""
        self.given, self._asked = given, []
        return self

    def src(self, h: Any) -> Any:
        """Return what the edges read of a tensor of which the caller has its own rows."""
        if not any(h is held for held in self._asked):
            self._asked.append(h)
        place = next(number for number, held in enumerate(self._asked) if held is h)
        return self.given[place]

    def _propagate(self, how: Propagation) -> Tensor:
        return super()._propagate(_halved(how))

    _asked: list[Any]


def reading_block(
    chunk: GraphChunk, graph: Graph, device: torch.device, degrees: DegreeSource, clock: Tensor | None
) -> ReadingBlock:
    """Return the block of a chunk on a device; its tensors are copied there."""
    made = chunk.block(graph, device, degrees, clock, kind=ReadingBlock)
    assert isinstance(made, ReadingBlock)
    return made
