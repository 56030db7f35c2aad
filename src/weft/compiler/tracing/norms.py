"""A batch norm that does not train, as the factor and the term of each feature that it is.

torch's own operator for it may as well count over edges. A group or layer norm is of one row alone.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class FixedNorms(TorchFunctionMode):
    """Writes out the batch norms under it that have their statistics from elsewhere."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what torch would, by other operators where it is such a norm."""
        if func is F.batch_norm:
            return _batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return what torch's function does; what it would refuse, or cast, is left to it."""
    own = [each for each in (running_mean, running_var, weight, bias) if each is not None]
    alike = input.dim() > 1 and all(
        each.shape == input.shape[1:2] and each.dtype == input.dtype for each in own
    )
    if training or running_mean is None or running_var is None or not alike:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return _normed(input, weight, bias, running_mean, running_var, eps)


def _normed(
    rows: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, eps: float
) -> Tensor:
    """Return rows [E, C, …] normed along the second axis, as torch rounds it."""
    scale = torch.rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    beside = [-1, *[1] * (rows.dim() - 2)]
    return rows * scale.reshape(beside) + shift.reshape(beside)
