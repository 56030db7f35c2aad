"""The mean weighted by a softmax: attention, whoever holds which of the edges.

The mass of a contribution is the sum of exp(score) over its edges; beside its value stands the logarithm m. A
message is a contribution of one edge, whose m is its score. Merging contributions is attention once more,
with scores m, whether they are edges, chunks, parts, ranks or shards of a hub.
"""

import math
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.reductions.base import ByRow, Contribution, RowReduction, reductions
from weft.kernels.partial import attention_part
from weft.kernels.reference_attention import ADDITIVE
from weft.kernels.registration import accumulator


@reductions.add("softmax")
class Softmax(RowReduction):
    """Σ value · softmax(score), of each head by itself; a message gives (score, value)."""

    def result(self, made: Any) -> Tensor:
        """Return the value."""
        value: Tensor = made[1]
        return value

    def contributions(self, made: Any) -> Contribution:
        """Return the values as [E, H, D], beside them the scores as [E, H]."""
        score, value = made
        if score.dim() not in (1, 2) or value.shape[: score.dim()] != score.shape:
            raise GraphError(
                "a softmax message returns score [E] or [E, H] and value [E, ...] or [E, H, ...], "
                f"got {list(score.shape)} and {list(value.shape)}"
            )
        if not (score.is_floating_point() and value.is_floating_point()):
            raise GraphError(
                "a softmax message returns a score and a value with floating point, "
                f"got {score.dtype} and {value.dtype}: convert them first, value.float()"
            )
        heads = score.shape[1] if score.dim() == 2 else 1
        width = math.prod(value.shape[score.dim() :])
        edges = score.shape[0]
        return Contribution(value.reshape(edges, heads, width), score.reshape(edges, heads))

    def reduced(self, by_row: ByRow, given: Contribution) -> Contribution:
        """Return the means, and the logarithms of all masses."""
        value, mass = given
        assert mass is not None
        heads = mass.shape[1]
        flat = value.reshape(len(value), heads, math.prod(value.shape[1:]) // heads).contiguous()
        wanted = by_row.transposed_for(value) or by_row.transposed_for(mass)
        nothing = mass.new_zeros(by_row.num_rows, heads)  # of the destination's side of a score
        at = by_row.indptr, by_row.indices
        out, total = attention_part(
            ADDITIVE, *at, mass.contiguous(), nothing, flat, slope=1.0, transposed=wanted
        )
        return Contribution(out.reshape(by_row.num_rows, *value.shape[1:]), total)

    def start(self, like: Contribution, num_rows: int) -> Contribution:
        """Return zeros without a mass.

        Masses are in float64, no more than a maximum and a sum in float32 would take: a logarithm of 32 bits
        would round all of its edges alike in every merge.
        """
        value = like.value.new_zeros(num_rows, *like.value.shape[1:], dtype=accumulator(like.value.dtype))
        return Contribution(value, value.new_full(value.shape[:2], -torch.inf, dtype=torch.float64))

    def merge(self, whole: Contribution, rows: slice | Tensor, part: Contribution) -> None:
        """Take the mean of both, weighted by their masses."""
        (old, old_mass), (new, mass) = whole.at(rows), part
        assert old_mass is not None
        assert mass is not None
        total = torch.logaddexp(old_mass, mass.to(old_mass.dtype))
        known = total.where(total > -torch.inf, 0.0)  # −inf − −inf would be NaN
        shares = [torch.exp(each - known)[..., None].to(old.dtype) for each in (old_mass, mass)]
        assert whole.beside is not None
        whole.value[rows] = old * shares[0] + new.to(old.dtype) * shares[1]
        whole.beside[rows] = total

    def gradients(
        self, whole: Contribution, given: Contribution, rows: Tensor, grad: Contribution
    ) -> Contribution:
        """Return those of the values and of the logarithms of the masses.

        With alpha the share of a contribution: d value = alpha · g, d m = alpha · (⟨value, g⟩ − ⟨mean, g⟩),
        and alpha times the gradient of the whole mass's logarithm.
        """
        assert whole.beside is not None
        assert given.beside is not None
        mean = (whole.value * grad.value).sum(-1)
        mean = mean if grad.beside is None else mean - grad.beside
        mass = whole.beside.where(whole.beside > -torch.inf, 0.0)  # all scores masked: −inf − −inf is NaN
        alpha = torch.exp(given.beside - mass[rows]).to(mean.dtype)
        towards = grad.value[rows]
        of_value = towards * alpha[..., None].to(towards.dtype)
        return Contribution(of_value, alpha * ((given.value * towards).sum(-1) - mean[rows]))
