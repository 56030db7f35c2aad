"""True pairs against shared candidates: scores by one product of matrices, and gradients by two more.

A chunk of n pairs has m candidates for the other end. With queries Q [n, d] of the ends that stay and keys
K [m, d] of candidates, scores are S = Q Kᵀ; of the loss's gradient G = ∂L/∂S follow ∂Q = G K and ∂K = Gᵀ Q.
The true pair's key is its own: where its score stands among the others, in column 0, K has a row of zeros.
Chunks of a batch are one batched product. What a scorer makes of rows, queries and keys, goes through
autograd: that costs n d, not n m d. Scores that are no product (distances) and losses other than a softmax
have autograd's gradients too.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor

from weft.strategies.buckets.row_softmax import softmax_rows
from weft.tasks.loss import Loss
from weft.tasks.scores.compared import Comparison, Product, on_kernels

SOFTMAX = ("infonce", "softmax")
"""Names of the loss whose gradient is written out here."""
Gradients = tuple[Tensor, Tensor, Tensor, Tensor]
"""The sum of losses, and its gradients by queries, by true keys and by keys."""
_ALIGNED = 16
"""Candidates on a GPU are filled up to a multiple of so many."""


class Workspace:
    """Memory that steps have in common, by name: what is taken holds whatever was in it."""

    def __init__(self, *, spare: float = 0.0) -> None:
        """`spare` is how much more than asked for is taken, as a share, for what may come."""
        self._held: dict[str, Tensor] = {}
        self._spare = spare
        self.grown = 0
        """How often memory was taken anew: what was captured before reads that of before."""

    def take(self, name: str, *shape: int, like: Tensor) -> Tensor:
        """Return a tensor of a shape, of the type and on the device of another."""
        count = prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < count or held.dtype != like.dtype or held.device != like.device:
            held = self._held[name] = like.new_empty(count + int(count * self._spare))
            self.grown += 1
        return held[:count].view(*shape)

    def all_of(self, name: str, *shape: int) -> Tensor:
        """Return what is held by a name, in rows of a shape, as many as there is room for."""
        held, size = self._held[name], prod(shape)
        return held[: held.numel() // size * size].view(-1, *shape)


def contrast(
    queries: Tensor,
    true: Tensor,
    keys: Sequence[Tensor],
    *,
    compare: Comparison,
    loss: Loss,
    temperature: float = 1.0,
    mask: Callable[[Tensor], None],
    live: Tensor | None = None,
    shift: Tensor | float = 0.0,
    space: Workspace,
) -> Gradients:
    """Return the sum of losses and its gradients, in memory of their own.

    `queries` and `true` are [chunks, n, d], `keys` some [chunks, mᵢ, d], m together, whose gradient is
    [chunks, m, d]. `mask` is given scores [chunks, n, m] of candidates, or more with those of true pairs
    before them and what only fills rows after them, and puts -inf where one is no negative. `temperature` is
    that of a softmax, whose scores are divided by it. `live` [chunks * n] is 1 for pairs that count and 0 for
    others, None: all do. `shift` is the logarithm of how many nodes a candidate of a softmax stands for.
    """
    if isinstance(compare, Product) and loss.name in SOFTMAX and not loss.own and queries.is_cpu:
        return _by_shares(queries, true, _joined(keys, space), temperature, mask, live, shift, space)
    if not isinstance(compare, Product):
        held = _joined(keys, space)
        return compared(
            queries, true, held, compare=compare, loss=loss, mask=mask, live=live, shift=shift * temperature
        )
    count = sum(each.shape[1] for each in keys)
    table = _with_true(keys, space)
    chunks, n, columns = *queries.shape[:2], table.shape[1]
    scores = space.take("scores", chunks, n, columns, like=queries)
    torch.bmm(queries, table.transpose(1, 2), out=scores)
    scores[:, :, 0] = torch.linalg.vecdot(queries, true) - shift * temperature
    mask(scores)
    total, slope = _slope(scores.view(-1, columns), loss, temperature, live, space)
    slope = slope.view(chunks, n, columns)
    of_true = slope[:, :, :1]
    by_keys = torch.bmm(slope.transpose(1, 2), queries)[:, 1 : 1 + count]
    by_queries = torch.bmm(slope, table).addcmul_(of_true, true)
    return total, by_queries, of_true * queries, by_keys


def _joined(keys: Sequence[Tensor], space: Workspace) -> Tensor:
    """Return all keys of each chunk, [chunks, m, d]: themselves where there are some of one kind alone."""
    if len(keys) == 1:
        return keys[0]
    (chunks, _, width), count = keys[0].shape, sum(each.shape[1] for each in keys)
    return torch.cat([*keys], 1, out=space.take("candidates", chunks, count, width, like=keys[0]))


def _with_true(keys: Sequence[Tensor], space: Workspace) -> Tensor:
    """Return the keys of each chunk behind a row of zeros, filled up with zeros where a GPU likes that."""
    (chunks, _, width), count = keys[0].shape, 1 + sum(each.shape[1] for each in keys)
    # A GPU multiplies matrices of odd shapes at half the rate.
    columns = -(-count // _ALIGNED) * _ALIGNED if on_kernels(keys[0]) else count
    table = space.take("candidates", chunks, columns, width, like=keys[0])
    table[:, 0] = 0.0
    table[:, count:] = 0.0
    at = 1
    for each in keys:
        table[:, at : at + each.shape[1]] = each
        at += each.shape[1]
    return table


def _by_shares(
    queries: Tensor,
    true: Tensor,
    keys: Tensor,
    temperature: float,
    mask: Callable[[Tensor], None],
    live: Tensor | None,
    shift: Tensor | float,
    space: Workspace,
) -> Gradients:
    """Return what `contrast` does of a softmax, from scores [chunks, n, m] of candidates alone.

    On a CPU a product that writes rows of 1 + m numbers, which begin anywhere in memory, takes half as long
    again. With P the shares of candidates among themselves and a their share of all, the gradients are
    a (P K - true) by queries, Pᵀ (a Q) by keys and -a Q by true keys.
    """
    own, (chunks, n, _) = torch.linalg.vecdot(queries, true), queries.shape
    shares = space.take("scores", chunks, n, keys.shape[1], like=queries)
    torch.bmm(queries, keys.transpose(1, 2), out=shares)
    mask(shares)
    if temperature != 1.0:
        shares.div_(temperature)
        own.div_(temperature)
    own.sub_(shift)  # as if each candidate were there more often
    log_sum = softmax_rows(shares)
    whole = torch.logaddexp(log_sum, own)
    losses, share = whole - own, (log_sum - whole).exp_().div_(temperature)
    if live is not None:
        losses, share = losses * live.view(chunks, n), share * live.view(chunks, n)
    share = share.unsqueeze(2)
    by_queries = torch.baddbmm(true, shares, keys, beta=-1).mul_(share)
    by_true = queries * share.neg_()
    by_keys = torch.baddbmm(keys, shares.transpose(1, 2), by_true, beta=0, alpha=-1)
    return losses.sum(), by_queries, by_true, by_keys


def compared(
    queries: Tensor,
    true: Tensor,
    keys: Tensor,
    *,
    compare: Comparison,
    loss: Loss,
    mask: Callable[[Tensor], None],
    live: Tensor | None = None,
    shift: Tensor | float = 0.0,
) -> Gradients:
    """Return what `contrast` does by autograd, for any comparison and loss."""
    with torch.enable_grad():
        held = [value.detach().requires_grad_() for value in (queries, true, keys)]
        own = compare.paired(held[0], held[1])[..., None] - shift
        scores = torch.cat([own, compare.crossed(held[0], held[2])], -1)
        left_out = torch.zeros_like(scores)
        mask(left_out)
        rows = (scores + left_out).flatten(0, 1)
        total = _summed(rows, loss, live)
        gradients = torch.autograd.grad(total, held)
    return total.detach(), gradients[0], gradients[1], gradients[2]


def _slope(
    scores: Tensor, loss: Loss, temperature: float, live: Tensor | None, space: Workspace
) -> tuple[Tensor, Tensor]:
    """Return the sum of losses of rows [n, 1 + m] and its gradient."""
    if loss.name not in SOFTMAX or loss.own:
        return _differentiated(scores, loss, live)
    if on_kernels(scores):
        from weft.kernels.triton.contrast import softmax_slope  # where there is a GPU

        return softmax_slope(scores, live, temperature).sum(), scores
    if temperature != 1.0:
        scores.div_(temperature)
    slope = space.take("slope", *scores.shape, like=scores)
    torch.softmax(scores, 1, out=slope)
    # The largest share is at least 1 / (1 + m): its logarithm is safe where that of the true pair may not be.
    log_sum = scores.amax(1) - slope.amax(1).log_()
    losses = log_sum - scores[:, 0]
    slope[:, 0] -= 1.0
    if live is not None:
        losses, slope = losses * live, slope.mul_(live[:, None])
    total = losses.sum()
    return total, slope if temperature == 1.0 else slope.div_(temperature)


def _differentiated(scores: Tensor, loss: Loss, live: Tensor | None) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        held = scores.detach().requires_grad_()
        total = _summed(held, loss, live)
        (slope,) = torch.autograd.grad(total, held)
    return total.detach(), slope


def _summed(scores: Tensor, loss: Loss, live: Tensor | None) -> Tensor:
    """Return the sum of the losses of rows that count."""
    y = scores.new_zeros(len(scores))
    return loss.summed(scores, y) if live is None else (loss.each(scores, y) * live).sum()
