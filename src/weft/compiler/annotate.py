"""Where the values of a message live and how its operators move them.

A value is the same for all edges (`shared`), a function of one end (`source`, `destination`), of what the
edge itself brings (`edge`), or of several of these (`pair`); `reduced` has one row per destination. Where
sources become (relation, source) pairs (`relation_pairs`), what is told of as `relation` is a `source`. An
operator that would read other edges than its own is found here, by its sizes and axes, and the message is
not compiled.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import fx

from weft.compiler.graphs import aten, has_rows, item_shape, name_of, reduced, spread, value
from weft.compiler.operators import RULES
from weft.compiler.tracing.captures import NotCompiled
from weft.compiler.tracing.trace import EDGES

Residency = Literal["shared", "source", "destination", "edge", "pair", "reduced"]
Movement = Literal["elementwise", "dense", "features", "shape", "reduction", "spread"]

_SHAPE = frozenset(
    (
        *("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand", "permute"),
        *("transpose", "t", "clone", "detach", "alias", "_to_copy"),
        *("contiguous", "cat", "stack", "slice", "select", "split", "split_with_sizes"),
        *("unbind", "_item", "lift_fresh", "lift_fresh_copy"),
        *("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "_reshape_alias"),
    )
)
_FEATURES = frozenset(
    (
        *("sum", "mean", "amax", "amin", "linalg_vector_norm", "var", "var_mean"),
        *("_softmax", "_log_softmax", "cumsum", "native_layer_norm"),
        *("logsumexp", "argmax", "argmin", "prod", "any", "all", "linalg_cross"),
    )
)
_DENSE = frozenset(["mm", "addmm", "bmm", "relation_matmul"])
_SUMS = frozenset(["add", "sub", "rsub", "neg"])
_JOINS = frozenset(["cat", "stack"])
_FACTORIES = frozenset(["zeros", "ones", "full", "scalar_tensor", "empty", "arange", "eye", "linspace"])
_LOOKUPS = frozenset(["embedding", "index_select", "index"])


def residency(node: fx.Node) -> Residency:
    """Return where the value of a node lives."""
    if "residency" not in node.meta:
        node.meta["residency"] = _residency(node)
    return node.meta["residency"]  # type: ignore[no-any-return]


def _residency(node: fx.Node) -> Residency:
    if node.op == "placeholder":
        return node.meta["role"]  # type: ignore[no-any-return]
    if node.target is reduced:
        return "reduced"
    if node.target is spread:
        return "destination"
    found: set[Residency] = {residency(each) for each in node.all_input_nodes} - {"shared"}
    if "reduced" in found:
        return "reduced"
    if not found:
        return "edge" if node.op == "call_function" and _makes_rows(node) else "shared"
    return found.pop() if len(found) == 1 else "pair"


def _makes_rows(node: fx.Node) -> bool:
    made = node.meta["val"]
    return isinstance(made, torch.Tensor) and has_rows(node)


def learned(graph: fx.Graph, needs_grad: Mapping[fx.Node, bool]) -> set[fx.Node]:
    """Return the values that have a gradient, by which inputs have one."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        own = needs_grad.get(node, False)
        if own or (name_of(node) != "detach" and any(each in found for each in node.all_input_nodes)):
            found.add(node)
    return found


def movement(node: fx.Node) -> Movement:
    """Return what an operator does to the rows and features of its arguments."""
    name = name_of(node)
    if node.target is reduced:
        return "reduction"
    if node.target is spread:
        return "spread"
    if name in _DENSE:
        return "dense"
    if name in _FEATURES:
        return "features"
    return "shape" if name in _SHAPE | _FACTORIES | _LOOKUPS else "elementwise"


def check(graph: fx.Graph) -> None:
    """Raise `NotCompiled` unless every operator makes the row of an edge of the rows of that edge alone."""
    for node in graph.nodes:
        if _single(node) and has_rows(node) and not value(node).numel():
            raise NotCompiled("a value of it has no features")
        if node.op != "call_function" or node.target in (reduced, spread):
            continue
        name = name_of(node)
        if (
            not any(has_rows(each) for each in node.all_input_nodes if _single(each))
            and residency(node) == "shared"
        ):
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise NotCompiled(f"it draws random numbers ({name})")
            continue
        problem = _problem(node, name) or _size_problem(node) or _type_problem(node, name)
        if problem:
            raise NotCompiled(f"{name}: {problem}")


