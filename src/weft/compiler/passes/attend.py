"""A softmax over the edges of a row that weighs a sum becomes one reduction.

With m the largest score of a row, α = exp(s − m) / (Σ exp(s − m) + ε) and Σ α x is the softmax reduction of
(s, x). The ε, there against rows without edges, is less than a rounding error of a sum that is at least 1.
"""

from functools import reduce
from typing import Any, cast

from torch import fx

from weft.compiler.graphs import aten, emit, item_shape, name_of, reduced, reductions, replace, tidy, value
from weft.compiler.passes.normal import reshaped
from weft.compiler.tracing.trace import EDGES

_MOST_EPSILON = 1e-12


def attend(graph: fx.Graph) -> None:
    """Fuse sums weighed by a softmax of their row with that softmax."""
    for node in reductions(graph):
        if node.args[0] == "sum":
            new = _attended(node, node.args[1])
            if new is not None:
                replace(node, new)
    tidy(graph)


def _attended(at: fx.Node, summed: Any) -> fx.Node | None:
    factors = sorted(_factors(summed), key=lambda each: not isinstance(each, fx.Node))
    for place, factor in enumerate(factors):
        score = score_of(_unshaped(factor))
        rest = [*factors[:place], *factors[place + 1 :]]
        heads = (
            None
            if score is None or not any(isinstance(each, fx.Node) for each in rest)
            else _heads(score, factor, summed)
        )
        if score is None or heads is None:
            continue
        made = reduce(lambda a, b: emit(at, aten.mul.Tensor, a, b), rest)
        if value(made).shape != value(summed).shape:
            made = emit(at, aten.expand.default, made, list(value(summed).shape))
        return emit(at, reduced, "softmax", reshaped(at, score, [EDGES, *heads]), made)
    return None


def _factors(node: Any) -> list[Any]:
    """Return the factors of a product of values on edges and numbers."""
    if not isinstance(node, fx.Node) or name_of(node) != "mul":
        return [node]
    return [found for each in node.args[:2] for found in _factors(each)]


def _unshaped(node: Any) -> Any:
    while isinstance(node, fx.Node) and name_of(node) in ("reshape", "expand"):
        node = node.args[0]
    return node


def _heads(score: fx.Node, factor: fx.Node, whole: fx.Node) -> tuple[int, ...] | None:
    """Return the axes of a score, if they are the first ones of what it weighs; None: they are not."""
    heads, own, item = item_shape(score), item_shape(factor), item_shape(whole)
    own = (1,) * (len(item) - len(own)) + own
    while heads and heads[-1] == 1:
        heads = heads[:-1]
    first = len(heads)
    fits = own[:first] == heads == item[:first] and set(own[first:]) <= {1}
    return heads if fits and value(score).shape[0] == value(whole).shape[0] == EDGES else None


def score_of(node: Any) -> fx.Node | None:
    """Return the scores that a node is the softmax of over the edges of each row; None: it is no such."""
    grown, total = _operands(node, "div")
    apart = _operands(grown, "exp")[0]
    score, most = _operands(apart, "sub")
    total, most = _operands(total, "spread")[0], _operands(most, "spread")[0]
    added, epsilon = _operands(total, "add")
    if isinstance(epsilon, float) and 0.0 <= epsilon <= _MOST_EPSILON:
        total = added
    most = _operands(most, "detach")[0] or most
    if _operands(total, "reduced") != ["sum", grown] or _operands(most, "reduced") != ["max", score]:
        return None
    return cast(fx.Node, score)


def _operands(node: Any, name: str) -> list[Any]:
    """Return the two operands of an operator, None for one that is not there; of another operator, none."""
    if not isinstance(node, fx.Node) or name_of(node) != name or node.kwargs:
        return [None, None]
    return [*node.args, None][:2]
