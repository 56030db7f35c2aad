"""Any `MessagePassing` of PyG, a user's own too: its `propagate` runs message and aggregation compiled.

The class keeps its forward, message, aggregate and update; where a call is not covered (hooks, a draw of
random numbers, an aggregation that sorts …) PyG's own `propagate` runs, and the reason is told once. The
first call of each kind is compared with PyG's own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from weft.graph.message.compiled import compiled_of, compiles, pays
from weft.interop.pyg.accelerate.calls import WHOLE, PropagateCall, UpdateCall, parameters, propagated
from weft.interop.pyg.accelerate.edge_updates import EdgeUpdate, Form, edge_values
from weft.interop.pyg.accelerate.swap import NotCovered, State, difference, quiet, tell

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
_CHECKED_EDGES = 1 << 18


def is_message_passing(module: nn.Module) -> bool:
    """Return whether a module is of PyG's `MessagePassing` and not accelerated yet."""
    from torch_geometric.nn import MessagePassing

    return isinstance(module, MessagePassing) and "_weft" not in module.__dict__


def obstacle(conv: Any) -> str:
    """Return why no call of a convolution would be compiled, by how it was made; "" where some would."""
    from torch_geometric.nn import MessagePassing

    if type(conv).propagate is not MessagePassing.propagate and not _templated(type(conv)):
        return "it has an own propagate()"
    return _changed(conv)


def _changed(conv: Any) -> str:
    """Return why a convolution is not compiled as it is now: these settings can be set at any time."""
    from torch_geometric.nn import MessagePassing

    if conv.flow != "source_to_target":
        return f"flow is {conv.flow!r}"
    if conv.decomposed_layers > 1:
        return "it is decomposed"
    if type(conv).aggregate is MessagePassing.aggregate and (name := _other_aggregation(conv)):
        return f"its aggregation is {name}"
    special = sorted(WHOLE & {*parameters(type(conv).message), *parameters(type(conv).aggregate)})
    return f"its message reads {special[0]!r}" if special else ""


def _other_aggregation(conv: Any) -> str:
    """Return the name of an aggregation of PyG's that is not made of sums and extremes, "" for none."""
    from torch_geometric.nn.aggr import Aggregation

    if conv.aggr_module is None:
        return "none at all"
    found = (type(each) for each in conv.aggr_module.modules() if isinstance(each, Aggregation))
    pygs = (each.__name__ for each in found if each.__module__.startswith("torch_geometric."))
    return next((name for name in pygs if name not in _MADE_OF_SUMS), "")


def _templated(kind: Any) -> bool:
    """Return whether PyG wrote `propagate` itself, from its template."""
    return kind.propagate is getattr(kind, "_jinja_propagate", None)


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
    if (updater := _updater(original)) is not None:
        body["edge_updater"] = updater
    if _WEIGHTS in parameters(original.forward):
        body["forward"] = forward
    return type(original.__name__, (original,), body | {"__module__": original.__module__})


def _empty(original: type[nn.Module]) -> nn.Module:
    kind: Any = _compiling_class(original)  # type: ignore[arg-type]
    return kind.__new__(kind)  # type: ignore[no-any-return]


def _asks_weights(original: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a call of forward asks for attention weights, which a compiled message does not keep."""
    names = parameters(original.forward)
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


def _updater(original: Any) -> Callable[..., Any] | None:
    """Return an `edge_updater` that leaves its work to `propagate`, for a class that has PyG's own."""
    from torch_geometric.nn import MessagePassing

    own = original.edge_updater
    templated = own is getattr(original, "_jinja_edge_updater", None)
    if original.edge_update is MessagePassing.edge_update or not (
        templated or own is MessagePassing.edge_updater
    ):
        return None

    def edge_updater(self: Any, edge_index: Any, *args: Any, size: Any = None, **kwargs: Any) -> Any:
        if args:
            return own(self, edge_index, *args, size=size, **kwargs)
        return _updated(EdgeUpdate.of(self, own, edge_index, size, kwargs))

    return edge_updater


def _updated(update: EdgeUpdate) -> Any:
    """Return the rows of a call of `edge_updater`: to be made with the message that reads them, or now."""
    conv, state = update.conv, update.conv._weft
    training = conv.training
    if state.refused or training in state.apart or torch.compiler.is_compiling() or not compiles():
        return update.now()
    try:
        if why := _changed(conv):
            raise NotCovered(why)
        form = _form_of(update)
    except NotCovered as reason:
        tell(state, f"{type(conv).__name__} runs PyG's own edge_updater: {reason}")
        return update.now()

    def read() -> None:
        _keep_apart(conv, training, "what it gives is read by more than propagate")

    return update.now() if form is None else edge_values(update, form, read)


def _keep_apart(conv: Any, training: bool, reason: str) -> None:
    """Run PyG's own `edge_updater` from now on."""
    conv._weft.apart.add(training)
    tell(conv._weft, f"{type(conv).__name__} runs PyG's own edge_updater: {reason}")


def _form_of(update: EdgeUpdate) -> Form | None:
    """Return the shape and type of what `edge_updater` gives; None where the edges are too few."""
    call = UpdateCall(update)
    return call.form() if pays(call.block, call.how) else None


def _run(conv: Any, own: Callable[..., Any], edge_index: Any, size: Any, kwargs: dict[str, Any]) -> Any:
    state: State = conv._weft
    original = partial(own, conv, size=size)
    if state.refused or torch.compiler.is_compiling() or not compiles():
        return original(edge_index, **kwargs)
    try:
        call = _covered(conv, edge_index, size, kwargs)
        if call is None:
            return original(edge_index, **kwargs)
        if state.check and call.kind not in state.checked:
            _compare(conv, original, call)
            state.checked.add(call.kind)
        return call.run()
    except NotCovered as reason:
        tell(state, f"{type(conv).__name__} runs PyG's own propagate: {reason}")
        return original(edge_index, **kwargs)


def _covered(conv: Any, edge_index: Any, size: Any, kwargs: dict[str, Any]) -> PropagateCall | None:
    """Return a call that is compiled; None where the edges are too few for it to pay."""
    if reason := _changed(conv):
        raise NotCovered(reason)
    call = propagated(conv, edge_index, size, kwargs)
    if call.updates and isinstance(found := compiled_of(call.how), str):
        _keep_apart(conv, conv.training, f"it is not compiled with the message: {found}")
        call = propagated(conv, edge_index, size, kwargs, joined=False)
    if not pays(call.block, call.how):
        return None
    found = compiled_of(call.how)
    if isinstance(found, str):
        raise NotCovered(f"its message is not compiled: {found}")
    return call


def _compare(conv: Any, original: Callable[..., Any], call: PropagateCall) -> None:
    """Run both without dropout, where the graph is not too large; refuse the convolution if they disagree."""
    if call.edge_index.shape[1] > _CHECKED_EDGES:
        return
    with torch.no_grad(), torch.random.fork_rng(devices=[]), quiet(conv):
        kwargs = call.kwargs | {name: each.values() for name, each in call.updates.items()}
        expected, got = original(call.edge_index, **kwargs), call.run()
    if not isinstance(expected, Tensor) or not isinstance(got, Tensor):
        raise NotCovered("its update does not return one tensor")
    tolerance = {torch.float64: 1e-8, torch.float32: 1e-4}.get(expected.dtype, 3e-2)
    error = difference(got, expected) if expected.shape == got.shape else float("inf")
    if error > tolerance:
        conv._weft.refused = f"it differs from PyG's own result by {error:.1e} (tolerance {tolerance:.0e})"
        raise NotCovered(conv._weft.refused)
