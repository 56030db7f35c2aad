"""What a run minimises: a loss of weft's by its name, or a function of the user's own.

A loss is a mean over targets, and these may lie on several workers: weft adds up their losses and divides by
how many there are, or what they weigh together. So a function `loss(outputs, y)` of one's own gives one value
a row, [n], or the mean of its rows; the first rows that it is given are tried whether they are. `outputs` is
[n, columns], `y` is [n] labels, or [n, labels] of zeros and ones, in the outputs' type, where a node has
several; of numbers it is [n] or [n, columns].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.errors import InputError
from weft.tasks.metrics import errors_of

LossFunction = Callable[[Tensor, Tensor], Tensor]
_TRIED = 1024
"""Rows on which a mean is tried, at most."""


@dataclass(frozen=True)
class Loss:
    """A loss of targets, from their outputs and labels: what is minimised is `summed` over their number."""

    name: str
    each: LossFunction
    """The loss of each target, [n]."""
    summed: LossFunction
    """Their sum; 0, with a gradient, of no targets."""
    own: bool = False
    """Whether it is a function of the user's."""
    numbers: tuple[float, ...] | None = None
    """What `named_loss` makes it of again, with its name; None: nobody else can."""


def own_loss(name: str, function: LossFunction) -> Loss:
    """Return a function of the user's as a loss; `name` is what messages call it."""
    own = _Own(name, function)
    return Loss(name, own.each, own.summed, own=True)


