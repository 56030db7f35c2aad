"""Batch normalisation over the rows of all ranks: the statistics, and so the outputs, of one process."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from weft.comm.collectives import all_reduce_sum
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import InputError

_LABEL = Label("norm")
Norm = TypeVar("Norm", bound=nn.BatchNorm1d)


class GlobalBatchNorm(nn.BatchNorm1d):
    """BatchNorm1d whose mean and variance are those of the rows on all ranks."""

    group: Group
    counted: Tensor | None = None
    """[rows] bool: those that count where a rank also holds replicas of others; None: all of them."""

    def forward(self, input: Tensor) -> Tensor:
        if not (self.training or self.running_mean is None):
            return super().forward(input)
        if input.dim() != 2:
            raise InputError(f"batch normalisation across workers takes [rows, columns], got {input.dim()}-D")
        # Counts travel with the sums: rows may differ from call to call, and on no rank alike.
        own = self._own(input)
        ones = torch.full((1,), float(len(own)), dtype=torch.float64, device=input.device)
        sums = all_reduce_sum(self.group, torch.cat([own.sum(0, dtype=torch.float64), ones]), label=_LABEL)
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centred = input - mean.to(input.dtype)
        squares = self._own(centred).square().sum(0, dtype=torch.float64)
        variance = all_reduce_sum(self.group, squares, label=_LABEL) / count
        self._track(mean.detach(), variance.detach(), float(count))
        out = centred * (variance + self.eps).rsqrt().to(input.dtype)
        if self.weight is not None:
            out = out * self.weight
        return out if self.bias is None else out + self.bias

    def _own(self, rows: Tensor) -> Tensor:
        if self.counted is None:
            return rows
        if len(rows) != len(self.counted):
            raise InputError(
                f"batch normalisation over {len(rows)} of {len(self.counted)} rows: where nodes are split "
                "over workers it takes all of them; use LayerNorm"
            )
        return rows[self.counted]

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, count: float) -> None:
        if not (self.training and self.track_running_stats and self.running_mean is not None):
            return
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * (count / max(count - 1.0, 1.0))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


def make_global(model: nn.Module, group: Group, counted: Tensor | None = None) -> None:
    """Replace every BatchNorm1d of a model by a global one with the same parameters and statistics.

    `counted` says which of a rank's rows count, where it holds replicas of others.
    """
    for name, module in model.named_children():
        if isinstance(module, GlobalBatchNorm):
            module.group, module.counted = group, counted
        elif isinstance(module, nn.BatchNorm1d | nn.SyncBatchNorm):
            setattr(model, name, _converted(module, group, counted))
        elif isinstance(module, nn.modules.batchnorm._BatchNorm | nn.InstanceNorm1d):
            raise InputError(
                f"{type(module).__name__} {name!r} looks at all rows of a batch and cannot do so across "
                "workers; use torch.nn.BatchNorm1d or LayerNorm"
            )
        else:
            make_global(module, group, counted)


def make_local(model: nn.Module) -> None:
    """Put plain BatchNorm1d back where `make_global` replaced them: the model is the user's again."""
    for name, module in model.named_children():
        if isinstance(module, GlobalBatchNorm):
            setattr(model, name, _moved(module, nn.BatchNorm1d))
        else:
            make_local(module)


def _converted(
    module: nn.modules.batchnorm._BatchNorm, group: Group, counted: Tensor | None
) -> GlobalBatchNorm:
    made = _moved(module, GlobalBatchNorm)
    made.group, made.counted = group, counted
    return made


def _moved(module: nn.modules.batchnorm._BatchNorm, kind: type[Norm]) -> Norm:
    """Return a module of another kind with the very parameters and statistics of a batch normalisation."""
    made = kind(
        module.num_features,
        module.eps,
        module.momentum,
        module.affine,
        module.track_running_stats,
    )
    made.weight, made.bias = module.weight, module.bias
    made.running_mean, made.running_var = module.running_mean, module.running_var
    made.num_batches_tracked = module.num_batches_tracked
    made.train(module.training)
    return made