def _single(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _type_problem(node: fx.Node, name: str) -> str:
    """Return what is wrong with the types of an operator on rows, "" for nothing.

    Terms are put in another order and joined features taken apart: of whole numbers and truth values that
    has another meaning or range, and parts of several types would not be what they are joined to.
    """
    given = {value(each).dtype for each in node.all_input_nodes if _single(each) and value(each).dim()}
    if name in _JOINS and len(given) > 1:
        return "what it joins has several types; give it one, as by .to(u.dtype)"
    if name in _SUMS and not all(each.is_floating_point for each in given):
        return "it adds whole numbers or truth values; make them numbers, as by .to(u.dtype)"
    whole = name == "mul" and not any(each.is_floating_point or each == torch.bool for each in given)
    return "it multiplies whole numbers, whose range ends" if whole and given else ""


def _size_problem(node: fx.Node) -> str:
    made = node.meta["val"]
    for each in made if isinstance(made, (tuple, list)) else (made,):
        if isinstance(each, torch.Tensor) and any(size and size % EDGES == 0 for size in each.shape[1:]):
            return "it mixes edges: there is a value for pairs of them"
        if isinstance(each, torch.Tensor) and (each.dim() == 0 or each.shape[0] % EDGES):
            return "it mixes edges: its result has no row per edge"
    return ""


def _problem(node: fx.Node, name: str) -> str:
    if name in _SHAPE:
        return _shape_problem(node, name)
    if name in _FEATURES:
        return _axes_problem(node, name)
    if name in ("mm", "addmm"):
        rows, matrix = node.args[-2:]
        return "" if has_rows(rows) and not has_rows(matrix) else "edges are multiplied with edges"  # type: ignore[arg-type]
    if name == "bmm":
        return (
            "" if all(value(each).shape[0] == EDGES for each in node.all_input_nodes) else "edges are mixed"
        )
    if name == "relation_matmul":
        kind, rows, table = node.args
        apart = has_rows(kind) and has_rows(rows) and not has_rows(table)  # type: ignore[arg-type]
        return "" if apart else "edges are mixed"
    if name in _LOOKUPS:
        return _lookup_problem(node, name)
    if name in _FACTORIES:
        return "" if name in ("zeros", "ones", "full") else "it numbers the edges"
    # Releases of torch differ in which operators they tag: leaky_relu of 2.11 is not.
    if name in (*RULES, "rsub") or torch.Tag.pointwise in getattr(node.target, "tags", ()):
        return _pointwise_problem(node)
    return "this operator is not known"


def _pointwise_problem(node: fx.Node) -> str:
    made = value(node)
    if _counts_edges(node.args) or _counts_edges(node.kwargs):
        return "the number of edges or rows is used as a value"
    for each in node.all_input_nodes:
        if has_rows(each) and (value(each).dim() != made.dim() or value(each).shape[0] != made.shape[0]):
            return "rows of edges do not lie side by side"
    return ""


def _counts_edges(args: Any) -> bool:
    if isinstance(args, dict):
        return _counts_edges(list(args.values()))
    if isinstance(args, (tuple, list)):
        return any(_counts_edges(each) for each in args)
    return isinstance(args, (int, float)) and args != 0 and args % EDGES == 0


def _shape_problem(node: fx.Node, name: str) -> str:
    args: Any = node.args
    if name in ("permute", "transpose", "t"):
        first = value(args[0])
        if name == "permute":
            moved = _axis(args[1][0], first) != 0
        else:
            moved = first.dim() > 1 if name == "t" else 0 in (_axis(args[1], first), _axis(args[2], first))
        return "the axis of edges is moved" if moved else ""
    if name in ("slice", "select", "split", "split_with_sizes", "unbind", "cat", "stack"):
        axis = _dim_of(node, name)
        return "" if axis != 0 else "edges are picked or joined"
    if name in ("new_full", "full_like"):
        return "the number of edges or rows is used as a value" if _counts_edges(node.args[-1]) else ""
    return ""


def _dim_of(node: fx.Node, name: str) -> int:
    place = {"slice": 1, "select": 1, "unbind": 1, "cat": 1, "stack": 1}.get(name, 2)
    dim: Any = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
    inner = value(node.all_input_nodes[0]).dim() + (name == "stack")
    return int(dim) % inner


def _axis(dim: Any, tensor: torch.Tensor) -> int:
    return int(dim) % max(1, tensor.dim())


def _axes_problem(node: fx.Node, name: str) -> str:
    first = value(node.all_input_nodes[0])
    if name == "native_layer_norm":
        return "" if len(node.args[1]) < first.dim() else "it is taken over edges"  # type: ignore[arg-type]
    if name == "linalg_cross":
        return "" if _axis(node.kwargs.get("dim", -1), first) != 0 else "it is taken over edges"
    place = 2 if name == "linalg_vector_norm" else 1
    dims = node.args[place] if len(node.args) > place else None
    if dims is None or dims == []:
        return "it is taken over edges"
    axes = dims if isinstance(dims, (tuple, list)) else [dims]
    return "it is taken over edges" if any(_axis(dim, first) == 0 for dim in axes) else ""


def _lookup_problem(node: fx.Node, name: str) -> str:
    """A row of a shared table for each edge."""
    table = node.args[0]
    if not isinstance(table, fx.Node) or has_rows(table):
        return "rows of other edges are read"
    if name == "index_select":
        return "" if node.args[1] == 0 else "edges become columns"
    places = node.args[1]
    if name == "index" and (len(places) != 1 or item_shape(places[0]) != ()):  # type: ignore[arg-type,index]
        return "a table is read by more than one number"
    return ""


__all__ = ["Movement", "Residency", "aten", "check", "learned", "movement", "residency"]
