"""Losses of links: how far true pairs stand above their negatives.

All are functions of `outputs` [n, 1 + k], column 0 the score of the true pair, the others those of its
negatives, and give one value per pair, [n]. A negative of -inf is left out: it changes neither value nor
gradient, and a mean over negatives is one over those that are left. A pair without any negative is defined:
what is said of negatives is then 0.
"""

from collections.abc import Callable
from typing import Annotated, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.config import Range, bind
from weft.errors import InputError, UnknownName
from weft.registry import suggest
from weft.tasks.loss import Loss
from weft.tasks.ranking import LEFT_OUT

AboveZero = Annotated[float, Range(above=0)]


class PairLoss(Protocol):
    """The loss of each pair, [n], from scores [n, 1 + k]."""

    def __call__(self, outputs: Tensor, log_q: Tensor | None = None, /) -> Tensor:
        """Return [n]; `log_q` [n, 1 + k] is the log of the chance that a column's node was drawn."""


def cross_entropy() -> PairLoss:
    """Return -(log σ(true) + mean of log σ(-negative)) / 2: true pairs and negatives weigh the same."""

    def each(true: Tensor, negative: Tensor, counts: Tensor) -> Tensor:
        return (_mean(-F.logsigmoid(-negative), counts) - F.logsigmoid(true)) / 2

    return _Compared("cross_entropy", each)


def bpr() -> PairLoss:
    """Return the mean of -log σ(true - negative) (Rendle et al., 2009)."""

    def each(true: Tensor, negative: Tensor, counts: Tensor) -> Tensor:
        return _mean(-F.logsigmoid(true[:, None] - negative), counts)

    return _Compared("bpr", each)


def margin(margin: AboveZero = 1.0) -> PairLoss:
    """Return the mean of max(0, margin - true + negative)."""

    def each(true: Tensor, negative: Tensor, counts: Tensor) -> Tensor:
        return _mean(F.relu(margin - true[:, None] + negative), counts)

    return _Compared("margin", each)


def infonce(temperature: AboveZero = 1.0) -> PairLoss:
    """Return -log softmax of the true pair among itself and its negatives, of outputs / temperature.

    Where negatives are drawn by chance q, as the other pairs' ends of a batch are, popular nodes come as
    negatives too often. `log_q`, of every column, the true one too, is taken off the logits for that (Yi et
    al., 2019); what it has in common over a row is without effect.
    """

    def loss(outputs: Tensor, log_q: Tensor | None = None, /) -> Tensor:
        logits = outputs / temperature
        if log_q is not None:
            _same_shape(outputs, log_q)
            # What is left out may have no chance either, and -inf less -inf is no number.
            logits = (logits - log_q).where(outputs != LEFT_OUT, LEFT_OUT)
        return torch.logsumexp(logits, dim=1) - logits[:, 0]

    return loss


def negative_sampling() -> PairLoss:
    """Return -log σ(true) - sum of log σ(-negative), as GraphSAGE has it (Mikolov et al., 2013).

    With Q negatives a pair their sum is Q times what is expected of one.
    """

    def each(true: Tensor, negative: Tensor, counts: Tensor) -> Tensor:
        return (-F.logsigmoid(-negative)).where(counts, 0.0).sum(1) - F.logsigmoid(true)

    return _Compared("negative_sampling", each)


def self_adversarial(temperature: Annotated[float, Range(least=0)] = 1.0) -> PairLoss:
    """Return -(log σ(true) + Σ p log σ(-negative)) / 2, p the softmax of `temperature` · negatives.

    Hard negatives weigh more; no gradient goes through p (Sun et al., 2019). At 0 all weigh the same, which
    is `cross_entropy`. The paper's margin γ is the `offset` of the score.
    """

    def each(true: Tensor, negative: Tensor, counts: Tensor) -> Tensor:
        logits = (temperature * negative.detach()).where(counts, LEFT_OUT)
        share = torch.softmax(logits, dim=1).where(counts, 0.0)  # of no negative at all, NaN
        return ((share * -F.logsigmoid(-negative)).where(counts, 0.0).sum(1) - F.logsigmoid(true)) / 2

    return _Compared("self_adversarial", each)


PAIR_LOSSES: dict[str, Callable[..., PairLoss]] = {
    "cross_entropy": cross_entropy,
    "logistic": cross_entropy,
    "bpr": bpr,
    "margin": margin,
    "infonce": infonce,
    "softmax": infonce,
    "self_adversarial": self_adversarial,
    "negative_sampling": negative_sampling,
}
"""What makes a loss of links, by its name in a recipe; keywords are its options."""
SIGNED = ("cross_entropy", "logistic", "self_adversarial", "negative_sampling")
"""Those that tell true from false by the sign of a score."""
CORRECTED = ("infonce", "softmax")
"""Those that have a use for `log_q`."""


def pair_loss(name: str, **options: Any) -> Loss:
    """Return a loss of links by name, as strategies take it: a mean over pairs.

    Its `y` is [n], a penalty that is added to the loss of each pair, or [n, 1 + k], `log_q` for infonce.

    >>> float(pair_loss("margin", margin=0.5).summed(torch.tensor([[1.0, 0.75, 0.0]]), torch.zeros(1)))
    0.125
    """
    if name not in PAIR_LOSSES:
        known = ", ".join(PAIR_LOSSES)
        raise UnknownName(f"task.loss: no loss of links {name!r}; {suggest(name, PAIR_LOSSES)}known: {known}")
    maker = PAIR_LOSSES[name]
    loss = maker(**bind(maker, options, "task.loss"))

    def each(outputs: Tensor, y: Tensor) -> Tensor:
        return loss(outputs, y) if y.dim() == 2 else loss(outputs) + y

    return Loss(name, each, lambda outputs, y: each(outputs, y).sum())


class _Compared:
    """A loss that compares the true pair with negatives one by one."""

    def __init__(self, name: str, each: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        self.name, self.each = name, each

    def __call__(self, outputs: Tensor, log_q: Tensor | None = None, /) -> Tensor:
        if log_q is not None:
            raise InputError(f"the loss {self.name!r} has no use for log_q; 'infonce' has")
        negative = outputs[:, 1:]
        counts = negative != LEFT_OUT
        return self.each(outputs[:, 0], negative, counts)


def _mean(values: Tensor, counts: Tensor) -> Tensor:
    """Return the mean of each row over what is held, [n]; 0 where nothing is."""
    return values.where(counts, 0.0).sum(1) / counts.sum(1).clamp(min=1)


def _same_shape(outputs: Tensor, log_q: Tensor) -> None:
    if log_q.shape != outputs.shape:
        raise InputError(f"log_q: expected one number per score, {[*outputs.shape]}, got {[*log_q.shape]}")
