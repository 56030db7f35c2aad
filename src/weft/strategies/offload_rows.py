"""The rows of a layer that is run chunk by chunk: read from the host, written there, gradients summed."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weft import kernels
from weft.graph.block import Block
from weft.graph.sparse import SparseFeatures
from weft.samplers.slices import node_rows, take_rows
from weft.samplers.transfer import new_stream
from weft.strategies.chunks import Chunk

if TYPE_CHECKING:
    from weft.strategies.offload import Offload


class Source:
    """The rows that a layer reads: the graph's features, or what the layer before made."""

    def __init__(self, offload: "Offload", rows: Tensor | None) -> None:
        self.offload, self.made = offload, rows
        held = offload.x if rows is None else rows
        self.near = self.far = None
        if isinstance(held, Tensor) and offload.courier is not None:
            self.near = offload.bring(held) if offload.small(held.nbytes) else None
            self.far = held if offload.direct else None

    def rows(self, chunk: Chunk, block: Block) -> Any:
        """Return those of a chunk's sources, on the device."""
        offload = self.offload
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
    """Rows that are made chunk by chunk, in the host's memory; copied there beside the next chunk's work."""

    def __init__(self, offload: "Offload") -> None:
        self.offload = offload
        self.held: Tensor | None = None
        self.stream = None if offload.courier is None else new_stream(offload.device)

    def put(self, chunk: Chunk, rows: Tensor) -> None:
        """Take the rows of a chunk's destinations."""
        if self.held is None:
            shape = (self.offload.graph.num_nodes, *rows.shape[1:])
            self.held = self.offload.host(shape, rows.dtype)
        self.offload.moved += rows.nbytes
        if self.stream is None:
            self.held[chunk.rows] = rows
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.offload.device))
        with torch.cuda.stream(self.stream):
            self.held[chunk.rows].copy_(rows, non_blocking=True)
        rows.record_stream(self.stream)

    def finish(self) -> Tensor:
        """Return all rows, once they are there."""
        if self.stream is not None:
            self.stream.synchronize()
        assert self.held is not None, "a graph has nodes"
        return self.held


class Total:
    """The gradient of the rows that a layer reads: summed on the device where small, else on the host."""

    def __init__(self, offload: "Offload", rows: Tensor, before: Tensor | None) -> None:
        self.offload, self.before = offload, before
        near = offload.courier is not None and offload.small(rows.nbytes)
        if near:
            self.total = torch.zeros(rows.shape, dtype=rows.dtype, device=offload.device)
        else:
            self.total = offload.host(rows.shape, rows.dtype).zero_()
        self.near = near

    def add(self, chunk: Chunk, block: Block, gradient: Tensor) -> None:
        """Add that of a chunk's sources; each is there once, so that sums do not depend on luck."""
        if self.near:
            self.total.index_add_(0, block.src_ids, gradient)
            return
        if self.offload.direct:
            from weft.kernels.triton.gather import add_far  # where there is a GPU

            self.offload.moved += 2 * gradient.nbytes
            add_far(self.total, block.src_ids, gradient)
            return
        self.offload.moved += gradient.nbytes
        self.total[chunk.sources] = self.total[chunk.sources] + gradient.to(self.total.device)

    def finish(self) -> Tensor:
        """Return the sum, in the host's memory."""
        total = self.total
        if self.offload.direct:
            torch.cuda.current_stream(self.offload.device).synchronize()
        if self.near:
            self.offload.moved += total.nbytes
            total = self.offload.host(total.shape, total.dtype).copy_(total)
        return total if self.before is None else total.add_(self.before)
