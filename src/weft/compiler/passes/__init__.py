"""The rewritings of a message's graph, in order; each can be left out."""

from collections.abc import Callable, Collection
from typing import Any

from torch import fx

from weft.compiler.graphs import value
from weft.compiler.passes.attend import attend
from weft.compiler.passes.behind import behind
from weft.compiler.passes.lookups import lookups
from weft.compiler.passes.matrices import matrices
from weft.compiler.passes.normal import normal
from weft.compiler.passes.parts import parts
from weft.compiler.passes.scores import scores
from weft.compiler.passes.split import split
from weft.compiler.passes.terms import terms
from weft.compiler.tracing.captures import NotCompiled

PASSES: dict[str, Callable[[fx.Graph], None]] = {
    "normal": normal,
    "lookups": lookups,
    "matrices": matrices,
    "attend": attend,
    "parts": parts,
    "split": split,
    "behind": behind,
    "terms": terms,
    "scores": scores,
}


def rewrite(graph: fx.Graph, *, without: Collection[str] = ()) -> None:
    """Rewrite a graph by all passes but some, or raise `NotCompiled` where it would give another shape."""
    wanted = _shapes(graph)
    for name, each in PASSES.items():
        if name not in without:
            each(graph)
    if _shapes(graph) != wanted:
        raise NotCompiled(f"rewriting gives {_shapes(graph)} in the place of {wanted}")


def _shapes(graph: fx.Graph) -> list[list[int]]:
    """Return the shapes of what a graph gives."""
    made: Any = next(node for node in graph.nodes if node.op == "output").args[0]
    return [list(value(each).shape) for each in (made if isinstance(made, tuple) else (made,))]
