"""The swap itself: a convolution's class becomes a subclass with our forward, PyG's own behind it.

An instance keeps its parameters, buffers, names and hooks; `isinstance`, `state_dict`, `deepcopy` and
pickling work as before. `_covered` maps PyG's class to our function, which raises `NotCovered` for a call
that it does not do, and to a check of the convolution itself.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from weft.compiler.tracing.held import held_by
from weft.errors import WeftWarning
from weft.interop.pyg.accelerate.adjacency import plain
from weft.interop.pyg.accelerate.as_made import changed, is_uninitialized
from weft.kernels import gpu

Forward = Callable[..., Tensor]
_CHECKED_EDGES = 1 << 18  # PyG's own forward on all edges of a large graph may not fit in memory


class NotCovered(Exception):
    """This call needs PyG's own forward; the message says why."""


@dataclass
class State:
    """What a swapped convolution remembers."""

    read_by_no_message: ClassVar[bool] = True
    """So that the compiler of messages does not take it for something that they depend on."""

    check: bool = True
    refused: str = ""
    checked: set[Any] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    apart: set[bool] = field(default_factory=set)
    """Whether `edge_updater` runs by itself, in training and outside."""
    stands_for: Tensor | None = None
    """What messages are weighed by while a hook does so, one number per edge (`weighing`)."""


def swappable(module: nn.Module) -> bool:
    """Return whether the module is a PyG convolution of exactly a class that we cover."""
    return type(module) in _covered()


def refusal(module: nn.Module) -> str | None:
    """Return why no call of a convolution would run on our kernels, by how it was made; None: some would."""
    try:
        if module.flow != "source_to_target":
            raise NotCovered(f"flow is {module.flow!r}")
        _covered()[type(module)].check(module)
    except NotCovered as reason:
        return str(reason)
    return None


def _require_as_made(conv: nn.Module, covered: "Covered") -> None:
    """Raise where a forward of ours would ignore what a convolution has become since it was accelerated."""
    if reason := changed(conv):
        raise NotCovered(reason)
    covered.check(conv)


def covered() -> list[str]:
    """Return the names of the classes that we cover."""
    return sorted({kind.__name__ for kind in _covered()})


def is_swapped(module: nn.Module) -> bool:
    """Return whether the module runs on our kernels."""
    state = module.__dict__.get("_weft")
    return isinstance(state, State) and not state.refused


def convert(module: nn.Module, *, check: bool) -> None:
    """Give the convolution our forward."""
    module.__class__ = _accelerated_class(type(module))  # type: ignore[arg-type]
    module._weft = State(check=check)  # type: ignore[assignment]


def _run(conv: nn.Module, original: Forward, covered: "Covered", args: Any, kwargs: Any) -> Any:
    state: State = conv._weft  # type: ignore[assignment]
    if state.refused or torch.compiler.is_compiling() or is_uninitialized(conv):
        return original(conv, *args, **kwargs)
    fast = covered.forward
    try:
        call = _bound(original, conv, args, kwargs)
        _require_as_made(conv, covered)
        _require_covered(conv, call)
        if state.check and _kind(conv, call) not in state.checked:
            _compare(conv, original, fast, call)
            state.checked.add(_kind(conv, call))
        return fast(conv, **call)
    except NotCovered as reason:
        name = type(conv).__base__.__name__  # type: ignore[union-attr]
        tell(state, f"{name} runs PyG's own forward: {reason}")
        return original(conv, *args, **kwargs)


def tell(state: State, told: str) -> None:
    """Warn of what is not covered, once a convolution."""
    if told not in state.told:
        state.told.add(told)
        warnings.warn(told, WeftWarning, stacklevel=5)


