"""Whether a convolution still is what its class makes of it: a forward of ours reads its numbers, no code.

Hand-made forwards never call `message` or `aggregate`, and multiply with the matrices of linear maps that PyG
calls. What was put in their place, or hooked to them, after a convolution was accelerated would be ignored.
Asked at every call, so it looks at names and types alone.
"""

from functools import cache
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from weft.compiler.tracing.captures import hooks_of_all_modules

_METHODS = (
    *("message", "aggregate", "update", "message_and_aggregate", "edge_update"),
    *("propagate", "edge_updater"),
)
"""The methods that PyG's own forward calls."""
_OWN = ("torch_geometric.", "weft.")
"""Where methods of PyG's classes, and of ours made of them, are written."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CALLED = "nn"
"""The name of a submodule that forwards of ours call as it is."""
_REDUCES = "aggr_module"


def changed(conv: Any) -> str:
    """Return what of a convolution a forward of ours would ignore; "" where there is nothing."""
    if conv.flow != "source_to_target":
        return f"flow is {conv.flow!r}"
    if hooks_of_all_modules():
        return "hooks are registered for all modules"
    if name := _other_method(conv):
        return f"its {name}() is not PyG's"
    found = (_other_module(name, each) for name, each in conv._modules.items() if each is not None)
    return next((each for each in found if each), "")


def is_uninitialized(conv: nn.Module) -> bool:
    """Return whether the sizes of a convolution are told by its first call."""
    return any(is_lazy(each) for each in conv.parameters())


def _other_method(conv: Any) -> str:
    kind: Any = type(conv)
    held = vars(conv)
    others = (name for name in _METHODS if name in held or not _is_own(getattr(kind, name)))
    return next(others, "" if _is_own(kind.__base__.forward) else "forward")


def _is_own(method: Any) -> bool:
    """Return whether a method is of PyG or ours; `functools.wraps` would give another its `__module__`."""
    return (getattr(method, "__globals__", {}).get("__name__") or "").startswith(_OWN)


def _other_module(name: str, module: nn.Module) -> str:
    """Return what a submodule does that a forward of ours would leave out."""
    if name == _CALLED:
        return ""
    if any(getattr(module, kind) for kind in _HOOKS):
        return f"its {name} has hooks"
    own = _is_aggregation(module) if name == _REDUCES else _is_linear(module)
    return "" if own else f"its {name} is a {type(module).__name__}"


def _is_aggregation(module: Any) -> bool:
    """Return whether a module is one of PyG's aggregations, as PyG has written it."""
    methods = (module.forward, type(module).__call__, module.reduce)
    return type(module).__module__.startswith("torch_geometric.") and all(map(_is_own, methods))


def _is_linear(module: Any) -> bool:
    """Return whether a module is x W + b of its own `weight` and `bias`, which parametrisations may make."""
    return type(module).forward in _linear_forwards() and "forward" not in vars(module)


@cache
def _linear_forwards() -> tuple[Any, ...]:
    from torch_geometric.nn import Linear

    return nn.Linear.forward, Linear.forward
