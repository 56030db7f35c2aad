"""Any `MessagePassing` of PyG, a user's own too: its `propagate` runs message and aggregation compiled.

The class keeps its forward, message, aggregate and update; where a call is not covered (hooks, a draw of
random numbers, an aggregation that sorts …) PyG's own `propagate` runs, and the reason is told once. The
first call of each kind is compared with PyG's own.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from weft.compiler.trace import RowCount
from weft.graph.message.compiled import compiled_of, compiles, pays
from weft.graph.message.propagate import contribute
from weft.graph.message.reduction import OWN, Propagation, times_rows
from weft.interop.pyg.accelerate.adjacency import adjacency, plain
from weft.interop.pyg.accelerate.swap import HOOKS, NotCovered, State, difference, quiet, tell

_NUMBERS = frozenset(["index", "edge_index_i"])
"""The names under which a message is given the number of each edge's row."""
_SIZES = frozenset(["size_i", "dim_size"])
"""The names under which it is given the number of rows."""
_WHOLE = frozenset(["size", "size_j", "edge_index", "edge_index_j"])
"""What a message that is compiled does not get."""
_SCRATCH = frozenset(["_alpha"])
"""What PyG's own messages keep for their forward, which reads it where attention weights are asked for."""
_MADE_OF_SUMS = frozenset(
    f"{name}Aggregation"
    for name in (
        "Sum",
        "Mean",
        "Max",
        "Min",
        "Var",
        "Std",
        "Softmax",
        "PowerMean",
        "DegreeScaler",
        "Multi",
        "Fused",
    )
)
"""PyG's aggregations that sums and extremes of rows make; the others sort edges, or take them in turn."""
_WEIGHTS = "return_attention_weights"
_STANDS_FOR = "edges that an edge stands for"
"""The name of the weights of messages, which no argument has."""
_CHECKED_EDGES = 1 << 18


def is_message_passing(module: nn.Module) -> bool:
    """Return whether a module is of PyG's `MessagePassing` and not accelerated yet."""
    from torch_geometric.nn import MessagePassing

    return isinstance(module, MessagePassing) and "_weft" not in module.__dict__


def obstacle(conv: Any) -> str:
    """Return why no call of a convolution would be compiled, by how it was made; "" where some would."""
    from torch_geometric.nn import MessagePassing

    if conv.flow != "source_to_target":
        return f"flow is {conv.flow!r}"
    if type(conv).propagate is not MessagePassing.propagate and not _templated(type(conv)):
        return "it has an own propagate()"
    if conv.decomposed_layers > 1:
        return "it is decomposed"
    if type(conv).aggregate is MessagePassing.aggregate and (name := _other_aggregation(conv)):
        return f"its aggregation is {name}"
    special = sorted(_WHOLE & {*_parameters(type(conv).message), *_parameters(type(conv).aggregate)})
    return f"its message reads {special[0]!r}" if special else ""


def _other_aggregation(conv: Any) -> str:
    """Return the name of an aggregation of PyG's that is not made of sums and extremes, "" for none."""
    from torch_geometric.nn.aggr import Aggregation

    found = (type(each) for each in conv.aggr_module.modules() if isinstance(each, Aggregation))
    pygs = (each.__name__ for each in found if each.__module__.startswith("torch_geometric."))
    return next((name for name in pygs if name not in _MADE_OF_SUMS), "")


def _templated(kind: Any) -> bool:
    """Return whether PyG wrote `propagate` itself, from its template."""
    return kind.propagate is getattr(kind, "_jinja_propagate", None)


@cache
def _parameters(method: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(method).parameters)[1:]


def compile_messages_of(conv: nn.Module, *, check: bool) -> None:
    """Give a convolution a `propagate` that compiles its message."""
    conv.__class__ = _compiling_class(type(conv))  # type: ignore[arg-type]
    conv._weft = State(check=check)  # type: ignore[assignment]


@cache
def _compiling_class(original: Any) -> type[nn.Module]:
    own = original.propagate

    def propagate(self: Any, edge_index: Any, size: Any = None, **kwargs: Any) -> Any:
        return _run(self, own, edge_index, size, kwargs)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _own_messages(self, _asks_weights(original, args, kwargs)):
            return original.forward(self, *args, **kwargs)

    def reduce_ex(self: Any, protocol: Any) -> Any:
        return _empty, (original,), *original.__reduce_ex__(self, 2)[2:]

    body = {"propagate": propagate, "__reduce_ex__": reduce_ex, "__doc__": original.__doc__}
    if _WEIGHTS in _parameters(original.forward):
        body["forward"] = forward
    return type(original.__name__, (original,), body | {"__module__": original.__module__})


def _empty(original: type[nn.Module]) -> nn.Module:
    kind: Any = _compiling_class(original)  # type: ignore[arg-type]
    return kind.__new__(kind)  # type: ignore[no-any-return]


