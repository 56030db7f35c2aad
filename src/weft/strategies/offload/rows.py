"""The rows of a layer that is run chunk by chunk: read from the host, written there, gradients summed."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weft import kernels
from weft.graph.message.block import Block
from weft.graph.sparse import SparseFeatures
from weft.kernels.registration import accumulator
from weft.samplers.core.slices import node_rows, take_rows
from weft.samplers.gpu.transfer import new_stream
from weft.strategies.offload.chunks import GraphChunk

if TYPE_CHECKING:
    from weft.strategies.offload.blocks import Message
    from weft.strategies.offload.offload import Offload


class Source:
    """Rows that chunks read: those given, on the device or the host, or the graph's features."""

    def __init__(self, offload: "Offload", rows: Tensor | None) -> None:
        self.offload, self.made = offload, rows
        held = offload.x if rows is None else rows
        self.near = self.far = None
        if isinstance(held, Tensor):
            self.near = held if held.device.type == offload.device.type else None
            self.far = held if offload.direct else None

    def rows(self, chunk: GraphChunk, block: Block) -> Any:
        """Return those of a chunk's sources, on the device."""
        offload = self.offload
        if self.made is None and offload.x is None:
            return None  # a model that learns the rows of its nodes finds them by the block's ids
        if chunk.sources is None:
            assert self.near is not None, "chunks that read from all nodes have them on the device"
            return self.near
        if self.near is not None:
            return kernels.gather(self.near, block.src_ids)
        if self.far is not None:
            from weft.kernels.triton.gather import gather_far  # where there is a GPU

            offload.moved += len(chunk.sources) * self.far[:1].nbytes
            return gather_far(self.far, block.src_ids)
        pin = offload.device.type == "cuda"
        if self.made is not None:
            return _moved(offload, take_rows(self.made, chunk.sources, pin=pin))
        found = node_rows(offload.graph, chunk.sources, pin=pin)
        if isinstance(found, dict):
            return {kind: _moved(offload, rows) for kind, rows in found.items()}
        return _moved(offload, found)


def _moved(offload: "Offload", rows: Any) -> Any:
    return rows.to(offload.device) if isinstance(rows, SparseFeatures) else offload.bring(rows)


class Target:
    """Rows that are made chunk by chunk, in the host's memory or, with `near`, on the device.

    They are copied to the host beside the next chunk's work.
    """

    def __init__(self, offload: "Offload", *, near: bool = False) -> None:
        self.offload, self.near = offload, near
        self.held: Tensor | None = None
        self.stream = None if near or offload.courier is None else new_stream(offload.device)

    def put(self, chunk: GraphChunk, rows: Tensor) -> None:
        """Take the rows of a chunk's destinations."""
        rows = rows.detach()
        if self.held is None:
            shape = (self.offload.graph.num_nodes, *rows.shape[1:])
            self.held = rows.new_empty(shape) if self.near else self.offload.host(shape, rows.dtype)
        if self.stream is None:
            self.held[chunk.rows] = rows
            return
        self.offload.moved += rows.nbytes
        self.stream.wait_stream(torch.cuda.current_stream(self.offload.device))
        with torch.cuda.stream(self.stream):
            self.held[chunk.rows].copy_(rows, non_blocking=True)
        rows.record_stream(self.stream)

    def finish(self) -> Tensor:
        """Return all rows; in the host's memory once they are there."""
        if self.stream is not None:
            self.stream.synchronize()
        assert self.held is not None, "a graph has nodes"
        return self.held


class Total:
    """The gradient of what chunks read: summed on the device where `offload.near`, else on the host."""

    def __init__(self, offload: "Offload", message: "Message") -> None:
        self.offload = offload
        shape, dtype = (offload.graph.num_nodes, *message.shape), accumulator(message.dtype)
        if offload.near:
            self.total = torch.zeros(shape, dtype=dtype, device=offload.device)
        else:
            self.total = offload.host(shape, dtype).zero_()

    def add(self, chunk: GraphChunk, block: Block, gradient: Tensor) -> None:
        """Add that of a chunk's sources; each is there once, so that sums do not depend on luck."""
        gradient = gradient.to(self.total.dtype)
        if chunk.sources is None:
            self.total += gradient
        elif self.offload.near:
            self.total.index_add_(0, block.src_ids, gradient)
        elif self.offload.direct:
            from weft.kernels.triton.gather import add_far  # where there is a GPU

            self.offload.moved += 2 * gradient.nbytes
            add_far(self.total, block.src_ids, gradient)
        else:
            self.offload.moved += gradient.nbytes
            self.total[chunk.sources] = self.total[chunk.sources] + gradient.to(self.total.device)

    def rows(self, chunk: GraphChunk) -> Tensor:
        """Return the sums of a chunk's own rows, on the device."""
        held = self.total[chunk.rows]
        return held if self.offload.near else self.offload.bring(held)

    def finish(self) -> Tensor:
        """Return the sum, once it is there."""
        if self.offload.direct and not self.offload.near:
            torch.cuda.current_stream(self.offload.device).synchronize()
        return self.total
