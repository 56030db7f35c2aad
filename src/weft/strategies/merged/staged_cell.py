"""The blocks of A that a rank of a staged multiplication has, and how those of others come to it.

Nodes are cut into as many row blocks as there are stages; rows of a block have one order, that of its parts.

    1-D   P blocks, one per rank; rank i has the row A[i, ·], one block per stage
    2-D   √P blocks on a grid of √P x √P ranks; rank (i, j) has A[i, j], and rows i are shared out in its row

A partition for a grid has the edges of cell (i, j) come from nodes of *column* j. The edges of a row of the
grid are all there: they change places within it, once, as integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.graph.parts.shard import Shard
from weft.graph.topology import index_dtype

_PLAN = Label("plan")


@dataclass(frozen=True)
class Matrix:
    """A block of A by destination, and by source once that is asked for."""

    indptr: Tensor
    indices: Tensor
    """Places of sources in their row block."""
    num_src: int
    edges: Tensor | None = None
    """Places of its edges among those of the rank; None: these are all."""

    @cached_property
    def transposed(self) -> "Matrix":
        """The same edges by source."""
        turned = kernels.transpose_csr(self.indptr, self.indices, self.num_src)
        order = turned.edges.long()
        edges = order if self.edges is None else self.edges[order]
        return Matrix(turned.indptr, turned.indices, len(self.indptr) - 1, edges)

    def weights(self, weight: Tensor | None) -> Tensor | None:
        """Return the weights of its edges, of those of the rank."""
        return weight if weight is None or self.edges is None else weight[self.edges]


@dataclass(frozen=True)
class Cell:
    """What a rank holds of A, its edges in an order of their own: by destination, then by id."""

    row_counts: list[int]
    """Rows of each rank of the row of the grid, which share a row block."""
    block_sizes: list[int]
    """Rows of every row block."""
    indptr: Tensor
    """Over the rows of the own row block."""
    order: Tensor
    """The id of each edge."""
    data: dict[str, Tensor]
    held: dict[int, Matrix]
    """By stage."""
    num_edges: list[int]
    """Edges of each rank of the row."""


def make_cell(shard: Shard, column: Group, row: Group) -> Cell:
    """Return what this rank holds, from its shard of a grid; all ranks call it together."""
    own = shard.node_ids
    row_counts, row_ids = _gathered(own, row)
    by_rank, column_ids = _gathered(own, column)
    block_sizes = _sizes(len(row_ids), column)
    src, dst, ids, data = _edges(shard)
    stage = torch.repeat_interleave(torch.tensor(by_rank))[_places(column_ids, src)]
    if row.size > 1:
        src, dst, ids, *moved = _exchanged(stage, [src, dst, ids, *data.values()], row)
        data = dict(zip(data, moved))
        wanted = _block_ids(row_ids, block_sizes, column, row.rank)
        place, stage = _places(wanted, src), torch.full_like(src, row.rank)
    else:
        starts = torch.tensor([0, *by_rank]).cumsum(0)
        place = _places(column_ids, src) - starts[stage]
    target = _places(row_ids, dst)
    order = torch.argsort(ids)  # then a stable sort by destination leaves ids ascending
    order = order[torch.argsort(target[order], stable=True)]
    target, place, stage = target[order], place[order], stage[order]
    held = {
        number: _matrix(stage == number, target, place, len(row_ids), block_sizes[number])
        for number in ([row.rank] if row.size > 1 else range(column.size))
    }
    return Cell(
        row_counts,
        block_sizes,
        _pointers(target, len(row_ids)),
        ids[order],
        {name: value[order] for name, value in data.items()},
        held,
        _sizes(len(ids), row),
    )


def _edges(shard: Shard) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Return the ends of each edge as global ids, its own id, and its data."""
    rows = torch.repeat_interleave(shard.indptr.diff())
    return shard.row_ids[shard.indices.long()], shard.row_ids[rows], shard.edge_ids.long(), shard.edge_data


def _matrix(chosen: Tensor, target: Tensor, place: Tensor, num_dst: int, num_src: int) -> Matrix:
    edges = chosen.nonzero().flatten()
    indices = place[edges].to(index_dtype(max(num_src, num_dst)))
    every = len(edges) == len(chosen)
    return Matrix(_pointers(target[edges], num_dst), indices, num_src, None if every else edges)


def _pointers(rows: Tensor, count: int) -> Tensor:
    counts = torch.bincount(rows, minlength=count)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _gathered(ids: Tensor, group: Group) -> tuple[list[int], Tensor]:
    """Return how many ids each member has, and all of them."""
    counts = _sizes(len(ids), group)
    return counts, group.all_gather(ids, counts, label=_PLAN).wait()


def _sizes(size: int, group: Group) -> list[int]:
    sizes: list[int] = group.all_gather(torch.tensor([size]), label=_PLAN).wait().tolist()
    return sizes


def _exchanged(target: Tensor, columns: Sequence[Tensor], group: Group) -> list[Tensor]:
    """Return the rows that members send each other, row i of every column to member target[i]."""
    order = torch.argsort(target, stable=True)
    send = torch.bincount(target, minlength=group.size)
    ones = [1] * group.size
    receive = group.all_to_all(send, ones, ones, label=_PLAN).wait().tolist()
    return [group.all_to_all(each[order], send.tolist(), receive, label=_PLAN).wait() for each in columns]


def _block_ids(own: Tensor, sizes: Sequence[int], column: Group, block: int) -> Tensor:
    """Return the ids of a row block, which the rank of the column in that row of the grid has."""
    ids = own.clone() if column.rank == block else own.new_empty(sizes[block])
    return column.broadcast(ids, block, label=_PLAN) if len(ids) else ids


def _places(among: Tensor, ids: Tensor) -> Tensor:
    """Return where each id stands among those held; it is one of them."""
    ordered, order = torch.sort(among)
    return order[torch.searchsorted(ordered, ids)]
