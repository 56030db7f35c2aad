"""Any `MessagePassing` of PyG, a user's own too: its `propagate` runs the message compiled.

The class keeps its forward, message and update; where a call is not covered (an aggregation of several,
hooks, a message that reads `index` …) PyG's own `propagate` runs, and the reason is told once. The first
call of each kind is compared with PyG's own.
"""

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from weft.graph.message.block import Block
from weft.graph.message.compiled import compiled_of, pays
from weft.graph.message.reduction import Propagation
from weft.interop.pyg.accelerate.adjacency import adjacency, plain
from weft.interop.pyg.accelerate.swap import HOOKS, NotCovered, State, difference, quiet, tell

_REDUCE = {
    "SumAggregation": "sum",
    "MeanAggregation": "mean",
    "MaxAggregation": "max",
    "MinAggregation": "min",
}
_SPECIAL = frozenset(
    ["index", "ptr", "size", "size_i", "size_j", "dim_size", "edge_index", "edge_index_i", "edge_index_j"]
)
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
    if type(conv.aggr_module).__name__ not in _REDUCE:
        return f"its aggregation is {type(conv.aggr_module).__name__}"
    if type(conv).aggregate is not MessagePassing.aggregate:
        return "it has an own aggregate()"
    if type(conv).propagate is not MessagePassing.propagate and not _templated(type(conv)):
        return "it has an own propagate()"
    if conv.decomposed_layers > 1:
        return "it is decomposed"
    special = sorted(_SPECIAL & set(_parameters(type(conv).message)))
    return f"its message reads {special[0]!r}, which edges share" if special else ""


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

    def reduce_ex(self: Any, protocol: Any) -> Any:
        return _empty, (original,), *original.__reduce_ex__(self, 2)[2:]

    body = {"propagate": propagate, "__reduce_ex__": reduce_ex, "__doc__": original.__doc__}
    return type(original.__name__, (original,), body | {"__module__": original.__module__})


def _empty(original: type[nn.Module]) -> nn.Module:
    kind: Any = _compiling_class(original)  # type: ignore[arg-type]
    return kind.__new__(kind)  # type: ignore[no-any-return]


def _run(conv: Any, own: Callable[..., Any], edge_index: Any, size: Any, kwargs: dict[str, Any]) -> Any:
    state: State = conv._weft
    original = partial(own, conv, size=size)
    if state.refused or torch.compiler.is_compiling():
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
        if conv.explain or any(getattr(conv, name) for name in HOOKS):
            raise NotCovered("it is being explained or has message-passing hooks")
        self.conv, self.edge_index, self.kwargs = conv, edge_index, kwargs
        self.names = _parameters(type(conv).message)
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

    def _rows(self, tensor: Tensor) -> int:
        if tensor.dim() == 0 or self.conv.node_dim % tensor.dim() != 0:
            raise NotCovered("rows are not along the first axis")
        return tensor.shape[0]

    def _asked(self) -> Propagation:
        """Return the message as a function of the tensors of sources, destinations, edges and the rest."""
        groups: dict[str, list[tuple[str, Tensor]]] = {"src": [], "dst": [], "edge": [], "params": []}
        fixed: dict[str, Any] = {}
        for name in self.names:
            given = self._given(name)
            if isinstance(given, Tensor):
                groups[self._group(name, given)].append((name, given))
            else:
                fixed[name] = given
        order = tuple(name for group in groups.values() for name, _ in group)
        message, rest = self.conv.message, tuple(fixed.items())

        def called(*rows: Tensor) -> Any:
            return message(**dict(zip(order, rows)), **dict(rest))

        tensors = {kind: [tensor for _, tensor in group] for kind, group in groups.items()}
        tensors["edge"] = [self.adjacency.ordered(each) for each in tensors["edge"]]
        reduce = _REDUCE[type(self.conv.aggr_module).__name__]
        return Propagation(called, **tensors, reduce=reduce)  # type: ignore[arg-type]

    def _given(self, name: str) -> Any:
        ends = name[-2:] in ("_i", "_j")
        key = name[:-2] if ends else name
        if key not in self.kwargs:
            default = inspect.signature(type(self.conv).message).parameters[name].default
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
                raise NotCovered(f"{name[:-2]} has {given.shape[0]} rows, not {self.size[side]}")
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
        how = self.how
        out = self.block.propagate(how.message, how.src, how.dst, how.edge, how.reduce, how.params)
        names = _parameters(type(self.conv).update)[1:]
        if any(name not in self.kwargs for name in names):
            raise NotCovered("its update reads what propagate was not given")
        return self.conv.update(out, **{name: self.kwargs[name] for name in names})


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


__all__ = ["Block", "compile_messages_of", "is_message_passing", "obstacle"]
