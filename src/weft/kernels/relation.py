"""A row times the matrix of its relation: rows are sorted by relation, and each relation is one product.

No row has a matrix of its own, which would be as many numbers as rows × inputs × outputs.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.kernels.registration import define, eager
from weft.kernels.segment import segment_matmul_op, segment_outer_op


def relation_matmul(kind: Tensor, rows: Tensor, table: Tensor) -> Tensor:
    """Return rows[i] @ table[kind[i]] for all i, [M, N], of kind [M], rows [M, K] and table [R, K, N].

    As in `table[kind]`, a negative number counts from the end and one outside of the table is an IndexError.
    """
    out: Tensor = eager(relation_matmul_op, kind, rows, table)
    return out


class _Sorted(NamedTuple):
    """Rows by relation: their order, None where they lie so, and the rows before each relation."""

    order: Tensor | None
    offsets: Tensor


def check_relations(kind: Tensor, relations: int) -> None:
    """Raise what torch does for a number outside of a table."""
    if kind.numel():
        low, high = (int(each) for each in kind.aminmax())
        if low < -relations or high >= relations:
            wrong = low if low < -relations else high
            raise IndexError(f"index {wrong} is out of bounds for dimension 0 with size {relations}")


def _by_relation(kind: Tensor, relations: int) -> _Sorted:
    check_relations(kind, relations)
    places, order = torch.where(kind < 0, kind + relations, kind), None
    if not bool((places[1:] >= places[:-1]).all()):
        places, order = torch.sort(places, stable=True)
    bounds = torch.arange(relations + 1, dtype=places.dtype, device=places.device)
    return _Sorted(order, torch.searchsorted(places.contiguous(), bounds).cpu())


def _matmul(kind: Tensor, rows: Tensor, table: Tensor) -> Tensor:
    order, offsets = _by_relation(kind, table.shape[0])
    if order is None:
        return eager(segment_matmul_op, rows, offsets, table)  # type: ignore[no-any-return]
    made = eager(segment_matmul_op, rows[order], offsets, table)
    out = torch.empty_like(made)
    out[order] = made
    return out


def _outer(kind: Tensor, rows: Tensor, grad: Tensor, relations: int) -> Tensor:
    order, offsets = _by_relation(kind, relations)
    given = (rows, grad) if order is None else (rows[order], grad[order])
    return eager(segment_outer_op, *given, offsets)  # type: ignore[no-any-return]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    kind, rows, table = ctx.saved_tensors
    of_rows = of_table = None
    if ctx.needs_input_grad[1]:
        of_rows = eager(relation_matmul_op, kind, grad, table.transpose(1, 2))
    if ctx.needs_input_grad[2]:
        of_table = eager(relation_outer_op, kind, rows, grad, table.shape[0])
    return None, of_rows, of_table


def _outer_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    kind, rows, other = ctx.saved_tensors
    of_rows = of_other = None
    if ctx.needs_input_grad[1]:
        of_rows = eager(relation_matmul_op, kind, other, grad.transpose(1, 2))
    if ctx.needs_input_grad[2]:
        of_other = eager(relation_matmul_op, kind, rows, grad)
    return None, of_rows, of_other, None


relation_matmul_op: Any = define(
    "relation_matmul(Tensor kind, Tensor rows, Tensor table) -> Tensor",
    reference=_matmul,
    fake=lambda kind, rows, table: rows.new_empty((rows.shape[0], table.shape[2])),
    setup=_setup,
    backward=_matmul_backward,
)

relation_outer_op: Any = define(
    "relation_outer(Tensor kind, Tensor rows, Tensor grad, SymInt relations) -> Tensor",
    reference=_outer,
    fake=lambda kind, rows, grad, relations: rows.new_empty((relations, rows.shape[1], grad.shape[1])),
    setup=_setup,
    backward=_outer_backward,
)
