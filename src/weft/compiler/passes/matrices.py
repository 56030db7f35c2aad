"""A row times a matrix that a linear map makes for the edge is a mixture of maps: no matrix an edge is made.

With M_e = Σ_k r_k W_k + B of a few numbers r of the edge, x M_e = Σ_k r_k (x W_k) + x B. The products with
W_k are of nodes, or go behind a sum (`behind`), where M_e would be made and multiplied for each edge.
"""

from typing import Any

from torch import fx

from weft.compiler.annotate import residency
from weft.compiler.graphs import aten, emit, name_of, plain_name, replace_each, value, width
from weft.compiler.passes.normal import contracted, reshaped
from weft.compiler.tracing.trace import EDGES

_ON_EDGES = ("edge", "pair")
_ENDS = ("source", "destination")


def matrices(graph: fx.Graph) -> None:
    """Make products of rows of nodes with matrices that edges make mixtures of maps."""
    replace_each(graph, _product)


def _product(node: fx.Node) -> fx.Node | None:
    """Return the sum over an axis of one matrix per edge times a row, as a mixture."""
    found = contracted(node, (3,))
    if found is None:
        return None
    given, axis = found[0], found[1] % 3
    for matrix, rows in (given.args[:2], given.args[1::-1]):
        made = _made(matrix, given)
        if axis and made is not None and _is_row(rows, given, axis) and _pays(made, value(given).shape):
            return _mixture(node, *made, rows, axis)
    return None


def _made(matrix: Any, product: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node | None] | None:
    """Return (rows, map, constant) of the linear map of an edge's rows that makes a matrix."""
    if not isinstance(matrix, fx.Node) or name_of(matrix) != "reshape":
        return None
    if value(matrix).shape != value(product).shape:  # of another number of axes, too
        return None
    flat: Any = matrix.args[0]
    size = value(matrix).shape[1] * value(matrix).shape[2]
    if value(flat).shape != (EDGES, size):
        return None
    constant = None
    if plain_name(flat) == "add":
        constant = next((each for each in flat.args if _is_constant(each, size)), None)
        flat = next((each for each in flat.args if each is not constant), None)
    if not isinstance(flat, fx.Node) or name_of(flat) != "mm":
        return None
    rows, by = flat.args
    return (rows, by, constant) if residency(rows) in _ON_EDGES and residency(by) == "shared" else None  # type: ignore[arg-type,return-value]


def _is_constant(node: Any, size: int) -> bool:
    return isinstance(node, fx.Node) and residency(node) == "shared" and width(node) == size


def _is_row(node: Any, product: fx.Node, axis: int) -> bool:
    """Return whether a factor is a row of a node, over the axis that is summed."""
    shape = list(value(product).shape)
    shape[3 - axis] = 1
    return isinstance(node, fx.Node) and list(value(node).shape) == shape and residency(node) in _ENDS


def _pays(made: tuple[fx.Node, fx.Node, fx.Node | None], shape: Any) -> bool:
    """Return whether what edges read, or rows sum up, is not wider than the matrices, made and read."""
    return bool(value(made[0]).shape[1] <= 2 * min(shape[1:]))


def _mixture(
    at: fx.Node, rows: fx.Node, by: fx.Node, constant: fx.Node | None, features: fx.Node, axis: int
) -> fx.Node:
    count = value(rows).shape[1]
    given: Any = at.args[0]
    height, columns = value(given).shape[axis], value(given).shape[3 - axis]
    flat = reshaped(at, features, [EDGES, height])
    joined = emit(at, aten.reshape.default, by, [count, *value(given).shape[1:]])
    turned = emit(at, aten.permute.default, joined, [axis, 0, 3 - axis])
    maps = emit(at, aten.reshape.default, turned, [height, count * columns])
    mapped = reshaped(at, emit(at, aten.mm.default, flat, maps), [EDGES, count, columns])
    factors = reshaped(at, rows, [EDGES, count, 1])
    made = emit(at, aten.sum.dim_IntList, emit(at, aten.mul.Tensor, mapped, factors), [1])
    if constant is not None:
        whole = emit(at, aten.reshape.default, constant, list(value(given).shape[1:]))
        whole = whole if axis == 1 else emit(at, aten.transpose.int, whole, 0, 1)
        made = emit(at, aten.add.Tensor, made, emit(at, aten.mm.default, flat, whole))
    return reshaped(at, made, list(value(at).shape))
