"""HGT: Hu et al., Heterogeneous Graph Transformer, 2020."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft import kernels
from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.relations import RelationBlock
from weft.graph.sparse import Features
from weft.layers.base import (
    GraphInfo,
    Layer,
    Linear,
    dense,
    held_rows,
    layers,
    require_positive,
    require_probability,
    typed_rows,
)
from weft.layers.encoder import type_key

FEW = 4
"""Heads whose matrices lie along the diagonal of one: products with zeros cost less than heads apart."""


@layers.add("hgt")
class HGT(Layer):
    """Dot-product attention over all relations: projections by node type, matrices by relation.

    score(u, r, v, head) = (K_{τ(u)} hᵤ · A_r)·(Q_{τ(v)} hᵥ) · p_r / √d, message = V_{τ(u)} hᵤ · M_r, and
    the output σ(s_τ) · O_τ gelu(…) + (1 - σ(s_τ)) · hᵥ, the second term where widths agree.
    """

    # Scores of as few columns as there are classes would tell nothing, and the gate needs equal widths.
    stays_wide = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        edge_types: tuple[tuple[str, str, str], ...] = (("node", "edge", "node"),),
        node_types: tuple[str, ...] = ("node",),
        heads: int = 1,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__(in_features, out_features)
        require_positive(self, heads=heads)
        require_probability(self, attention_dropout=attention_dropout)
        if out_features % heads:
            raise InputError(f"HGT: out_features={out_features} must be a multiple of heads={heads}")
        self.heads = heads
        self.node_types = tuple(node_types)
        self.attention_dropout = float(attention_dropout)
        self.draw_layer = 0
        width = out_features // heads
        self.kqv_lin = nn.ModuleDict({type_key(t): Linear(in_features, 3 * out_features) for t in node_types})
        self.out_lin = nn.ModuleDict({type_key(t): Linear(out_features, out_features) for t in node_types})
        gated = node_types if in_features == out_features else ()
        self.skip = nn.ParameterDict({type_key(t): nn.Parameter(torch.ones(1)) for t in gated})
        self.k_rel = _relation_matrices(len(edge_types), heads, width)
        self.v_rel = _relation_matrices(len(edge_types), heads, width)
        self.p_rel = nn.Parameter(torch.ones(len(edge_types), heads))

    @classmethod
    def options_of(cls, info: GraphInfo) -> dict[str, Any]:
        return {"edge_types": info.edge_types, "node_types": info.node_types}

    @classmethod
    def stacked(
        cls,
        in_features: int,
        out_features: int,
        *,
        hidden: int,
        layers: int,
        info: GraphInfo,
        heads: int = 4,
        **options: Any,
    ) -> list[Layer]:
        """Return layers of `heads` heads each."""
        if heads <= 0 or hidden % heads:
            raise InputError(f"HGT: hidden={hidden} must be a multiple of heads={heads}")
        return super().stacked(
            in_features, out_features, hidden=hidden, layers=layers, info=info, heads=heads, **options
        )

    def forward(self, block: Block, h: Features) -> Tensor:
        rows = dense(h)
        projected = by_type(block, rows, self.kqv_lin, held_rows(block, rows))
        key, query, value = projected.chunk(3, dim=1)
        query = self._heads(block.dst(query))
        out = block.attend_pairs(
            _key_and_value,
            (key, value),
            (self.k_rel * self.p_rel[:, :, None, None], self.v_rel),
            query=query,
            scale=1.0 / math.sqrt(query.shape[-1]),
            dropout=self.attention_dropout if self.training else 0.0,
            layer=self.draw_layer,
        )
        return self._finish(block, out.flatten(1), block.dst(rows))

    def _heads(self, rows: Tensor) -> Tensor:
        return rows.reshape(-1, self.heads, self.out_features // self.heads)

    def _finish(self, block: Block, out: Tensor, own: Tensor) -> Tensor:
        out = by_type(block, F.gelu(out), self.out_lin, "dst")
        if not len(self.skip):
            return out
        gate = by_type(block, out, {t: _Gate(self.skip[t]) for t in self.skip}, "dst")
        return own + gate * (out - own)


def _key_and_value(
    pairs: RelationBlock, key: Tensor, value: Tensor, for_keys: Tensor, for_values: Tensor
) -> tuple[Tensor, Tensor]:
    return _related(key, pairs, for_keys), _related(value, pairs, for_values)


def _related(rows: Tensor, pairs: RelationBlock, matrices: Tensor) -> Tensor:
    """Return [pairs, heads, D]: the source row of each pair through the matrices of its relation."""
    heads, width = matrices.shape[1:3]
    if heads <= FEW:
        eye = torch.eye(heads, dtype=matrices.dtype, device=matrices.device)
        blocks = torch.einsum("rhij,hk->rhikj", matrices, eye).reshape(-1, heads * width, heads * width)
        done = kernels.segment_matmul(rows.contiguous(), pairs.offsets, blocks, pairs.rows)
        return done.view(-1, heads, width)
    taken = kernels.gather(rows.contiguous(), pairs.rows).reshape(-1, heads, width)
    # Heads become segments too: all (head, relation) products are one segment_matmul.
    num_pairs = taken.shape[0]
    starts = torch.arange(heads)[:, None] * num_pairs + pairs.offsets[None, :-1]
    offsets = torch.cat([starts.flatten(), torch.tensor([heads * num_pairs])])
    flat = taken.transpose(0, 1).reshape(-1, width)
    done = kernels.segment_matmul(flat, offsets, matrices.transpose(0, 1).reshape(-1, width, width))
    return done.view(heads, num_pairs, width).transpose(0, 1).contiguous()


class _Gate:
    """σ(s) for every row given."""

    def __init__(self, skip: Tensor) -> None:
        self.skip = skip

    def __call__(self, rows: Tensor) -> Tensor:
        return self.skip.sigmoid().expand(rows.shape[0], 1)


def by_type(
    block: Block, rows: Tensor, maps: Mapping[str, Any] | nn.ModuleDict, which: Literal["src", "dst"]
) -> Tensor:
    """Return the rows, each range of one node type through the map of its type."""
    parts = [maps[type_key(kind)](rows[part]) for kind, part in typed_rows(block, which)]
    if not parts:
        return _nothing(rows, maps)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _nothing(rows: Tensor, maps: Mapping[str, Any] | nn.ModuleDict) -> Tensor:
    """Return no rows, of the width that any map gives, with a gradient to the rows and to no map.

    Maps that learn have it need a gradient also where the rows do not: a worker that holds no row answers
    the backward of the others, who have used theirs.
    """
    first: Any = next(iter(maps.values()))
    learns = first(rows).requires_grad
    with torch.no_grad():
        nothing: Tensor = first(rows)
    return nothing.requires_grad_() if learns and not rows.requires_grad else nothing + 0.0 * rows.sum()


def _relation_matrices(relations: int, heads: int, width: int) -> nn.Parameter:
    bound = 1.0 / math.sqrt(width)
    return nn.Parameter(torch.empty(relations, heads, width, width).uniform_(-bound, bound))
