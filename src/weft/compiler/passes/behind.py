"""What is linear goes behind the sum over edges: it then runs on one row per destination.

Σ x W = (Σ x) W, Σ (x + b) = Σ x + (number of edges) · b for what all edges of a row share, Σ d x = d Σ x
for a factor of the destination, and with a number s an edge, Σ s (x W + b) = (Σ s x) W + (Σ s) b. A mixture
Σ Σ_k s_k x W_k = Σ_k (Σ s_k x) W_k: an edge reads x, and not what all the maps make of it. A row without
edges is 0 as before, also where a factor or a map is not finite.
"""

from typing import Any

from torch import fx

from weft.compiler.annotate import residency
from weft.compiler.graphs import (
    aten,
    emit,
    has_rows,
    name_of,
    plain_name,
    reduced,
    reductions,
    replace,
    row_counts,
    tidy,
    value,
    width,
)
from weft.compiler.passes.split import is_number
from weft.compiler.tracing.trace import EDGES

_ROW = ("destination", "shared")


def behind(graph: fx.Graph) -> None:
    """Move linear maps and factors of destinations behind the sums of a graph."""
    for node in reductions(graph):
        if node.args[0] == "sum" and _pays(node.args[1]):
            replace(node, _Mover(node).whole(node.args[1]))
    tidy(graph)


def _pays(node: Any) -> bool:
    """Return whether a linear map, or a factor of the row, would leave the edges."""
    if residency(node) in ("shared", "destination"):
        return False
    name = plain_name(node)
    if name == "mm":
        return _map_pays(node)
    if name in ("add", "sub"):
        return all(_is_like(each, node) for each in node.args) and any(_pays(each) for each in node.args)
    if name in ("mul", "div"):
        first, second = node.args[:2]
        if name == "mul" and _of_row(first):
            first, second = second, first
        return _is_like(first, node) and (_of_row(second) or (_scalar(second) and _absorbs(first)))
    return _mixture(node) is not None or (name in ("reshape", "neg") and _pays(node.args[0]))


def _is_like(term: Any, whole: fx.Node) -> bool:
    """Return whether a term has the type of the whole: a sum of conditions alone counts no edges."""
    return isinstance(term, fx.Node) and value(term).dtype == value(whole).dtype


def _mixture(node: Any) -> tuple[fx.Node, fx.Node, fx.Node] | None:
    """Return (rows, matrix, factors [edges, k, 1]) of a sum over k of factors times maps of the same rows."""
    if node.target is not aten.sum.dim_IntList or node.kwargs:
        return None
    given, dims, *keep = node.args
    if name_of(given) != "mul" or value(given).dim() != 3 or keep or dims not in ([1], [-2]):
        return None
    for mapped, factors in (given.args[:2], given.args[1::-1]):
        reshaped = isinstance(mapped, fx.Node) and name_of(mapped) == "reshape"
        maps: Any = mapped.args[0] if reshaped else None
        if maps is None or name_of(maps) != "mm" or not isinstance(factors, fx.Node):
            continue
        _, count, columns = value(mapped).shape
        whole = value(maps).shape == (EDGES, count * columns) and residency(maps.args[1]) == "shared"
        if whole and value(factors).shape == (EDGES, count, 1) and _mixing_pays(maps.args[0], count, columns):
            return maps.args[0], maps.args[1], factors
    return None


def _mixing_pays(rows: fx.Node, count: int, columns: int) -> bool:
    """Return whether edges read fewer numbers, forward and twice backward, or are rid of the map."""
    size = value(rows).shape[1]
    return residency(rows) in ("pair", "edge") or (2 + count) * size < (2 * count + 1) * columns


def _map_pays(node: Any) -> bool:
    rows, matrix = node.args
    if residency(rows) in ("pair", "edge"):
        return True
    # A map of sources may as well run on nodes before: where it widens, it is better behind.
    return bool(value(matrix).shape[0] < value(matrix).shape[1])


def _absorbs(node: Any) -> bool:
    """Return whether one number per edge can be taken inside, to a linear map that then leaves the edges."""
    name = plain_name(node) if isinstance(node, fx.Node) else ""
    if name == "mm":
        return _map_pays(node)
    if name in ("add", "sub"):
        return all(isinstance(each, fx.Node) for each in node.args) and any(map(_absorbs, node.args))
    return name == "mul" and _of_row(node.args[1]) and _absorbs(node.args[0])


def _of_row(node: Any) -> bool:
    """Return whether a factor is the same for all edges of a row."""
    return isinstance(node, fx.Node) and residency(node) in _ROW


