"""A block whose sums are made stage by stage, so that no rank ever has more than one row block of others.

    1-D   stage s: H[s] comes to all ranks;                          Z[i] += A[i, s] H[s]
    2-D   stage s: A[i, s] comes along row i, H[s, k] along column k; Z[i, k] += A[i, s] H[s, k]

In backward a block of A comes once more, by source; dH[s, k] is the sum over the column of A[i, s]ᵀ G[i, k],
made at its owner, one part after the other, in rank order. A is directed: it is nowhere taken for its own Aᵀ.

Layers hold whole rows, n/P a rank, as everywhere: so weights are applied, rows normalised and outputs
compared without any traffic. In 2-D the ranks of a row turn their rows, n/P x F, into columns, n/√P x F/√P,
before the stages, and back after them.
"""

import math
from itertools import pairwise
from typing import Any, Literal, NoReturn, cast

import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import InputError
from weft.graph.message.block import Block, Rows
from weft.graph.message.reduction import Aggregation, Propagation, times_rows
from weft.graph.parts.shard import Shard
from weft.graph.sparse import Features, SparseFeatures
from weft.kernels.second import here_only
from weft.stores.sliced import slice_bounds
from weft.strategies.halo.shard_block import ShardBlock
from weft.strategies.merged.staged_cell import Matrix, make_cell
from weft.strategies.sequential.programs import planned


