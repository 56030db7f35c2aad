"""The terms of a sum are added where they live: an edge then reads one row of each end.

u + v + b − v' = u + (v + b − v'), the bracket on nodes. Products of the same rows are one:
v W − v W' = v (W − W').
"""

from functools import reduce

from torch import fx

from weft.compiler.annotate import Residency, residency
from weft.compiler.graphs import aten, emit, name_of, replace, tidy

Term = tuple[int, fx.Node]
"""A sign and a value."""


_HOMES: tuple[Residency, ...] = ("destination", "source", "edge", "pair", "shared")


def terms(graph: fx.Graph) -> None:
    """Add the terms of each sum on edges by where they live."""
    for node in reversed(list(graph.nodes)):
        if _is_sum(node) and node.users and not all(_is_sum(each) for each in node.users):
            _gather(node)
    tidy(graph)


def _is_sum(node: fx.Node) -> bool:
    """Return whether a node adds two values on edges."""
    return (
        name_of(node) in ("add", "sub")
        and residency(node) == "pair"
        and len(node.args) == 2
        and not node.kwargs
        and all(isinstance(each, fx.Node) for each in node.args)
    )


def _gather(node: fx.Node) -> None:
    found = _terms(node, 1, node)
    homes = [residency(each) for _, each in found]
    groups = {home: [term for term, own in zip(found, homes) if own == home] for home in homes}
    if "shared" in groups and len(groups) > 1:
        most = next(each for each in _HOMES if each in groups)
        groups[most] += groups.pop("shared")
    if len(groups) == len(found):
        return
    order = sorted(groups, key=_HOMES.index)
    sign, total = 1, None
    for home in order:
        own_sign, part = _added(node, groups[home])
        if total is None:
            sign, total = own_sign, part
        else:
            sign, total = _plus(node, (sign, total), (own_sign, part))
    assert total is not None
    replace(node, total if sign > 0 else emit(node, aten.neg.default, total))


def _terms(node: fx.Node, sign: int, root: fx.Node) -> list[Term]:
    """Return the terms of a sum; one that is used elsewhere too stays whole."""
    if not _is_sum(node) or (node is not root and len(node.users) > 1):
        return [(sign, node)]
    first, second = node.args
    turned = -sign if name_of(node) == "sub" else sign
    return [*_terms(first, sign, root), *_terms(second, turned, root)]  # type: ignore[arg-type]


def _added(at: fx.Node, group: list[Term]) -> Term:
    # products side by side; a plain term first, so that the others add or subtract
    group = sorted(group, key=lambda term: (name_of(term[1]) != "mm", -term[0]))
    return reduce(lambda a, b: _plus(at, a, b), group)


def _same_rows(a: fx.Node, b: fx.Node) -> bool:
    """Return whether two terms are products of the same rows that nothing else uses: then one is enough."""
    products = all(name_of(each) == "mm" and len(each.users) <= 1 for each in (a, b))
    return products and a.args[0] is b.args[0] and residency(a.args[1]) == residency(b.args[1]) == "shared"  # type: ignore[arg-type]


def _plus(at: fx.Node, one: Term, two: Term) -> Term:
    (sign, a), (other, b) = one, two
    if _same_rows(a, b):
        total, matrix = _plus(at, (sign, a.args[1]), (other, b.args[1]))  # type: ignore[arg-type]
        return total, emit(at, aten.mm.default, a.args[0], matrix)
    if sign == other:
        return sign, emit(at, aten.add.Tensor, a, b)
    return (1, emit(at, aten.sub.Tensor, a, b)) if sign > 0 else (1, emit(at, aten.sub.Tensor, b, a))
