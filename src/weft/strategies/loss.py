"""What a run minimises: a loss of weft's by its name, or a function of the user's own.

A loss is a mean over nodes, and these may lie on several workers: weft adds up their losses and divides by
how many there are. So a function `loss(outputs, y)` of one's own gives one value a row, [n], or the mean of
its rows; the first rows that it is given are tried whether they are. `outputs` is [n, columns], `y` is [n]
labels, or [n, labels] of zeros and ones, in the outputs' type, where a node has several.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.errors import InputError, RecipeError

LossName = Literal["auto", "cross_entropy", "bce"]
LOSSES: tuple[str, ...] = get_args(LossName)
LossFunction = Callable[[Tensor, Tensor], Tensor]
_TRIED = 1024
"""Rows on which a mean is tried, at most."""


@dataclass(frozen=True)
class Loss:
    """A loss of nodes, from their outputs and labels."""

    name: str
    each: LossFunction
    """The loss of each node, [n]."""
    summed: LossFunction
    """Their sum; 0, with a gradient, of no nodes."""
    own: bool = False
    """Whether it is a function of the user's."""


class Labelled(Protocol):
    """A graph, or what a worker holds of one."""

    @property
    def multilabel(self) -> bool:
        """Whether a node has several labels."""


def choose_loss(given: str | Loss, graph: Labelled) -> Loss:
    """Return the loss that fits the labels, or refuse one that does not."""
    if isinstance(given, Loss):
        return given
    fitting = "bce" if graph.multilabel else "cross_entropy"
    if given not in ("auto", fitting):
        labels = "several labels" if graph.multilabel else "one label"
        raise RecipeError(
            f"train.loss: {given!r} does not fit a graph with {labels} a node; use {fitting!r} or 'auto'"
        )
    return BCE if graph.multilabel else CROSS_ENTROPY


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
            f"train.loss: {self.name} {what}; expected one value a row, as with reduction='none', or the mean"
            " over the rows"
        )


def _labels(outputs: Tensor, y: Tensor) -> Tensor:
    return y.to(outputs.dtype) if y.dim() == 2 else y


def _cross_entropy_each(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs, y, reduction="none")


def _cross_entropy_summed(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs, y, reduction="sum")


def _bce_each(outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="none").mean(1)


def _bce_summed(outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="sum") / y.shape[1]


CROSS_ENTROPY = Loss("cross_entropy", _cross_entropy_each, _cross_entropy_summed)
"""Of one label a node."""
BCE = Loss("bce", _bce_each, _bce_summed)
"""Binary cross-entropy averaged over labels, of several labels a node."""
