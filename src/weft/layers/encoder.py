"""Encoder: several node types as rows of one width, mapped from features or learned."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.sparse import Features, SparseFeatures
from weft.layers.base import GraphInfo, Linear, require_positive, typed_rows

TypedFeatures = Features | Mapping[str, Features] | None


class Encoder(nn.Module):
    """Map each node type to `width` columns: a linear map of its features, or learned rows.

    `encoder(block, x)` gives [rows held, width] in the block's order; x is a mapping from node type to the
    features of the rows held (of that type, in order), or the features themselves for a graph of one type.
    """

    def __init__(self, info: GraphInfo, width: int, *, bias: bool = True) -> None:
        super().__init__()
        require_positive(self, width=width)
        self.width = width
        self.node_types = info.node_types
        offsets = torch.tensor([0, *(info.num_nodes[t] for t in info.node_types)]).cumsum(0)
        self._first_id = dict(zip(info.node_types, offsets.tolist()))
        self.maps = nn.ModuleDict()
        self.embeddings = nn.ParameterDict()
        for node_type in info.node_types:
            features = info.in_features.get(node_type, 0)
            if features:
                self.maps[type_key(node_type)] = Linear(features, width, bias=bias)
            else:
                self.embeddings[type_key(node_type)] = _embedding(info.num_nodes[node_type], width)

    def forward(self, block: Block, x: TypedFeatures) -> Tensor:
        given = self._by_type(x)
        parts = self._parts(block, given, self._held(block, given))
        return torch.cat(parts) if parts else self._nothing()

    def _parts(
        self, block: Block, given: Mapping[str, Features], held: Literal["src", "dst"]
    ) -> list[Tensor]:
        """Return the encoded ranges in row order; a type's features are used up range by range."""
        used = dict.fromkeys(self.node_types, 0)
        ids = block.src_ids if held == "src" else block.dst_ids
        parts = []
        for node_type, rows in typed_rows(block, held):
            key, start, count = type_key(node_type), used[node_type], rows.stop - rows.start
            used[node_type] = start + count
            if key in self.embeddings:
                parts.append(self.embeddings[key][ids[rows] - self._first_id[node_type]])
            else:
                parts.append(self.maps[key](_features(given, node_type)[start : start + count]))
        return parts

    def _nothing(self) -> Tensor:
        """Return no rows, with a gradient: a worker that holds none still answers the others' backward."""
        like = next(self.parameters())
        return like.new_zeros(0, self.width).requires_grad_(torch.is_grad_enabled())

    def _by_type(self, x: TypedFeatures) -> Mapping[str, Features]:
        if x is None:
            return {}
        if isinstance(x, Tensor | SparseFeatures):
            return {self.node_types[0]: x}
        return x

    def _held(self, block: Block, given: Mapping[str, Features]) -> Literal["src", "dst"]:
        """Return which rows the caller holds, told by the number of feature rows."""
        rows = dict.fromkeys(self.node_types, 0)
        for node_type, part in typed_rows(block, "src"):
            rows[node_type] += part.stop - part.start
        fits = all(rows[t] == x.shape[0] for t, x in given.items() if t in rows)
        return "src" if fits else "dst"

    def extra_repr(self) -> str:
        return f"width={self.width}, learned={sorted(self.embeddings.keys())}"


def type_key(node_type: str) -> str:
    """Return a key of ModuleDict and ParameterDict, one a type: no dots, no clash with their methods."""
    return "type_" + node_type.replace("%", "%25").replace(".", "%2E")


def _features(given: Mapping[str, Features], node_type: str) -> Features:
    if node_type not in given:
        raise InputError(f"Encoder: no features given for node type {node_type!r}; got {sorted(given)}")
    return given[node_type]


def _embedding(num_nodes: int, width: int) -> nn.Parameter:
    # Unit variance over the width, as a normalised feature row would have.
    return nn.Parameter(torch.randn(num_nodes, width) / width**0.5)
