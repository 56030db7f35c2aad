"""`weft.accelerate(model)`: an existing PyG model keeps its code and parameters and gets our kernels.

Each convolution that is covered changes its class to a subclass with another `forward`; any other
`MessagePassing`, a user's own too, to one whose `propagate` compiles its message. Nothing else about the
model changes. A call that is not covered (hooks, explanations, returned attention weights, another device
…) runs PyG's own forward and says so once. The first call of each kind is compared with PyG's own result on
the same input.
"""

import warnings
from typing import TypeVar

from torch import nn

from weft.errors import InputError, WeftWarning
from weft.interop.pyg.accelerate.inputs import watch_inputs
from weft.interop.pyg.accelerate.messages import compile_messages_of, is_message_passing, obstacle
from weft.interop.pyg.accelerate.swap import convert, covered, is_swapped, refusal, swappable
from weft.registry import require

Model = TypeVar("Model", bound=nn.Module)


def accelerate(model: Model, *, check: bool = True) -> Model:
    """Return the same model with its PyG convolutions running on weft's kernels.

    >>> from torch_geometric.nn import GAT
    >>> accelerated(accelerate(GAT(8, 16, num_layers=2)))
    ['convs.0: GATConv', 'convs.1: GATConv']

    With `check`, the first call of each kind is compared with PyG's own forward on the same input (dropout
    off, the state of the random generators kept); a convolution that disagrees warns and goes back to its own
    forward.
    """
    require("torch_geometric", "pyg")
    _check_model(model)
    for module in list(model.modules()):
        reason = refusal(module) if swappable(module) else ""
        if swappable(module) and reason is None:
            convert(module, check=check)
            watch_inputs(model)
        elif is_message_passing(module) and not (why := obstacle(module)):
            compile_messages_of(module, check=check)
        elif swappable(module) or is_message_passing(module):
            message = f"{type(module).__name__} runs PyG's own forward: {reason or why}"
            warnings.warn(message, WeftWarning, stacklevel=2)
    if not accelerated(model):
        message = (
            f"nothing in {type(model).__name__} could be accelerated; covered are {', '.join(covered())}"
        )
        warnings.warn(message, WeftWarning, stacklevel=2)
    return model


def accelerated(model: nn.Module) -> list[str]:
    """Return "name: class" of each convolution of the model that runs on weft's kernels."""
    _check_model(model)
    return [
        f"{name or 'model'}: {type(module).__base__.__name__}"  # type: ignore[union-attr]
        for name, module in model.named_modules()
        if is_swapped(module)
    ]


def _check_model(model: object) -> None:
    if isinstance(model, type):
        raise InputError(f"expected a PyG model, got the class {model.__name__}; call it to make one")
    if not isinstance(model, nn.Module):
        raise InputError(f"expected a PyG model, a torch.nn.Module, got {model!r}")
