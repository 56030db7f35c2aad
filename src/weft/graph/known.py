"""Which links are there already: asked for by their ends, shared between processes as one mapped file."""

import io
import os
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import FormatError, GraphError
from weft.graph.ends import edge_ends, mirrored
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.reading.arrays import read_npy

Ints = NDArray[np.int64]
Side = Literal["dst", "src"]


class Known:
    """Links (relation, source, target), each once, as rising numbers.

    >>> known = Known.of(Graph.from_edges([[0, 1], [1, 2]]), Pairs(torch.tensor([2]), torch.tensor([0])))
    >>> known.hits(torch.tensor([2, 0]), torch.tensor([0, 2])).tolist()
    [True, False]
    """

    def __init__(self, keys: Ints, num_nodes: int, num_relations: int = 1) -> None:
        """Hold rising keys (relation · N + source) · N + target."""
        if num_relations * num_nodes**2 >= 2**63:
            raise GraphError(
                f"links of {num_nodes:,} nodes in {num_relations:,} relations are more than 64 bits can "
                "number; leave relations out"
            )
        self.keys, self.num_nodes, self.num_relations = keys, num_nodes, num_relations

    @classmethod
    def of(
        cls, graph: Graph, *pairs: Pairs, relations: bool = True, undirected: bool | None = None
    ) -> "Known":
        """Return the edges of a graph and some pairs; without `relations` whatever the relation.

        With `undirected` pairs are known both ways, by default those of relations that have every edge so.
        """
        made = cls(np.empty(0, np.int64), graph.num_nodes, graph.num_relations if relations else 1)
        both = (
            mirrored(graph, within=True)
            if undirected is None
            else torch.full((graph.num_relations,), undirected)
        )
        keys = [made._keys(*edge_ends(graph))]
        for some in pairs:
            kind = torch.zeros_like(some.src) if some.relation is None else some.relation
            turned = both[kind]
            keys.append(made._keys(some.src, some.dst, kind))
            keys.append(made._keys(some.dst[turned], some.src[turned], kind[turned]))
        return cls(np.unique(np.concatenate(keys)), made.num_nodes, made.num_relations)

    def __len__(self) -> int:
        return len(self.keys)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.npy` file: numbers of nodes and relations, then the keys."""
        Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return what `save` writes."""
        head, file = np.array([self.num_nodes, self.num_relations], np.int64), io.BytesIO()
        np.save(file, np.concatenate([head, self.keys]), allow_pickle=False)
        return file.getvalue()

    @classmethod
    def map(cls, path: str | os.PathLike[str]) -> "Known":
        """Return the links in a file that `save` wrote; processes that map it share its memory."""
        held = read_npy(Path(path))
        if held.dtype != np.int64 or held.ndim != 1 or len(held) < 2 or held[0] < 1 or held[1] < 1:
            raise FormatError(f"{path}: no file of known links, it holds {held.dtype} {held.shape}")
        return cls(held[2:], int(held[0]), int(held[1]))

    def hits(self, src: Tensor, dst: Tensor, relation: Tensor | None = None) -> Tensor:
        """Return whether links are known, bool; sources, targets and relations are broadcast."""
        wanted = self._keys(src, dst, relation)
        if not len(self.keys):
            return torch.zeros(wanted.shape, dtype=torch.bool)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return torch.from_numpy(self.keys[place] == wanted)

    def crossed(
        self, ends: Tensor, others: Tensor, relation: Tensor | None = None, *, side: Side = "dst"
    ) -> Tensor:
        """Return whether each of some nodes is linked with each of others, bool [n, m]: side "dst" to them.

        The links of nodes are looked for among the others, unless they are more than the answers.
        """
        low, high = self._ranges(ends, relation, side, torch.device("cpu"))
        if int((high - low).sum()) > len(ends) * len(others):
            pair = (ends[:, None], others[None]) if side == "dst" else (others[None], ends[:, None])
            return self.hits(*pair, None if relation is None else relation[:, None])
        found = torch.zeros(len(ends), len(others), dtype=torch.bool)
        place, nodes = self.partners(ends, relation, side=side)
        rising, order = others.sort()
        first = torch.searchsorted(rising, nodes)
        times = torch.searchsorted(rising, nodes, right=True) - first  # one may be among others twice
        again = torch.repeat_interleave(times)
        at = torch.arange(len(again)) + (first - (times.cumsum(0) - times))[again]
        found[place[again], order[at]] = True
        return found

    def partners(
        self,
        ends: Tensor,
        relation: Tensor | None = None,
        *,
        side: Side = "dst",
        device: torch.device | str = "cpu",
    ) -> tuple[Tensor, Tensor]:
        """Return all known other ends of some nodes, as places among `ends` and nodes, one row per link.

        Side "dst" has the targets of sources, "src" the sources of targets. They are found on a device:
        popular nodes have many.
        """
        low, high = self._ranges(ends, relation, side, torch.device(device))
        counts = high - low
        place = torch.repeat_interleave(counts)
        at = torch.arange(len(place), device=device) + (low - (counts.cumsum(0) - counts))[place]
        return place, self._sorted(side, torch.device(device))[at] % self.num_nodes

    def _sorted(self, side: Side, device: torch.device) -> Tensor:
        return torch.from_numpy(self.keys if side == "dst" else self._turned).to(device)

    def _ranges(
        self, ends: Tensor, relation: Tensor | None, side: Side, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Return where the links of nodes begin and end among those of a side."""
        keys = self._sorted(side, device)
        first = torch.from_numpy(self._keys(ends, torch.zeros_like(ends), relation)).to(device)
        return torch.searchsorted(keys, first), torch.searchsorted(keys, first + self.num_nodes)

    def _keys(self, src: Tensor, dst: Tensor, relation: Tensor | None) -> Ints:
        if relation is None and self.num_relations > 1:
            raise GraphError(
                f"links are known by {self.num_relations:,} relations: tell the relation of each"
            )
        kind = 0 if relation is None or self.num_relations == 1 else relation
        return np.asarray(((kind * self.num_nodes + src.long()) * self.num_nodes + dst).numpy())

    @cached_property
    def _turned(self) -> Ints:
        """The keys with source and target exchanged."""
        rest, dst = np.divmod(self.keys, self.num_nodes)
        kind, src = np.divmod(rest, self.num_nodes)
        return np.sort((kind * self.num_nodes + dst) * self.num_nodes + src)
