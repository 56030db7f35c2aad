"""Gradients of torch.func: weft has no rule for them, and torch would take a tangent for zero."""

from typing import Any

import torch
from torch._C._functorch import TransformType

from weft.errors import GraphError

_REFUSED = {TransformType.Grad: "grad, vjp and jacrev", TransformType.Jvp: "jvp and jacfwd"}


def refuse_transforms() -> None:
    """Raise inside of a gradient of torch.func, before anything is remembered of its tensors."""
    if torch.compiler.is_compiling():
        return
    level: Any = torch._C._functorch.peek_interpreter_stack()
    if level is not None and level.key() in _REFUSED:
        raise GraphError(
            f"torch.func: expected no {_REFUSED[level.key()]} around weft's operators, which have no rule "
            "for them; use loss.backward() or torch.autograd.grad"
        )
