"""What a tensor worker can do, by name. Nothing else runs there, and no code is ever sent.

A gradient is given what the operator was given and makes again what it needs of it, rather than being sent
that. The product that a pass ends with goes with its loss: `apply_vertex_LOSS` gives loss and gradients at
once. `…_of_weights` leaves out the gradient of rows that nobody learns.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from weft import kernels
from weft.tasks.loss import LOSSES_BY_NAME, named_loss

Operator = Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]
"""(rows that were sent, weights) to results."""


def apply_vertex(sent: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return rows weightᵀ + bias; weights are the matrix and, where there is one, the bias."""
    return [F.linear(sent[0], *weights)]


def apply_edge(sent: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return rows weightᵀ and both halves of the scores of edges; sent are rows and columns."""
    return list(kernels.project(sent[0], weights[0], sent[1]))


def joined_with(loss: str, number: str = "") -> str:
    """Return the name of the operator that makes a product, its loss and the gradients of both."""
    return f"apply_vertex_{loss}{number}"


def gradient_of(name: str) -> str:
    """Return the name of an operator's gradient."""
    return f"{name}_gradient"


def of_weights(name: str) -> str:
    """Return the name of a gradient without that of the rows."""
    return f"{name}_of_weights"


def _gradient(
    operator: Operator, taken: int, first: int, sent: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    """Return the gradients of what an operator takes from `first` on; sent are the operator's and towards."""
    given = _leaves([*sent[:taken], *weights], first)
    with torch.enable_grad():
        made = operator(given[:taken], given[taken:])
    return list(torch.autograd.grad(made, given[first:], list(sent[taken:])))


def _joined(loss: str, first: int, sent: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the loss of some rows of a product, and the gradients; sent are rows, places, y and numbers.

    The first number is what the sum of losses is divided by, the others are the loss's.
    """
    rows, places, y, numbers = sent
    count, *settings = numbers.tolist()
    given = _leaves([rows, *weights], first)
    with torch.enable_grad():
        outputs = F.linear(given[0], *given[1:])[places]
        value = named_loss(loss, settings).summed(outputs, y) / count
    return [value.detach(), *torch.autograd.grad(value, given[first:])]


def _leaves(given: Sequence[Tensor], first: int) -> list[Tensor]:
    """Return tensors to differentiate by, those from `first` on."""
    return [each.detach().requires_grad_(place >= first) for place, each in enumerate(given)]


def _operators() -> dict[str, Operator]:
    found: dict[str, Operator] = {"apply_vertex": apply_vertex, "apply_edge": apply_edge}
    for name, taken in (("apply_vertex", 1), ("apply_edge", 2)):
        found[gradient_of(name)] = partial(_gradient, found[name], taken, 0)
        found[of_weights(gradient_of(name))] = partial(_gradient, found[name], taken, 1)
    for loss in LOSSES_BY_NAME:
        found[joined_with(loss)] = partial(_joined, loss, 0)
        found[of_weights(joined_with(loss))] = partial(_joined, loss, 1)
    return found


OPERATORS: Mapping[str, Operator] = _operators()
JOINED = frozenset(
    name for loss in LOSSES_BY_NAME for name in (joined_with(loss), of_weights(joined_with(loss)))
)
"""The operators that do a loss with its product."""
