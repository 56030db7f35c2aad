"""Messages that reduce their edges themselves, taken apart: a message, its reduction and what is behind it.

What reduces messages of rows that others hold takes a message and the name of a reduction. A message of PyG's
scatters its values by the number of each edge's row; where that is one reduction, or several sums, it is
given in those terms.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import Tensor, fx

from weft.compiler.annotate import check, residency
from weft.compiler.compile import remembered
from weft.compiler.graphs import item_shape, spread, width
from weft.compiler.passes import rewrite
from weft.compiler.ranks.crossing import MessageGraph, Rest, Sums, Travellers
from weft.compiler.spent import SPENT
from weft.compiler.stages import Stage, stage
from weft.compiler.tracing.axes import rows_first
from weft.compiler.tracing.captures import Captures, NotCompiled, explained
from weft.compiler.tracing.scatters import take_rows
from weft.compiler.tracing.trace import Form, Role, trace

_NOWHERE = Travellers((), (), (), learns=False)


@dataclass(frozen=True)
class Opened:
    """A message, how it is reduced, and what is made of the result."""

    captured: tuple[int, ...]
    executed: frozenset[CodeType]
    reduce: str
    rest: Rest
    """Takes the rows of `places`, then what `shared` gives."""
    places: dict[Role, tuple[int, ...]]
    """By what they are rows of, the message's tensors among those that were given."""
    shared: Stage
    """Of the tensors of a call and what the message captures, what all edges share."""
    behind: Sums
    dtype: torch.dtype

    def inputs(self, given: Sequence[Tensor], found: Captures) -> list[Tensor]:
        """Return what the stages take."""
        return [*given, *(found.tensors[place] for place in self.captured)]


def opened(
    message: Callable[..., Any], roles: Sequence[Role], given: Sequence[Tensor], scratch: frozenset[str]
) -> tuple[Opened, Captures] | str:
    """Return a message that reduces its edges itself taken apart and what it captures, or why it is not."""

    def make(forms: Sequence[Form], known: frozenset[CodeType]) -> Opened:
        with SPENT.on():
            return _opened(message, forms, known, scratch)

    return remembered(message, roles, given, ("opened", scratch), make)


def _opened(
    message: Callable[..., Any], forms: Sequence[Form], known: frozenset[CodeType], scratch: frozenset[str]
) -> Opened:
    traced = trace(message, forms, known, scratch)
    with explained("rewriting"):
        rows_first(traced.graph)
        take_rows(traced.graph)
        check(traced.graph)
        rewrite(traced.graph)
    graph = MessageGraph(traced.graph, _NOWHERE)
    kind = _kind(graph)
    made = _reduced_values(graph)
    ends: dict[Role, list[fx.Node]] = {
        role: [node for node in graph.inputs if residency(node) == role] for role in ("source", "destination")
    }
    left = graph.rest([*ends["source"], *ends["destination"]], made)
    order = [*ends["source"], *ends["destination"], *left.edge]
    if not order:
        raise NotCompiled("its messages depend on no row")
    joined = [width(each) for each in made] if len(graph.reductions) > 1 else []
    rest = Rest(stage([*order, *left.shared], made), joined)
    places: dict[Role, tuple[int, ...]] = {
        role: tuple(graph.inputs.index(each) for each in nodes)
        for role, nodes in (*ends.items(), ("edge", left.edge))
    }
    shared = stage(graph.inputs, left.shared)
    known_now = traced.captured, traced.executed
    return Opened(*known_now, kind, rest, places, shared, graph.sums(), traced.dtype)


def _kind(graph: MessageGraph) -> str:
    """Return the reduction of a message, the same for all that it has."""
    kinds = [str(each.args[0]) for each in graph.reductions]
    if not kinds:
        raise NotCompiled("it reduces no edges")
    if any(node.target is spread for node in graph.graph.nodes):
        raise NotCompiled("edges read reduced rows again")
    if len(kinds) > 1 and set(kinds) != {"sum"}:
        raise NotCompiled(f"it has several reductions ({', '.join(kinds)})")
    if any(tuple(each.meta["val"].shape[1:]) != item_shape(each) for each in graph.reductions):
        raise NotCompiled("several of its rows go to a row")
    return kinds[0]


def _reduced_values(graph: MessageGraph) -> list[Any]:
    """Return what is reduced, of a softmax the score and the value."""
    return [each for node in graph.reductions for each in node.args[1:]]


__all__ = ["Opened", "opened"]