def _bound(original: Forward, conv: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        bound = _signature(original).bind(conv, *args, **kwargs)
    except TypeError as error:
        raise NotCovered("its arguments do not fit") from error
    bound.apply_defaults()
    call = dict(bound.arguments)
    del call["self"]
    return call


def _require_covered(conv: nn.Module, call: dict[str, Any]) -> None:
    """Raise for what no accelerated forward covers."""
    x = call["x"][0] if isinstance(call["x"], tuple | list) else call["x"]
    edge_index = call["edge_index"]
    if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
        raise NotCovered(f"the graph is given as {type(edge_index).__name__}, not as a (2, E) edge_index")
    if type(edge_index) is not Tensor and not hasattr(edge_index, "as_tensor"):
        raise NotCovered(f"edge_index is a {type(edge_index).__name__}")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise NotCovered(f"edge_index has shape {tuple(edge_index.shape)}")
    if not edge_index.is_cpu and not (edge_index.is_cuda and gpu.available()):
        raise NotCovered(f"the graph is on {edge_index.device.type}, where there are no kernels")
    if isinstance(x, Tensor) and x.device != edge_index.device:
        raise NotCovered(f"x is on {x.device}, the graph on {edge_index.device}")
    if isinstance(x, Tensor) and x.dim() != 2 and x.is_floating_point():
        raise NotCovered(f"x has {x.dim()} dimensions")
    if torch.is_autocast_enabled(edge_index.device.type):
        raise NotCovered("autocast is on")
    if conv.explain or any(getattr(conv, name) for name in HOOKS):
        raise NotCovered("it is being explained or has message-passing hooks")


HOOKS = tuple(
    f"_{what}_forward{when}_hooks"
    for what in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("_pre", "")
)


def _kind(conv: nn.Module, call: dict[str, Any]) -> tuple[Any, ...]:
    """Return what tells calls apart that could go different ways."""
    return (conv.training, *((name, _form(value)) for name, value in call.items()))


def _form(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.dtype, value.dim()
    return tuple(map(_form, value)) if isinstance(value, tuple | list) else type(value)


def _compare(conv: nn.Module, original: Forward, fast: Forward, call: dict[str, Any]) -> None:
    """Run both forwards without dropout on (a part of) the call; refuse the convolution if they disagree."""
    call = _fewer_edges(call)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), quiet(conv):
        expected, got = original(conv, **call), fast(conv, **call)
    tolerance = {torch.float64: 1e-8, torch.float32: 1e-4}.get(expected.dtype, 3e-2)
    same_shape = expected.shape == got.shape
    error = difference(got, expected) if same_shape else float("inf")
    if error <= tolerance:
        return
    state: State = conv._weft  # type: ignore[assignment]
    state.refused = f"it differs from PyG's own result by {error:.1e} (tolerance {tolerance:.0e})"
    raise NotCovered(state.refused)


def difference(got: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest value where that is above 1."""
    if expected.numel() == 0:
        return 0.0
    same = (got == expected) | (got.isnan() & expected.isnan())
    gap = (got - expected).abs().masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    scale = expected.abs().nan_to_num(nan=0.0, posinf=0.0).max()
    return float(gap.max() / max(1.0, float(scale)))


def _fewer_edges(call: dict[str, Any]) -> dict[str, Any]:
    """Return the call on every n-th edge where the graph is large: any subset of edges is a graph too."""
    edges = call["edge_index"].shape[1]
    if edges <= _CHECKED_EDGES:
        return call
    keep = torch.arange(0, edges, -(-edges // _CHECKED_EDGES), device=call["edge_index"].device)
    part = {"edge_index": plain(call["edge_index"])[:, keep]}
    for name in ("edge_weight", "edge_attr", "edge_type"):
        if isinstance(call.get(name), Tensor):
            part[name] = call[name][keep]
    return call | part


@contextmanager
def quiet(conv: nn.Module) -> Iterator[None]:
    """Switch dropout and running statistics off, and put back whatever the convolution reaches."""
    held = held_by(conv.forward)
    if held.used_up:
        raise NotCovered(f"it reads a {held.used_up}, which a comparison would use up")
    modes = [(module, module.training) for module in conv.modules()]
    conv.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        held.restored()


@cache
def _signature(forward: Forward) -> inspect.Signature:
    return inspect.signature(forward)


class Covered(NamedTuple):
    """What runs the calls of a class of PyG, and what refuses convolutions of it by how they were made."""

    forward: Forward
    check: Callable[[Any], None]


@cache
def _covered() -> dict[type[nn.Module], Covered]:
    from torch_geometric import nn as pyg

    from weft.interop.pyg.accelerate import attending, relational, summing

    return {
        pyg.GCNConv: Covered(summing.gcn, summing.check_gcn),
        pyg.SAGEConv: Covered(summing.sage, summing.check),
        pyg.GraphConv: Covered(summing.graph, summing.check),
        pyg.GINConv: Covered(summing.gin, summing.check),
        pyg.SGConv: Covered(summing.sgc, summing.check_sum),
        pyg.APPNP: Covered(summing.appnp, summing.check_sum),
        pyg.GATConv: Covered(attending.gat, attending.check_gat),
        pyg.GATv2Conv: Covered(attending.gatv2, attending.check),
        pyg.TransformerConv: Covered(attending.transformer, attending.check_transformer),
        pyg.RGCNConv: Covered(relational.rgcn, relational.check),
        pyg.FastRGCNConv: Covered(relational.rgcn, relational.check),
    }


@cache
def _accelerated_class(original: type[nn.Module]) -> type[nn.Module]:
    covered = _covered()[original]

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return _run(self, original.forward, covered, args, kwargs)

    name = f"Accelerated{original.__name__}"
    body = {"forward": forward, "__module__": __name__, "__qualname__": name, "__doc__": original.__doc__}
    return type(name, (original,), body)


def __getattr__(name: str) -> Any:
    # Unpickling looks the subclass up by its name in this module.
    for original in _covered() if name.startswith("Accelerated") else ():
        if name == f"Accelerated{original.__name__}":
            return _accelerated_class(original)  # type: ignore[arg-type]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