def _scalar(node: Any) -> bool:
    return isinstance(node, fx.Node) and has_rows(node) and is_number(node)


class _Mover:
    """Writes the sum of a value over edges with as much as possible behind it."""

    def __init__(self, at: fx.Node) -> None:
        self.at = at
        self.shares = False
        """Whether something that all rows share came behind the sum."""

    def whole(self, node: Any) -> fx.Node:
        """Return the sum, 0 in rows without edges: 0 times a shared factor that is not finite is not 0."""
        made = self.sum(node)
        if not self.shares:
            return made
        empty = self.emit(aten.eq.Scalar, self.count(made), 0)
        empty.meta["residency"] = "reduced"
        return self.emit(aten.masked_fill.Scalar, made, empty, 0)

    def emit(self, target: Any, *args: Any) -> fx.Node:
        return emit(self.at, target, *args)

    def sum(self, node: Any) -> fx.Node:
        name = name_of(node)
        if not _pays(node):
            return self.emit(reduced, "sum", node)
        if name == "mm":
            self.shares = True
            return self.emit(aten.mm.default, self.sum(node.args[0]), node.args[1])
        if name == "reshape":
            return self.emit(aten.reshape.default, self.sum(node.args[0]), node.args[1])
        if name == "neg":
            return self.emit(aten.neg.default, self.sum(node.args[0]))
        mixture = _mixture(node)
        if mixture is not None:
            return self.mixed(*mixture)
        if name in ("add", "sub"):
            return self.emit(node.target, *(self.term(each, node) for each in node.args))
        first, second = node.args[:2]
        if name == "mul" and _of_row(first):
            first, second = second, first
        if _of_row(second):
            return self.emit(node.target, self.sum(first), self.guarded(second, 1))
        return self.sum(self.scaled(first, second, node.target))

    def mixed(self, rows: fx.Node, matrix: fx.Node, factors: fx.Node) -> fx.Node:
        """Return the sum of a mixture: each factor times the rows, summed, and then mapped."""
        self.shares = True
        size, count = value(rows).shape[1], value(factors).shape[1]
        columns = value(matrix).shape[1] // count
        each = self.emit(aten.mul.Tensor, self.emit(aten.reshape.default, rows, [EDGES, 1, size]), factors)
        flat = self.emit(aten.reshape.default, self.emit(reduced, "sum", each), [EDGES, count * size])
        apart = self.emit(aten.reshape.default, matrix, [size, count, columns])
        turned = self.emit(aten.permute.default, apart, [1, 0, 2])
        joined = self.emit(aten.reshape.default, turned, [count * size, columns])
        return self.emit(aten.mm.default, flat, joined)

    def term(self, node: Any, made: fx.Node) -> fx.Node:
        """Return the sum of a term of `made`; what all edges of a row share, as often as there are edges."""
        if residency(node) in _ROW:
            return self.emit(aten.mul.Tensor, self.count(made), self.guarded(node, 0))
        narrow = width(node) != width(made)
        return self.sum(self.emit(aten.expand.default, node, list(value(made).shape)) if narrow else node)

    def guarded(self, node: fx.Node, number: int) -> fx.Node:
        """Return a value of rows with a number where a row has no edge: there 0 / 0 would be no 0."""
        if residency(node) != "destination":
            self.shares = True
            return node
        empty = self.emit(aten.eq.Scalar, self.count(node), 0)
        empty.meta["residency"] = "reduced"  # it belongs to what runs behind the sum, not before
        return self.emit(aten.masked_fill.Scalar, node, empty, number)

    def scaled(self, node: Any, factor: Any, target: Any) -> fx.Node:
        """Return a value times one number per edge, the number taken inside linear maps and sums."""
        if not _absorbs(node):
            return self.emit(target, node, factor)
        if name_of(node) == "mm":
            return self.emit(aten.mm.default, self.emit(target, node.args[0], factor), node.args[1])
        if name_of(node) == "mul":
            return self.emit(node.target, self.scaled(node.args[0], factor, target), node.args[1])
        return self.emit(node.target, *(self.scaled(each, factor, target) for each in node.args))

    def count(self, beside: fx.Node) -> fx.Node:
        """Return how many edges each row has, to multiply with what lies beside a value, axis by axis."""
        found, (rows, *item) = row_counts(self.at, value(self.at).dtype), value(beside).shape
        if rows != EDGES:  # rows are folded with an axis
            found = self.emit(aten.reshape.default, found, [EDGES, 1])
            found = self.emit(aten.expand.default, found, [EDGES, rows // EDGES])
        return self.emit(aten.reshape.default, found, [rows, *[1] * len(item)])
