"""A layer over all nodes in bounded memory, in two halves: what nodes send, then what destinations read.

What nodes send is made once, in chunks of rows, and kept: on the device where there is room, else in the
host's memory. Then chunks of destinations read it by their edges. Backward makes it again, runs the chunks of
destinations with gradients, and takes what these give each sender through the first half once more.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weft.layers.stack import Stack
from weft.strategies.offload.blocks import Message, ReadingBlock, SendingBlock, messages_of, reading_block
from weft.strategies.offload.chunks import GraphChunk
from weft.strategies.offload.rows import Source, Target, Total

if TYPE_CHECKING:
    from weft.strategies.offload.offload import Offload

Through = Callable[[Sequence[Tensor], list[Tensor], Sequence[Tensor]], list[Tensor]]
"""From outputs, leaves and the outputs' gradients to the leaves' ones; parameters' are added to totals."""


class Halves:
    """One layer; `rows` are what it reads, in the host's memory, or None for the graph's features."""

    def __init__(self, offload: "Offload", model: Stack, number: int, messages: Sequence[Message]) -> None:
        self.offload, self.model, self.number, self.messages = offload, model, number, messages

    def forward(self, rows: Tensor | None, out: Target) -> None:
        """Fill the rows that the layer makes."""
        for chunk, block, (own,) in self._reading(self._send(rows), [self._held(rows)]):
            with self.offload.cast():
                out.put(chunk, self.model.run_layer(self.number, [block], own))

    def backward(
        self, rows: Tensor | None, grad: Tensor, before: Tensor | None, through: Through
    ) -> Tensor | None:
        """Return the gradient of the rows that the layer reads, added to what they have already."""
        offload, wanted = self.offload, rows is not None
        totals = [Total(offload, message) for message in self.messages if message.needs_grad]
        found = Target(offload) if wanted else None
        for chunk, block, (own, above) in self._reading(self._send(rows), [self._held(rows), grad]):
            leaves = [own.requires_grad_()] if wanted else []
            given = [
                each.detach().requires_grad_(message.needs_grad)
                for each, message in zip(block.given, self.messages)
            ]
            with torch.enable_grad(), offload.cast():
                out = self.model.run_layer(self.number, [block.reading(given)], own)
            read = [each for each in given if each.requires_grad]
            gradients = through([out], leaves + read, [above.to(out.dtype)])
            if found is not None:
                found.put(chunk, gradients.pop(0))
            for total, gradient in zip(totals, gradients):
                total.add(chunk, block, gradient)
            del leaves, given, read, gradients, out, own, above
        others = [] if found is None else [found.finish()]
        return self._back(rows, totals, others if before is None else [*others, before], through)

    # The first half

    def _send(self, rows: Tensor | None) -> list[Source]:
        """Return what all nodes send."""
        targets = [Target(self.offload, near=self.offload.near) for _ in self.messages]
        with torch.no_grad():
            for chunk, block, (own,) in self._sending([self._held(rows)]):
                with self.offload.cast():
                    self.model.run_layer(self.number, [block], own)
                for target, sent in zip(targets, block.sent, strict=True):
                    target.put(chunk, sent)
        return [Source(self.offload, target.finish()) for target in targets]

    def _back(
        self, rows: Tensor | None, totals: Sequence[Total], others: list[Tensor], through: Through
    ) -> Tensor | None:
        """Take the gradients of what was sent to the rows it was made of; `others` are added to theirs."""
        if rows is None and not totals:
            return None
        out = None if rows is None else Target(self.offload)
        for total in totals:
            total.finish()
        for chunk, block, (own, *added) in self._sending([self._held(rows), *others]):
            leaves = [] if out is None else [own.requires_grad_()]
            with torch.enable_grad(), self.offload.cast():
                self.model.run_layer(self.number, [block], own)
            sent = [each for each, message in zip(block.sent, self.messages) if message.needs_grad]
            grads = [total.rows(chunk).to(each.dtype) for total, each in zip(totals, sent)]
            gradients = through(sent, leaves, grads)
            if out is not None:
                out.put(chunk, sum(added, gradients[0]))
        return None if out is None else out.finish()

    # Chunks on their way

    def _held(self, rows: Tensor | None) -> Tensor:
        held = self.offload.x if rows is None else rows
        assert isinstance(held, Tensor), "features of other kinds are not run in halves"
        return held

    def _sending(self, held: list[Tensor]) -> Iterator[tuple[GraphChunk, SendingBlock, list[Tensor]]]:
        offload = self.offload

        def make(chunk: GraphChunk) -> tuple[GraphChunk, SendingBlock, list[Tensor]]:
            block = SendingBlock(offload.graph, chunk.rows, offload.device, offload.degrees, offload.clock)
            return chunk, block, [offload.bring(each[chunk.rows]) for each in held]

        yield from offload.ahead(make, offload.stretches(self.model))

    def _reading(
        self, sources: Sequence[Source], held: list[Tensor]
    ) -> Iterator[tuple[GraphChunk, ReadingBlock, list[Tensor]]]:
        offload = self.offload

        def make(chunk: GraphChunk) -> tuple[GraphChunk, ReadingBlock, list[Tensor]]:
            offload.moved += chunk.nbytes(offload.graph)
            block = reading_block(chunk, offload.graph, offload.device, offload.degrees, offload.clock)
            block.reading([source.rows(chunk, block) for source in sources])
            return chunk, block, [offload.bring(each[chunk.rows]) for each in held]

        yield from offload.ahead(make, offload.chunks(self.model))


def halved(offload: "Offload", model: Stack, number: int) -> list[Message] | None:
    """Return what a node sends in a layer; None where the layer is not run in two halves."""
    graph, device = offload.graph, offload.device
    if len(graph.node_types) > 1 or graph.num_relations > 1 or not isinstance(offload.x, Tensor):
        return None
    block = SendingBlock(graph, slice(0, 1), device, offload.degrees, offload.clock)
    width: Any = model.layers[number].in_features
    own = offload.x[:1] if number == 0 else offload.x.new_zeros(1, width)
    with offload.cast():
        return messages_of(model, number, block, own.to(device, copy=True).requires_grad_(number > 0))
