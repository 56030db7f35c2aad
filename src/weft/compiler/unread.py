"""Rows of nodes that no edge reads, where something is made of nodes before edges read it.

What is made of such a row has the gradient 0, and 0 times a slope or a value that is not finite is not 0, so
one node without edges and with missing features would spoil the gradients of all weights. A message that
runs on edges never meets that row; one that is hoisted takes another in its place.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, fx

from weft.compiler.annotate import movement, residency
from weft.compiler.graphs import name_of
from weft.compiler.programs.program import Edges
from weft.compiler.tracing.trace import Role

Twins = tuple[tuple[int, int], ...]
"""Of the tensors that a message is given, (destination's, source's) by number where both are one tensor."""
Unread = tuple[tuple[int, Literal["source", "destination", "both"]], ...]
"""Inputs by number, and the end whose edges leave rows of them unread; both: those that neither end reads."""

_ENDS = ("source", "destination")
_GENTLE = frozenset(
    (
        *("add", "sub", "rsub", "neg", "mul", "sum", "mean", "abs", "maximum", "minimum", "clamp"),
        *("relu", "leaky_relu", "elu", "sigmoid", "tanh", "gelu", "silu", "softplus", "where"),
    )
)
"""Operators of features that have a finite slope wherever their arguments are finite."""


def twins_of(roles: Sequence[Role], given: Sequence[Tensor]) -> Twins:
    """Return which tensors of destinations are one with a tensor of sources, by number."""
    sources = [place for place, role in enumerate(roles) if role == "source"]
    pairs = ((i, j) for i, role in enumerate(roles) if role == "destination" for j in sources)
    return tuple((i, j) for i, j in pairs if given[i] is given[j])


def unread_inputs(graph: fx.Graph, inputs: Sequence[fx.Node], twins: Twins = ()) -> tuple[Unread, Twins]:
    """Return the inputs to be replaced where no edge reads them, and which twins stay one tensor.

    The row of a node may have no finite slope (a root of 0) and be read at the other end: then each end has
    rows of its own to replace. Where all slopes are finite it is enough to replace what neither end reads: a
    value that is not finite and is read has spoiled the result already.
    """
    made = [node for node in graph.nodes if node.op != "placeholder" and residency(node) in _ENDS]
    replaced = {each for node in made for each in node.all_input_nodes}
    steep = _before([node for node in made if not _is_gentle(node)])
    one = tuple((i, j) for i, j in twins if not {inputs[i], inputs[j]} & steep)
    both = {place for pair in one for place in pair if {inputs[each] for each in pair} & replaced}
    found: list[Any] = [
        (place, "both" if place in both else residency(node))
        for place, node in enumerate(inputs)
        if node.name != "count" and (place in both or node in replaced) and residency(node) in _ENDS
    ]
    return tuple(found), one


def _is_gentle(node: fx.Node) -> bool:
    return movement(node) in ("shape", "dense") or name_of(node) in _GENTLE


def _before(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Return nodes and all that they are made of."""
    found, open_ones = set(nodes), list(nodes)
    while open_ones:
        new = [each for each in open_ones.pop().all_input_nodes if each not in found]
        found.update(new)
        open_ones += new
    return found


def as_read(unread: Unread, inputs: Sequence[Tensor], edges: Edges) -> list[Tensor]:
    """Return the inputs with a row that an edge reads in the place of those that none does."""
    taken = [*inputs]
    for place, end in unread if torch.is_grad_enabled() else ():
        rows, mask = taken[place], _mask(edges, end)
        if mask is not None and rows.is_floating_point() and len(rows) == len(mask):
            taken[place] = torch.where(mask.view(-1, *[1] * (rows.dim() - 1)), _read_row(rows, mask), rows)
    return taken


def _mask(edges: Edges, end: str) -> Tensor | None:
    if end == "both":
        return edges.unread_by_both
    return edges.unread_other if end == "source" else edges.unread_rows


def _read_row(rows: Tensor, unread: Tensor) -> Tensor:
    """Return a row that an edge reads, ones where none is read; found without waiting for the device."""
    if not len(rows):
        return rows.new_ones(())
    read = rows.detach().index_select(0, unread.to(torch.uint8).argmin().view(1))
    return torch.where(unread.all(), 1, read)
