"""A compiled message run on a block's tensors."""

from collections.abc import Callable, Sequence

from torch import Tensor

from weft.compiler.compile import Compiled, Reduction
from weft.compiler.programs.program import Edges
from weft.compiler.unread import as_read

Reduced = tuple[Tensor, Tensor | None]
Reduce = Callable[[Reduction, Sequence[Tensor]], Reduced]
"""How a reduction is done, of what was made before: rows and what stands beside them, see `reduce_edges`."""


def execute(made: Compiled, inputs: Sequence[Tensor], edges: Edges, reduce: Reduce) -> Reduced:
    """Return the reduced messages and what stands beside them, where there is one reduction."""
    given = [*inputs]
    for each in made.inner:
        given += _rows(each, given, edges, reduce)
    if made.after is None:
        return _reductions(made, given, edges, reduce)[0][0]
    (out,) = _rows(made, given, edges, reduce)
    return out.to(made.dtype), None  # where types meet, as under autocast, that of the messages


def read_by_pairs(made: Compiled, inputs: Sequence[Tensor], edges: Edges) -> tuple[Tensor, list[Tensor]]:
    """Return the relation of each edge and the values of sources that (relation, source) pairs read."""
    first = made.by_relation
    assert first is not None
    sizes = edges.num_other, edges.num_rows, edges.num_edges
    kind, *values = first.before(*sizes, *as_read(first.unread, inputs, edges))
    return kind, values


def _rows(made: Compiled, inputs: Sequence[Tensor], edges: Edges, reduce: Reduce) -> list[Tensor]:
    """Return all that a graph returns, a row per destination."""
    results, values = _reductions(made, inputs, edges, reduce)
    rows = [out for out, _ in results]
    if made.after is None:
        return rows
    sizes = edges.num_other, edges.num_rows, edges.num_edges
    return made.after(*sizes, *rows, *(values[place] for place in made.after_inputs))  # type: ignore[no-any-return]


def _reductions(
    made: Compiled, inputs: Sequence[Tensor], edges: Edges, reduce: Reduce
) -> tuple[list[Reduced], Sequence[Tensor]]:
    """Return the results of all reductions, and what was made before them."""
    sizes = edges.num_other, edges.num_rows, edges.num_edges
    counts = [] if made.counts is None else [edges.indptr.diff().to(made.counts)]
    values = made.before(*sizes, *as_read(made.unread, inputs, edges), *counts)
    return [reduce(each, values) for each in made.reductions], values


def shaped(reduction: Reduction, out: Tensor, num_rows: int) -> Tensor:
    """Return the result of a program in the shape that the message has."""
    return out.reshape(num_rows * reduction.fold, *reduction.shape)