class _Own:
    """A function of the user's, held to what a loss is."""

    def __init__(self, name: str, function: LossFunction) -> None:
        self.name, self.function = name, function
        self.tried = False

    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row; of a mean, row by row."""
        if not len(y):
            return outputs.sum(dim=1)
        values = self._values(outputs, y)
        if values.dim():
            return values
        labels = _labels(outputs, y)
        return torch.stack([self.function(outputs[[row]], labels[[row]]) for row in range(len(y))])

    def summed(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the sum of the losses of all rows."""
        if not len(y):
            return outputs.sum() * 0.0
        values = self._values(outputs, y)
        return values.sum() if values.dim() else values * len(y)

    def _values(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return what the function gives, [n] or [], or say why that is no loss."""
        labels = _labels(outputs, y)
        values: Any = self.function(outputs, labels)
        n = len(y)
        if not isinstance(values, Tensor) or values.shape not in ((n,), ()):
            got = f"shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise self._refused(f"gives {got} for {n} rows")
        if outputs.requires_grad and not values.requires_grad:
            raise self._refused("gives a value without a gradient")
        if not values.dim() and n > 1 and not self.tried:
            self._try(outputs.detach()[:_TRIED], labels[:_TRIED])
        return values

    @torch.no_grad()
    def _try(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse one value for all rows that is not their mean, as a sum or a weighted mean is not."""
        n = len(y)
        first = max(n // 3, 1)
        whole = self.function(outputs, y)
        parts = [self.function(outputs[rows], y[rows]) for rows in (slice(first), slice(first, n))]
        mean = (parts[0] * first + parts[1] * (n - first)) / n
        if whole.isfinite() and mean.isfinite() and not torch.allclose(whole, mean, rtol=1e-3, atol=1e-6):
            raise self._refused(
                f"gives {float(whole):.4g} for {n} rows, the mean over two parts of them is {float(mean):.4g}"
            )
        self.tried = True

    def _refused(self, what: str) -> InputError:
        return InputError(
            f"train.loss: {self.name} {what}; expected one value per row, as of reduction='none', or the mean"
            " over the rows"
        )


def _labels(outputs: Tensor, y: Tensor) -> Tensor:
    return y.to(outputs.dtype) if y.dim() == 2 else y


def cross_entropy(weights: Tensor | Sequence[float] | None = None, smoothing: float = 0.0) -> Loss:
    """Return the cross-entropy of one label per target, as torch.nn.CrossEntropyLoss has it.

    `weights` [classes] says how much a target of each class counts in the sum. `smoothing` takes that share
    of a target from its class and spreads it evenly over all.
    """
    if not 0.0 <= smoothing <= 1.0:
        raise InputError(f"label smoothing: expected a share from 0 to 1, got {smoothing!r}")
    class_weights = None if weights is None else _ClassWeights(weights)

    def made(reduction: str) -> LossFunction:
        def function(outputs: Tensor, y: Tensor) -> Tensor:
            weight = None if class_weights is None else class_weights.fitting(outputs)
            return F.cross_entropy(outputs, y, weight, reduction=reduction, label_smoothing=smoothing)

        return function

    numbers = (smoothing, *(() if class_weights is None else class_weights.values.tolist()))
    return Loss("cross_entropy", made("none"), made("sum"), numbers=numbers)


class _ClassWeights:
    """What each class weighs, wherever it is asked for."""

    def __init__(self, weights: Tensor | Sequence[float]) -> None:
        self.values = torch.as_tensor(weights, dtype=torch.float64)
        sound = self.values.dim() == 1 and bool((self.values.isfinite() & (self.values >= 0)).all())
        if not sound or not bool(self.values.any()):
            raise InputError(
                "task.weights: expected one number per class, none below 0, not all 0, "
                f"got {self.values.tolist()}"
            )
        self._placed: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def fitting(self, outputs: Tensor) -> Tensor:
        """Return the weights as the outputs are, or refuse outputs of other classes."""
        if outputs.shape[1] != len(self.values):
            raise InputError(
                f"task.weights: {len(self.values)} are given, the model has {outputs.shape[1]} outputs; "
                "give one weight per output"
            )
        return self.on(outputs.device, outputs.dtype)

    def on(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the weights there; copied once, as a step must not wait for it."""
        key = (device, dtype)
        if key not in self._placed:
            self._placed[key] = self.values.to(device, dtype)
        return self._placed[key]


def _bce_each(outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="none").mean(1)


def _bce_summed(outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="sum") / y.shape[1]


CROSS_ENTROPY = cross_entropy()
"""Of one label per target."""
BCE = Loss("bce", _bce_each, _bce_summed, numbers=())
"""Binary cross-entropy averaged over labels, of several labels a target."""


def _of_numbers(name: str, of_error: Callable[[Tensor], Tensor], *numbers: float) -> Loss:
    """Return a loss of outputs [n, c] and y [n, c] or [n], from a function of output - y that is 0 at 0.

    A target's loss is the mean over the columns where y is not NaN; a row without any counts nowhere.
    """

    def each(outputs: Tensor, y: Tensor) -> Tensor:
        error, is_known = errors_of(outputs, y)
        return of_error(error).sum(1) / is_known.sum(1).clamp(min=1)

    return Loss(name, each, lambda outputs, y: each(outputs, y).sum(), numbers=numbers)


def huber(delta: float = 1.0) -> Loss:
    """Return Huber's loss: e²/2 up to |e| = delta, delta (|e| - delta/2) beyond."""
    if not delta > 0:
        raise InputError(f"huber: expected a delta above 0, got {delta!r}")

    def of_error(error: Tensor) -> Tensor:
        return F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=delta)

    return _of_numbers("huber", of_error, delta)


MSE = _of_numbers("mse", torch.square)
"""The mean of squared errors."""
MAE = _of_numbers("mae", torch.abs)
"""The mean of absolute errors."""
REGRESSION_LOSSES: dict[str, Loss] = {"mse": MSE, "mae": MAE, "huber": huber()}

_NAMED: dict[str, Callable[..., Loss]] = {
    "cross_entropy": lambda smoothing, *weights: cross_entropy(weights or None, smoothing),
    "bce": lambda: BCE,
    "mse": lambda: MSE,
    "mae": lambda: MAE,
    "huber": huber,
}
LOSSES_BY_NAME = (*_NAMED,)
"""The losses that `named_loss` makes."""


def named_loss(name: str, numbers: Sequence[float]) -> Loss:
    """Return the loss of a name and its `numbers`, as another process has it."""
    return _NAMED[name](*numbers)
