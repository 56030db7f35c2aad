"""torch's elementwise operators as steps: values and gradients at kinks, bounds and large numbers."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.support.messages import assert_same
from tests.support.programs import edges_of
from torch import Tensor

EDGES = edges_of(7)
WIDE = torch.float64
WHOLE = torch.arange(-3.0, 4.0, dtype=WIDE)
"""What u - v runs through: zero, the bounds below, and both sides of them."""
U = WHOLE.repeat(EDGES.num_other, 1).requires_grad_()
V = torch.zeros(EDGES.num_rows, 7, dtype=WIDE, requires_grad=True)
SLOPE = torch.full((1,), 0.3, dtype=WIDE, requires_grad=True)

OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "abs": torch.abs,
    "leaky relu": lambda x: F.leaky_relu(x, 0.3),
    "prelu": lambda x: F.prelu(x, SLOPE),
    "clamp": lambda x: x.clamp(-1.0, 2.0),
    "clamp below": lambda x: x.clamp(min=-1.0),
    "clamp above": lambda x: x.clamp(max=2.0),
    "hardtanh": lambda x: F.hardtanh(x, -1.0, 2.0),
    "larger of two": lambda x: torch.maximum(x, -x),
    "smaller of two": lambda x: torch.minimum(x, 2.0 * x),
    "to the 0": lambda x: x**0,
    "to the 3": lambda x: x**3,
    "elu": F.elu,
    "elu of a slope": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7),
    "softplus at its threshold": lambda x: F.softplus(x, threshold=2.0),
    "elu of large numbers": lambda x: F.elu(x * 400 + 1),
    "softplus of large numbers": lambda x: F.softplus(x * 400 + 1),
    "softplus that is steep": lambda x: F.softplus(x, beta=3.0, threshold=5.0),
    "silu of large numbers": lambda x: F.silu(x * 400),
    "gelu of large numbers": lambda x: F.gelu(x * 400),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_are_those_of_torch_everywhere(name: str) -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return OPERATORS[name](u - v)

    assert_same(message, EDGES, "sum", [SLOPE], src=[U], dst=[V])
