"""Encoder: several node types as rows of one width, mapped from features, learned, or both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from weft.config import Range, bind
from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.sparse import Features, SparseFeatures
from weft.layers.base import GraphInfo, Linear, require_positive, typed_rows
from weft.layers.learned import LearnedRows

TypedFeatures = Features | Mapping[str, Features] | None


@dataclass(frozen=True)
class Embedding:
    """The learned rows of a model beyond those of node types without features."""

    width: Annotated[int, Range(least=1)]
    """Columns of a row."""
    types: Sequence[str] | None = None
    """The node types that have them; by default all."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Embedding":
        """Return a table of a recipe, checked."""
        if "width" not in given:
            raise InputError("model.embedding: expected a table with width, {width = 64}")
        return cls(**bind(cls, given, "model.embedding"))

    def check_types(self, known: Sequence[str]) -> None:
        """Refuse a type that the graph has not."""
        for node_type in self.types or ():
            if node_type not in known:
                raise InputError(
                    f"model.embedding.types: the graph has no node type {node_type!r}; it has: "
                    f"{', '.join(known)}"
                )


class Encoder(nn.Module):
    """Map each node type to `width` columns: a linear map of its features, or learned rows.

    `embedding` gives nodes a learned row beside their features, or of another width than the model's: a
    linear map of both together, [x, row]. `encoder(block, x)` gives [rows held, width] in the block's order;
    x is a mapping from node type to the features of the rows held (of that type, in order), or the features
    themselves for a graph of one type.
    """

    def __init__(
        self, info: GraphInfo, width: int, *, bias: bool = True, embedding: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        require_positive(self, width=width)
        self.width = width
        self.node_types = info.node_types
        asked = None if embedding is None else Embedding.of(embedding)
        if asked is not None:
            asked.check_types(info.node_types)
        self.maps = nn.ModuleDict()
        self.embeddings = nn.ModuleDict()
        self.row_maps = nn.ModuleDict()
        """Linear maps of learned rows, where these stand beside features or are not of the model's width."""
        first = 0
        for node_type in info.node_types:
            features, key = info.in_features.get(node_type, 0), type_key(node_type)
            nodes = range(first, first := first + info.num_nodes[node_type])
            if features:
                self.maps[key] = Linear(features, width, bias=bias)
            chosen = asked is not None and (asked.types is None or node_type in asked.types)
            if not features or chosen:
                columns = asked.width if asked is not None and chosen else width
                self.embeddings[key] = LearnedRows(nodes, columns)
                if features or columns != width:
                    self.row_maps[key] = Linear(columns, width, bias=bias and not features)

    def forward(self, block: Block, x: TypedFeatures) -> Tensor:
        given = self._by_type(x)
        parts = self._parts(block, given, self._held(block, given))
        return torch.cat(parts) if parts else self._nothing()

    def _parts(
        self, block: Block, given: Mapping[str, Features], held: Literal["src", "dst"]
    ) -> list[Tensor]:
        """Return the encoded ranges in row order; a type's features and learned rows are used up in turn."""
        used = dict.fromkeys(self.node_types, 0)
        ranges = typed_rows(block, held)
        learned = self._learned(block, held, ranges)
        parts = []
        for node_type, rows in ranges:
            key, start, count = type_key(node_type), used[node_type], rows.stop - rows.start
            part = slice(start, start + count)
            used[node_type] = part.stop
            terms = [self.maps[key](_features(given, node_type)[part])] if key in self.maps else []
            if key in learned:
                terms.append(learned[key][part])
            parts.append(terms[0] if len(terms) == 1 else terms[0] + terms[1])
        return parts

    def _learned(
        self, block: Block, held: Literal["src", "dst"], ranges: Sequence[tuple[str, slice]]
    ) -> dict[str, Tensor]:
        """Return the learned rows of each type, in row order.

        Each type is asked once, also for nothing: where workers hold rows they ask each other together.
        """
        ids = block.src_ids if held == "src" else block.dst_ids
        found = {}
        for key, table in self.embeddings.items():
            chosen = [ids[rows] for node_type, rows in ranges if type_key(node_type) == key]
            rows = table(torch.cat(chosen) if chosen else ids[:0], own=block.rows_are_own)
            found[key] = self.row_maps[key](rows) if key in self.row_maps else rows
        return found

    def _nothing(self) -> Tensor:
        """Return no rows, with a gradient: a worker that holds none still answers the others' backward."""
        like = next(chain(self.parameters(), self.buffers()))
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
