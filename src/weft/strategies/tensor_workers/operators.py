"""What a tensor worker can do, by name. Nothing else runs there, and no code is ever sent.

A gradient is given what the operator was given and makes again what it needs of it, rather than being sent
that.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from weft import kernels

Operator = Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]
"""(rows that were sent, weights) to results."""


def apply_vertex(sent: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return rows weightᵀ + bias; weights are the matrix and, where there is one, the bias."""
    return [F.linear(sent[0], *weights)]


def apply_vertex_gradient(sent: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of rows, matrix and bias from rows and the gradient of the result."""
    return _gradients(apply_vertex, sent[:1], weights, sent[1:])


def apply_edge(sent: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return rows weightᵀ and both halves of the scores of edges; sent are rows and columns."""
    return list(kernels.project(sent[0], weights[0], sent[1]))


def apply_edge_gradient(sent: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of rows, columns and matrix."""
    return _gradients(apply_edge, sent[:2], weights, sent[2:])


OPERATORS: Mapping[str, Operator] = {
    "apply_vertex": apply_vertex,
    "apply_vertex_gradient": apply_vertex_gradient,
    "apply_edge": apply_edge,
    "apply_edge_gradient": apply_edge_gradient,
}


def _gradients(
    operator: Operator, sent: Sequence[Tensor], weights: Sequence[Tensor], towards: Sequence[Tensor]
) -> list[Tensor]:
    """Return the gradients of all that an operator was given, which it is run on again."""
    given = [each.detach().requires_grad_() for each in (*sent, *weights)]
    with torch.enable_grad():
        made = operator(given[: len(sent)], given[len(sent) :])
    return list(torch.autograd.grad(made, given, list(towards)))
