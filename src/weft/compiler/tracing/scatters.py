"""Messages that reduce their edges themselves, by the number of the row that each edge goes to.

PyG's messages and aggregations scatter the values of edges to rows, and read rows again by the same numbers
(a softmax over the edges of a row does both). Here a scatter becomes a `reduced` node, what is read back a
`spread` one, and the numbers are needed no more.
"""

from typing import Any

from torch import Tensor, fx
from torch.utils._pytree import tree_map

from weft.compiler.graphs import (
    are_numbers,
    aten,
    emit,
    name_of,
    reduced,
    replace,
    row_counts,
    spread,
    tidy,
    value,
)
from weft.compiler.tracing.captures import NotCompiled
from weft.compiler.tracing.trace import EDGES, ROWS

_KINDS = {"amax": "max", "amin": "min", "sum": "sum"}
_ZEROS = frozenset(["zeros", "new_zeros", "zeros_like"])
_ONES = frozenset(["ones", "new_ones", "ones_like"])
_FACTORIES = _ZEROS | _ONES | {"full", "new_full", "full_like", "empty", "new_empty"}


def take_rows(graph: fx.Graph) -> None:
    """Rewrite scatters and reads of rows, or raise `NotCompiled` where the numbers of rows are used else."""
    numbers = [node for node in graph.nodes if node.meta.get("role") == "index"]
    if not numbers:
        return
    on_rows: set[fx.Node] = set()
    for node in list(graph.nodes):
        if node.op == "call_function":
            of_rows = _of_rows(node)
            new = _rewritten(node, on_rows)
            if new is not None:
                replace(node, new)
            if of_rows:
                on_rows.add(node if new is None else new)
    tidy(graph)
    if any(each.users for each in numbers):
        raise NotCompiled("it uses the numbers of nodes for more than to reduce its edges")
    for each in numbers:
        each.meta["role"] = "shared"


def _of_rows(node: fx.Node) -> bool:
    made = node.meta["val"]
    first = made[0] if isinstance(made, (tuple, list)) else made
    return isinstance(first, Tensor) and first.dim() > 0 and first.shape[0] > 0 and first.shape[0] % ROWS == 0


def _rewritten(node: fx.Node, on_rows: set[fx.Node]) -> fx.Node | None:
    name = name_of(node)
    if name in ("scatter_add", "scatter_reduce", "index_add"):
        return _reduction(node, name)
    if name in ("index_select", "index") and _reads_rows(node, name, on_rows):
        return emit(node, spread, node.args[0])
    if not on_rows.isdisjoint(node.all_input_nodes) or _counts_rows((node.args, node.kwargs)):
        args, kwargs = tree_map(_with_edges, (node.args, dict(node.kwargs)))
        new = emit(node, node.target, *args, **kwargs)  # type: ignore[arg-type]
        if not new.all_input_nodes or name in _FACTORIES:
            new.meta["residency"] = "destination"
        return new
    return None


def _reduction(node: fx.Node, name: str) -> fx.Node | None:
    base, dim, numbers, values, *rest = node.args
    assert isinstance(values, fx.Node)
    if not _first(dim, values) or not are_numbers(numbers) or name_of(base) not in _ZEROS:  # type: ignore[arg-type]
        return None
    kind = _KINDS.get(str(rest[0])) if name == "scatter_reduce" else "sum"
    if kind is None or (kind != "sum" and node.kwargs.get("include_self", True)) or len(rest) > 1:
        raise NotCompiled(f"{name}: this reduction is not known")
    if "alpha" in node.kwargs:
        raise NotCompiled(f"{name}: it is scaled")
    if kind == "sum" and name_of(values) in _ONES and value(values).dim() == 1:
        return row_counts(node, value(values).dtype)
    if name_of(values) == "detach":
        inner: Any = values.args[0]
        return emit(node, aten.detach.default, emit(node, reduced, kind, inner))
    return emit(node, reduced, kind, values)


def _reads_rows(node: fx.Node, name: str, on_rows: set[fx.Node]) -> bool:
    rows: Any = node.args[0]
    places: Any = node.args[2:] if name == "index_select" else node.args[1]
    if name == "index_select" and not _first(node.args[1], rows):
        return False
    return rows in on_rows and len(places) == 1 and are_numbers(places[0])


def _first(dim: Any, node: fx.Node) -> bool:
    return int(dim) % max(1, value(node).dim()) == 0


def _counts_rows(args: Any) -> bool:
    if isinstance(args, dict):
        return _counts_rows(list(args.values()))
    if isinstance(args, (tuple, list)):
        return any(_counts_rows(each) for each in args)
    return isinstance(args, int) and args != 0 and args % ROWS == 0


def _with_edges(arg: Any) -> Any:
    """Return a size with a row per edge: values of rows stand in a graph as their edges read them."""
    if isinstance(arg, int) and not isinstance(arg, bool) and arg != 0 and arg % ROWS == 0:
        return arg // ROWS * EDGES
    return arg