class StagedBlock(ShardBlock):
    """Sums and means over neighbours, of rows that the ranks of `column` and `row` hold together."""

    whole_rows = False

    def __init__(self, shard: Shard, column: Group, row: Group, *, clock: Tensor | None = None) -> None:
        self.cell = cell = make_cell(shard, column, row)
        super().__init__(
            shard,
            cell.indptr,
            torch.zeros(len(cell.order), dtype=torch.int32),  # edges are those of `cell.held`
            num_src=len(shard.node_ids),
            src_ids=shard.node_ids,
            dst_ids=shard.node_ids,
            edge_ids=cell.order,
            edge_data=cell.data,
            clock=clock,
        )
        self.num_dst = len(shard.node_ids)
        self.column, self.row = column, row
        self.evaluating = False
        """Whether traffic is that of an evaluation."""

    # What layers do with it

    def src(self, h: Any) -> Any:
        """Refuse: rows of others come and go stage by stage."""
        refuse("the rows of neighbours themselves")

    def attend(self, *args: Any, **options: Any) -> Tensor:
        """Refuse: a softmax over neighbours is no sum."""
        refuse("attention")

    def by_relation(self) -> Any:
        """Refuse: edges are of one kind here."""
        refuse("edges by relation")

    def edge_in_degree(self, end: Rows = "dst", relation: int | None = None) -> Tensor:
        """Refuse: both ends of an edge may be rows of others."""
        refuse("degrees by edge")

    def aggregates_sparse(self, h: SparseFeatures) -> bool:
        """Return False: what travels is dense."""
        return False

    def only_relation(self, relation: int) -> Block:
        refuse("the edges of one relation")

    def _propagate(self, how: Propagation) -> Tensor:
        """Return the reduced messages where they are sums of rows, each times a number of its edge or not.

        What rows are made of before, and what is made of the sums, may be anything; numbers are not learned.
        """
        plan = planned(how)
        weighted = None if plan is None else plan.weighted
        if plan is None or weighted is None:
            refuse("a function of an edge that is no sum of rows")
        (rows,) = plan.sent(self.num_dst)
        weight = plan.loads(self)[0].flatten() if weighted else None
        out = plan.finished(self, cast(Tensor, self._aggregate(rows, Aggregation("sum", weight))))
        return times_rows(out, self.mean_scale(out.dtype)) if how.reduce == "mean" else out

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        if not how.adds:
            refuse(f"the {how.reduce} of neighbours")
        if how.relation is not None:
            refuse("the edges of one relation")
        if how.weight is not None and (how.weight.requires_grad or how.weight.dim() > 1):
            refuse("weights of edges that are learned, or several an edge")

        def compute() -> Tensor:
            dense = h if isinstance(h, Tensor) else h.to_dense()
            rows = times_rows(dense, how.src_scale)
            flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
            summed: Tensor = _Sum.apply(flat, self, how.weight)  # type: ignore[no-untyped-call]
            return times_rows(summed.reshape(rows.shape), self.scale_of_rows(how, rows.dtype))

        return self._memory.recall(how.question, (h, *how.tensors), compute)

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        return self.shard.degree(direction, relation, weighted)[: self.num_dst]

    # The multiplication

    def multiply(self, h: Tensor, weight: Tensor | None) -> Tensor:
        """Return A h for own rows, [n, F]."""
        own = self._to_columns(h, "forward")
        total = own.new_zeros(own.shape)
        for stage, size in enumerate(self.cell.block_sizes):
            matrix, values = self._matrix(stage, weight, "forward")
            rows = own if stage == self.column.rank else own.new_empty(size, own.shape[1])
            if rows.numel() and self.column.size > 1:
                self.column.broadcast(rows.contiguous(), stage, label=self._label("stage", "forward"))
            total += _product(matrix, rows, values)
        return self._to_rows(total, h.shape[1], "forward")

    def multiply_transposed(self, grad: Tensor, weight: Tensor | None) -> Tensor:
        """Return Aᵀ grad for own rows, [n, F]."""
        own = self._to_columns(grad, "backward")
        found = own
        for stage in range(len(self.cell.block_sizes)):
            matrix, values = self._matrix(stage, weight, "backward")
            part = _product(matrix, own, values)
            summed = self._sum_at(stage, part)
            found = found if summed is None else summed
        return self._to_rows(found, grad.shape[1], "backward")

    def _matrix(self, stage: int, weight: Tensor | None, direction: str) -> tuple[Matrix, Tensor | None]:
        """Return the own row's block of A of a stage, by source in backward, and its weights."""
        held = self.cell.held.get(stage)
        if held is not None:
            held = held if direction == "forward" else held.transposed
            weight = held.weights(weight)
        if self.row.size == 1:
            assert held is not None, "in 1-D a rank has its row of A"
            return held, weight
        own, other = sum(self.cell.row_counts), self.cell.block_sizes[stage]
        num_dst, num_src = (own, other) if direction == "forward" else (other, own)
        return self._brought(stage, held, weight, num_dst, num_src, direction)

    def _brought(
        self,
        stage: int,
        held: Matrix | None,
        weight: Tensor | None,
        num_dst: int,
        num_src: int,
        direction: str,
    ) -> tuple[Matrix, Tensor | None]:
        """Have a block come along the row: integers as integers, weights apart."""
        edges, label = self.cell.num_edges[stage], self._label("matrix", direction)
        counts = torch.empty(num_dst, dtype=torch.int32)
        indices = torch.empty(edges, dtype=torch.int32)
        if held is not None:
            counts, indices = held.indptr.diff().int(), held.indices.int()
        if num_dst:
            self.row.broadcast(counts, stage, label=label)
        if edges:
            self.row.broadcast(indices, stage, label=label)
        values = weight
        if weight is not None and edges:
            values = weight.contiguous() if held is not None else weight.new_empty(edges)
            self.row.broadcast(values, stage, label=label)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.long().cumsum(0)])
        return Matrix(indptr, indices, num_src), values

    def _sum_at(self, root: int, part: Tensor) -> Tensor | None:
        """Return the sum over the column at its owner, in rank order; None at the others, who sent theirs."""
        column, label = self.column, self._label("stage", "backward")
        if column.rank != root:
            if part.numel():
                column.send(part, root, label=label)
            return None
        total = torch.zeros_like(part)
        for member in range(column.size):
            other = member != root and part.numel()
            total += column.receive(torch.empty_like(part), member, label=label) if other else part
        return total

    def _to_columns(self, rows: Tensor, direction: str) -> Tensor:
        """Return own columns of the rows of the whole row block, from all columns of own rows."""
        if self.row.size == 1:
            return rows
        bounds = slice_bounds(rows.shape[1], self.row.size)
        width = bounds[self.row.rank + 1] - bounds[self.row.rank]
        pieces = [rows[:, start:stop].flatten() for start, stop in pairwise(bounds)]
        receive = [count * width for count in self.cell.row_counts]
        moved = self._turn(pieces, receive, direction)
        return moved.reshape(sum(self.cell.row_counts), width)

    def _to_rows(self, columns: Tensor, width: int, direction: str) -> Tensor:
        """Undo `_to_columns` of rows that are so wide."""
        if self.row.size == 1:
            return columns
        pieces = [each.flatten() for each in torch.split(columns, self.cell.row_counts)]
        widths = [stop - start for start, stop in pairwise(slice_bounds(width, self.row.size))]
        receive = [self.num_dst * each for each in widths]
        parts = torch.split(self._turn(pieces, receive, direction), receive)
        return torch.cat([part.reshape(self.num_dst, each) for part, each in zip(parts, widths)], dim=1)

    def _turn(self, pieces: list[Tensor], receive: list[int], direction: str) -> Tensor:
        sizes = [len(piece) for piece in pieces]
        return self.row.all_to_all(
            torch.cat(pieces), sizes, receive, label=self._label("turn", direction)
        ).wait()

    def _label(self, kind: str, direction: str) -> Label:
        return Label("evaluate" if self.evaluating else kind, direction=direction)


class _Sum(torch.autograd.Function):
    """A h, of rows that several ranks hold."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, block: StagedBlock, weight: Tensor | None) -> Tensor:
        ctx.block, ctx.weight = block, weight
        return block.multiply(h, weight)

    @staticmethod
    @here_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.block.multiply_transposed(grads[0].contiguous(), ctx.weight), None, None


def _product(matrix: Matrix, rows: Tensor, weight: Tensor | None) -> Tensor:
    if not rows.numel() or not len(matrix.indices):
        return rows.new_zeros(len(matrix.indptr) - 1, rows.shape[1])
    return kernels.spmm(matrix.indptr, matrix.indices, rows, weight, "sum")


def refuse(what: str) -> NoReturn:
    """Raise: stages give sums and means alone."""
    raise InputError(
        f"strategy 'staged' gives layers sums and means over neighbours, the model needs {what}; use 'grid' "
        "or 'halo', or a layer such as gcn, sage (mean), gin, sgc or appnp"
    )