def _asks_weights(original: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a call of forward asks for attention weights, which a compiled message does not keep."""
    names = _parameters(original.forward)
    place = names.index(_WEIGHTS)
    return isinstance(args[place] if place < len(args) else kwargs.get(_WEIGHTS), bool)


@contextmanager
def _own_messages(conv: Any, own: bool) -> Iterator[None]:
    """Run PyG's own `propagate` while it lasts."""
    state: State = conv._weft
    before = state.refused
    state.refused = before or ("attention weights are asked for" if own else "")
    try:
        yield
    finally:
        state.refused = before if own else state.refused


def _run(conv: Any, own: Callable[..., Any], edge_index: Any, size: Any, kwargs: dict[str, Any]) -> Any:
    state: State = conv._weft
    original = partial(own, conv, size=size)
    if state.refused or torch.compiler.is_compiling() or not compiles():
        return original(edge_index, **kwargs)
    try:
        call = _Propagated(conv, edge_index, size, kwargs)
        if not pays(call.block, call.how):
            return original(edge_index, **kwargs)
        found = compiled_of(call.how)
        if isinstance(found, str):
            raise NotCovered(f"its message is not compiled: {found}")
        if state.check and call.kind not in state.checked:
            _compare(conv, original, call)
            state.checked.add(call.kind)
        return call.run()
    except NotCovered as reason:
        tell(state, f"{type(conv).__name__} runs PyG's own propagate: {reason}")
        return original(edge_index, **kwargs)


class _Propagated:
    """A call of `propagate`, as one of a block."""

    def __init__(self, conv: Any, edge_index: Any, size: Any, kwargs: dict[str, Any]) -> None:
        if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
            raise NotCovered(f"the graph is given as {type(edge_index).__name__}, not as a (2, E) edge_index")
        self.stands_for = _standing(conv, edge_index)
        self.conv, self.edge_index, self.kwargs = conv, edge_index, kwargs
        self.names = _parameters(type(conv).message)
        self.aggregate_names = _parameters(type(conv).aggregate)[1:]
        self.axis = self._row_axis()
        self.size = self._sizes(size)
        self.adjacency = adjacency(plain(edge_index), *self.size)
        self.block = self.adjacency.block
        self.how = self._asked()

    def _sizes(self, size: Any) -> tuple[int, int]:
        found: list[int | None] = [None, None] if size is None else list(size)
        for name in self._ends():
            given = self.kwargs.get(name[:-2])
            side = 1 if name.endswith("_i") else 0
            pair = given if isinstance(given, (tuple, list)) else (given, given)
            for place, each in enumerate(pair) if isinstance(given, (tuple, list)) else [(side, pair[side])]:
                if isinstance(each, Tensor):
                    found[place] = found[place] if found[place] is not None else self._rows(each)
        first, second = found
        first, second = first if first is not None else second, second if second is not None else first
        if first is None or second is None:
            raise NotCovered("there are no rows of nodes to tell how many there are")
        return first, second

    def _ends(self) -> list[str]:
        return [
            name
            for name in (*self.names, *_parameters(type(self.conv).update)[1:])
            if name[-2:] in ("_i", "_j")
        ]

    def _row_axis(self) -> int:
        """Return the axis of rows in tensors of nodes, the same for all of them."""
        given = [self._given(name) for name in self._ends() if name[:-2] in self.kwargs]
        found = {self.conv.node_dim % each.dim() for each in given if isinstance(each, Tensor) and each.dim()}
        if len(found) > 1:
            raise NotCovered("rows are along different axes")
        return found.pop() if found else 0

    def _rows(self, tensor: Tensor) -> int:
        if tensor.dim() <= self.axis:
            raise NotCovered("a tensor of nodes has no axis of rows")
        return tensor.shape[self.axis]

    def _asked(self) -> Propagation:
        """Return message and aggregation as a function of tensors of both ends, edges and the rest."""
        groups: dict[str, list[tuple[str, Tensor]]] = {"src": [], "dst": [], "edge": [], "params": []}
        fixed: dict[str, Any] = {}
        for name in dict.fromkeys((*self.names, *self.aggregate_names)):
            if name in _SIZES or name == "ptr":
                fixed[name] = RowCount() if name in _SIZES else None
            elif name not in _NUMBERS:
                given = self._given(name)
                if isinstance(given, Tensor):
                    groups[self._group(name, given)].append((name, given))
                else:
                    fixed[name] = given
        if self.stands_for is not None:
            like = next((t for _, t in groups["src"] + groups["dst"] if t.is_floating_point()), None)
            weight = self.stands_for if like is None else self.stands_for.to(like.dtype)
            groups["edge"].append((_STANDS_FOR, weight))
        tensors = {kind: [tensor for _, tensor in group] for kind, group in groups.items()}
        for ends in (tensors["src"], tensors["dst"]):
            ends[:] = [each.movedim(self.axis, 0) for each in ends]
        tensors["edge"] = [self.adjacency.ordered(each) for each in tensors["edge"]]
        order = tuple(name for group in groups.values() for name, _ in group)
        own = type(self.conv).__module__.startswith("torch_geometric.")
        called = _message(self.conv, order, fixed, (self.names, self.aggregate_names))
        if self.axis and self.stands_for is not None:
            raise NotCovered("rows that are weighed are not along the first axis")
        if self.axis:
            called = _along(called, self.axis, len(tensors["src"]) + len(tensors["dst"]))
        return Propagation(called, **tensors, reduce=OWN, scratch=_SCRATCH if own else frozenset())  # type: ignore[arg-type]

    def _given(self, name: str) -> Any:
        ends = name[-2:] in ("_i", "_j")
        key = name[:-2] if ends else name
        if key not in self.kwargs:
            method = type(self.conv).message if name in self.names else type(self.conv).aggregate
            default = inspect.signature(method).parameters[name].default
            if default is inspect.Parameter.empty:
                raise NotCovered(f"its message reads {name!r}, which propagate was not given")
            return default
        given = self.kwargs[key]
        if ends and isinstance(given, (tuple, list)):
            return given[1 if name.endswith("_i") else 0]
        return given

    def _group(self, name: str, given: Tensor) -> str:
        if name[-2:] in ("_i", "_j"):
            side = 1 if name.endswith("_i") else 0
            if self._rows(given) != self.size[side]:
                raise NotCovered(f"{name[:-2]} has {self._rows(given)} rows, not {self.size[side]}")
            return "dst" if side else "src"
        return "edge" if given.dim() and given.shape[0] == self.edge_index.shape[1] else "params"

    @property
    def kind(self) -> Any:
        """What tells calls apart that could go different ways."""
        return (
            self.conv.training,
            self.names,
            tuple((t.dtype, t.dim()) for t in (*self.how.per_edge, *self.how.params)),
        )

    def run(self) -> Any:
        """Return what `propagate` returns."""
        out = contribute(self.block, self.how, beside=False).value.movedim(0, self.axis)
        names = _parameters(type(self.conv).update)[1:]
        if any(name not in self.kwargs for name in names):
            raise NotCovered("its update reads what propagate was not given")
        return self.conv.update(out, **{name: self.kwargs[name] for name in names})


def _standing(conv: Any, edge_index: Tensor) -> Tensor | None:
    """Return what messages are weighed by, where a hook of ours does so; refuse hooks of others."""
    stands_for: Tensor | None = conv._weft.stands_for
    hooks = [name for name in HOOKS for _ in getattr(conv, name)]
    if conv.explain or hooks != ([] if stands_for is None else ["_message_forward_hooks"]):
        raise NotCovered("it is being explained or has message-passing hooks")
    if stands_for is not None and stands_for.shape[0] != edge_index.shape[1]:
        raise NotCovered("it adds edges to those that are weighed")
    return stands_for


def _message(
    conv: Any, order: tuple[str, ...], fixed: dict[str, Any], names: tuple[tuple[str, ...], tuple[str, ...]]
) -> Callable[..., Any]:
    """Return the function that makes the messages of a convolution and reduces them, of tensors in order."""
    message, aggregate, rest = conv.message, conv.aggregate, tuple(fixed.items())
    of_message, of_aggregate = names

    def called(*rows: Tensor) -> Any:
        *tensors, index = rows
        given = {**dict(zip(order, tensors)), **dict(rest), **dict.fromkeys(_NUMBERS, index)}
        made = times_rows(message(**{name: given[name] for name in of_message}), given.get(_STANDS_FOR))
        return aggregate(made, **{name: given[name] for name in of_aggregate})

    called.__qualname__ = f"{type(conv).__name__}.message"
    return called


def _along(message: Callable[..., Any], axis: int, ends: int) -> Callable[..., Any]:
    """Return a message for rows along the first axis, of one whose rows of nodes are along another."""

    def called(*rows: Tensor) -> Any:
        made = message(*(each.movedim(0, axis) for each in rows[:ends]), *rows[ends:])
        return made.movedim(axis, 0)

    called.__qualname__ = message.__qualname__
    return called


def _compare(conv: Any, original: Callable[..., Any], call: _Propagated) -> None:
    """Run both without dropout, where the graph is not too large; refuse the convolution if they disagree."""
    if call.edge_index.shape[1] > _CHECKED_EDGES:
        return
    with torch.no_grad(), torch.random.fork_rng(devices=[]), quiet(conv):
        expected, got = original(call.edge_index, **call.kwargs), call.run()
    if not isinstance(expected, Tensor) or not isinstance(got, Tensor):
        raise NotCovered("its update does not return one tensor")
    tolerance = {torch.float64: 1e-8, torch.float32: 1e-4}.get(expected.dtype, 3e-2)
    error = difference(got, expected) if expected.shape == got.shape else float("inf")
    if error > tolerance:
        conv._weft.refused = f"it differs from PyG's own result by {error:.1e} (tolerance {tolerance:.0e})"
        raise NotCovered(conv._weft.refused)
