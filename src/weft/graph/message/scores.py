"""Attention scores: what `Block.attend` takes the softmax of, one small record per form.

`src`, `key` and the values are rows the caller holds (as `h` is); `dst` and `query` have one row per
destination; `edge` is in block order. H is the number of heads, D the width of one.
"""

from dataclasses import dataclass

from torch import Tensor

from weft.kernels.reference_attention import ADDITIVE, DOT, GATV2


@dataclass(frozen=True, eq=False)
class Additive:
    """score = LeakyReLU(src[u] + dst[v] + edge[e]), as in GAT."""

    src: Tensor  # [rows, H]
    dst: Tensor  # [num_dst, H]
    negative_slope: float = 0.2
    edge: Tensor | None = None  # [E, H]


@dataclass(frozen=True, eq=False)
class GATv2Score:
    """score = a · LeakyReLU(src[u] + dst[v] + edge[e]), as in GATv2."""

    src: Tensor  # [rows, H, D]
    dst: Tensor  # [num_dst, H, D]
    a: Tensor  # [H, D]
    negative_slope: float = 0.2
    edge: Tensor | None = None  # [E, H, D]


@dataclass(frozen=True, eq=False)
class DotScore:
    """score = scale · (key[u] · query[v]) + edge[e], as in transformers and HGT."""

    key: Tensor  # [rows, H, D]
    query: Tensor  # [num_dst, H, D]
    scale: float = 1.0
    edge: Tensor | None = None  # [E, H]


Score = Additive | GATv2Score | DotScore


def parts_of(score: Score) -> tuple[int, Tensor, Tensor, Tensor | None, float]:
    """Return what kernels take apart: kind, source side, destination side, `a` of GATv2, slope or scale."""
    if isinstance(score, Additive):
        return ADDITIVE, score.src, score.dst, None, score.negative_slope
    if isinstance(score, GATv2Score):
        return GATV2, score.src, score.dst, score.a, score.negative_slope
    return DOT, score.key, score.query, None, score.scale
