"""How rows are written for the wire: as they are, or as codes of few bits with a step a row.

Both ends know the bits of a link, so a message is coded rows and nothing else. Rows whose code would be no
smaller (say one score per head) travel as they are. Codes are rounded by the draw of (clock, call, direction,
node, lane): the same bits for every reader of a row, others in every step, and right in the mean.
"""

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.pending import Pending
from weft.comm.plan import placed
from weft.kernels.quantise import coded_bytes, dequantise, quantise

EXACT: Final = 32


class Codec:
    """Sends rows among the members of a group with so many bits a value: one number, or one a member."""

    def __init__(self, clock: Tensor, bits: int = EXACT) -> None:
        self.clock = clock
        self.bits = bits
        self.links: Tensor | None = None
        """[size, size] bits of what a member (row) sends to another (column), where they differ."""

    def move(
        self,
        group: Group,
        x: Tensor,
        *,
        rows: Tensor | None,
        ids: Tensor,
        counts: tuple[Sequence[int], Sequence[int]],
        places: Tensor | None = None,
        background: bool = False,
        label: Label,
    ) -> Pending:
        """Send the rows of x that `rows` names, by member, and get those of all members as their owner had.

        `counts` are rows to and from each member, `ids` the nodes that sent rows belong to. `rows` None: x as
        it is. `places` says which row of the result each arriving one is, None: in the order of arrival.
        """
        send, receive = (list(each) for each in counts)
        width = math.prod(x.shape[1:])
        if not x.is_floating_point() or all(_row_bytes(x.dtype, width, bits) is None for bits in self._every):
            values = x.detach() if rows is None else x.detach()[rows]
            moved = group.all_to_all(values, send, receive, background=background, label=label)
            return moved.then(lambda received: placed(received, places))
        sent_bits, received_bits = self._link_bits(group, "sent"), self._link_bits(group, "received")
        sizes, arriving = (
            [_row_bytes(x.dtype, width, bits) for bits in each] for each in (sent_bits, received_bits)
        )
        flat = x.detach().flatten(1)
        plain = width * x.element_size()
        message = self._write(flat, rows, ids, send, sent_bits, label)
        moved = group.all_to_all(
            message,
            [count * (size or plain) for count, size in zip(send, sizes)],
            [count * (size or plain) for count, size in zip(receive, arriving)],
            background=background,
            label=label,
        )
        shape, dtype = x.shape[1:], x.dtype

        def read(received: Tensor) -> Tensor:
            values = self._read(received, receive, received_bits, places, width, dtype)
            return values.reshape(len(values), *shape)

        return moved.then(read)

    # Underneath

    @property
    def _every(self) -> set[int]:
        """The bits of all links: members must agree on how they send, whatever their own links are."""
        return {self.bits} if self.links is None else set(self.links.flatten().tolist())

    def _link_bits(self, group: Group, side: str) -> list[int]:
        if self.links is None:
            return [self.bits] * group.size
        of_links = self.links[group.rank] if side == "sent" else self.links[:, group.rank]
        bits: list[int] = of_links.tolist()
        return bits

    def _write(
        self, x: Tensor, rows: Tensor | None, ids: Tensor, counts: list[int], bits: list[int], label: Label
    ) -> Tensor:
        # Forward and backward of one call draw apart: the rounding of a row says nothing of that of its
        # gradient.
        layer = 2 * label.slot + (label.direction == "backward")
        if len(set(bits)) == 1 and _row_bytes(x.dtype, x.shape[1], bits[0]) is not None:
            return quantise(x, ids, bits[0], clock=self.clock, layer=layer, rows=rows).flatten()
        rows = torch.arange(len(x), device=x.device) if rows is None else rows
        parts = []
        for member_rows, nodes, link in zip(torch.split(rows, counts), torch.split(ids, counts), bits):
            if _row_bytes(x.dtype, x.shape[1], link) is None:
                parts.append(x[member_rows].contiguous().view(torch.uint8).flatten())
            else:
                coded = quantise(x, nodes, link, clock=self.clock, layer=layer, rows=member_rows)
                parts.append(coded.flatten())
        return torch.cat(parts)

    def _read(
        self,
        received: Tensor,
        counts: list[int],
        bits: list[int],
        places: Tensor | None,
        width: int,
        dtype: torch.dtype,
    ) -> Tensor:
        if len(set(bits)) == 1 and _row_bytes(dtype, width, bits[0]) is not None:
            coded = received.reshape(sum(counts), coded_bytes(width, bits[0]))
            return dequantise(coded, width, bits[0], dtype, places=places)
        plain = width * dtype.itemsize
        sizes = [_row_bytes(dtype, width, link) for link in bits]
        parts = []
        blocks = torch.split(received, [count * (size or plain) for count, size in zip(counts, sizes)])
        for block, count, size, link in zip(blocks, counts, sizes, bits):
            if size is None:
                # Cloned: a block may begin at any byte of the message, and a view of floats must be aligned.
                parts.append(block.clone().view(dtype).reshape(count, width))
            else:
                parts.append(dequantise(block.reshape(count, size), width, link, dtype))
        return placed(torch.cat(parts), places)


def _row_bytes(dtype: torch.dtype, width: int, bits: int) -> int | None:
    """Return the bytes of a coded row; None where rows travel as they are."""
    if bits == EXACT or coded_bytes(width, bits) >= width * dtype.itemsize:
        return None
    return coded_bytes(width, bits)
