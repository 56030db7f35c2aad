"""The rewritings of a message's graph, in order; each can be left out."""

from collections.abc import Callable, Collection

from torch import fx

from weft.compiler.passes.attend import attend
from weft.compiler.passes.behind import behind
from weft.compiler.passes.normal import normal
from weft.compiler.passes.parts import parts
from weft.compiler.passes.scores import scores
from weft.compiler.passes.split import split
from weft.compiler.passes.terms import terms

PASSES: dict[str, Callable[[fx.Graph], None]] = {
    "normal": normal,
    "attend": attend,
    "parts": parts,
    "split": split,
    "behind": behind,
    "terms": terms,
    "scores": scores,
}


def rewrite(graph: fx.Graph, *, without: Collection[str] = ()) -> None:
    """Rewrite a graph by all passes but some."""
    for name, each in PASSES.items():
        if name not in without:
            each(graph)
