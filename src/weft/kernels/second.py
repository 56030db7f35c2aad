"""Gradients of gradients: by plain torch where an operator has such a form, else refused in one line.

An operator's own backward is fast and is no graph that autograd could follow. Under `create_graph=True` a
backward that leaves it at that would give a gradient without its second-order terms, in silence.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NoReturn

import torch
from torch import Tensor

from weft.errors import GraphError

Backward = Callable[..., tuple[Any, ...]]


def plain_gradients(
    form: Callable[..., Any], given: Sequence[Any], wanted: Sequence[bool], towards: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients of `form(*given)`, plain torch, by the arguments wanted.

    `towards` are the gradients of its results. Where gradients are enabled, those returned have some in turn.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # Aliases: one argument may have been made of another, whose gradient is not to pass through it here.
        leaves = [each.view_as(each) if want else each for each, want in zip(given, wanted, strict=True)]
        made = form(*leaves)
    made = (made,) if isinstance(made, Tensor) else made
    live = [(out, g) for out, g in zip(made, towards) if g is not None and out.requires_grad]
    asked = [leaf for leaf, want in zip(leaves, wanted) if want]
    if not live or not asked:
        return [None] * len(leaves)
    outputs, above = zip(*live)
    found = iter(torch.autograd.grad(outputs, asked, above, create_graph=again, allow_unused=True))
    return [next(found) if want else None for want in wanted]


def first_derivatives_only(what: str, remedy: str) -> Callable[[Backward], Backward]:
    """Return a decorator of a Function's backward, which then refuses to run under `create_graph=True`.

    Torch's own `once_differentiable` refuses later, and not where `torch.autograd.grad` names the inputs.
    """

    def decorate(backward: Backward) -> Backward:
        @wraps(backward)
        def once(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            return refuse(what, remedy) if torch.is_grad_enabled() else backward(ctx, *grads)

        return once

    return decorate


here_only = first_derivatives_only("what came from other workers", "need strategy = 'single'")
"""The same of what communicates: gradients that have travelled are no graph."""


def refuse(what: str, remedy: str) -> NoReturn:
    """Say that there is no second derivative, and what has one."""
    raise GraphError(f"{what} has first derivatives alone; second ones (create_graph=True) {remedy}")
