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
MOST = 1 << 63
"""Numbers that 64 bits have for links."""


class Known:
    """Links (relation, source, target), each once, as rising numbers.

    >>> known = Known.of(Graph.from_edges([[0, 1], [1, 2]]), Pairs(torch.tensor([2]), torch.tensor([0])))
    >>> known.hits(torch.tensor([2, 0]), torch.tensor([0, 2])).tolist()
    [True, False]
    """

    def __init__(
        self, keys: Ints, num_nodes: int, num_relations: int = 1, *, heads: Ints | None = None
    ) -> None:
        """Hold rising keys (relation · N + source) · N + target.

        Where these are more than 64 bits can number, `heads` are the different relation · N + source, rising,
        and keys are place of the head · N + target: there are no more heads than links.
        """
        if max(num_relations, len(keys)) * num_nodes >= MOST:
            raise GraphError(
                f"links of {num_nodes:,} nodes in {num_relations:,} relations are more than 64 bits can "
                "number; leave relations out"
            )
        if (heads is None) != counted(num_nodes, num_relations):
            raise GraphError("known links: `heads` are of links that 64 bits cannot number, and of no others")
        self.keys, self.num_nodes, self.num_relations, self.heads = keys, num_nodes, num_relations, heads

    @classmethod
    def of(
        cls, graph: Graph, *pairs: Pairs, relations: bool = True, undirected: bool | None = None
    ) -> "Known":
        """Return the edges of a graph and some pairs; without `relations` whatever the relation.

        With `undirected` pairs are known both ways, by default those of relations that have every edge so.
        """
        kinds = graph.num_relations if relations else 1
        both = (
            mirrored(graph, within=True)
            if undirected is None
            else torch.full((graph.num_relations,), undirected)
        )
        links = [edge_ends(graph)]
        for some in pairs:
            kind = torch.zeros_like(some.src) if some.relation is None else some.relation
            turned = both[kind]
            links += [(some.src, some.dst, kind), (some.dst[turned], some.src[turned], kind[turned])]
        heads = [_heads(src, kind, graph.num_nodes, kinds) for src, _, kind in links]
        others = np.concatenate([dst.numpy() for _, dst, _ in links])
        return cls.between(np.concatenate(heads), others, graph.num_nodes, kinds)

    @classmethod
    def between(cls, heads: Ints, others: Ints, num_nodes: int, num_relations: int = 1) -> "Known":
        """Return links of heads, relation · N + source, and targets, in any order and perhaps twice."""
        if counted(num_nodes, num_relations):
            return cls(np.unique(heads * num_nodes + others), num_nodes, num_relations)
        numbered, number = np.unique(heads, return_inverse=True)
        return cls(np.unique(number * num_nodes + others), num_nodes, num_relations, heads=numbered)

    def __len__(self) -> int:
        return len(self.keys)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.npy` file: numbers of nodes and relations, of heads and these if there are, the keys."""
        Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return what `save` writes."""
        head, file = np.array([self.num_nodes, self.num_relations], np.int64), io.BytesIO()
        heads = [] if self.heads is None else [np.array([len(self.heads)], np.int64), self.heads]
        np.save(file, np.concatenate([head, *heads, self.keys]), allow_pickle=False)
        return file.getvalue()

    @classmethod
    def map(cls, path: str | os.PathLike[str]) -> "Known":
        """Return the links in a file that `save` wrote; processes that map it share its memory."""
        numbers = read_npy(Path(path))
        kind = f"{numbers.dtype} {numbers.shape}"
        if numbers.dtype != np.int64 or numbers.ndim != 1 or len(numbers) < 2 or min(numbers[:2]) < 1:
            raise FormatError(f"{path}: no file of known links, it holds {kind}")
        sizes = int(numbers[0]), int(numbers[1])
        if counted(*sizes):
            return cls(numbers[2:], *sizes)
        if len(numbers) < 3 or not 0 <= numbers[2] <= len(numbers) - 3:
            raise FormatError(f"{path}: damaged, known links without their heads")
        first = 3 + int(numbers[2])
        return cls(numbers[first:], *sizes, heads=numbers[3:first])

    def hits(self, src: Tensor, dst: Tensor, relation: Tensor | None = None) -> Tensor:
        """Return whether links are known, bool; sources, targets and relations are broadcast."""
        places = self._places(self.heads, self._heads(src, relation))
        wanted = np.asarray(places * self.num_nodes + dst.numpy())
        if not len(self.keys):
            return torch.zeros(wanted.shape, dtype=torch.bool)
        nearest = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return torch.from_numpy(np.asarray(self.keys[nearest] == wanted))

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
        linked = torch.zeros(len(ends), len(others), dtype=torch.bool)
        places, nodes = self.partners(ends, relation, side=side)
        rising, order = others.sort()
        first = torch.searchsorted(rising, nodes)
        times = torch.searchsorted(rising, nodes, right=True) - first  # one may be among others twice
        again = torch.repeat_interleave(times)
        at = torch.arange(len(again)) + (first - (times.cumsum(0) - times))[again]
        linked[places[again], order[at]] = True
        return linked

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
        places = torch.repeat_interleave(counts)
        at = torch.arange(len(places), device=device) + (low - (counts.cumsum(0) - counts))[places]
        return places, self._sorted(side, torch.device(device))[at] % self.num_nodes

    def _sorted(self, side: Side, device: torch.device) -> Tensor:
        return torch.from_numpy(self.keys if side == "dst" else self._turned.keys).to(device)

    def _ranges(
        self, ends: Tensor, relation: Tensor | None, side: Side, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Return where the links of nodes begin and end among those of a side."""
        keys, heads = self._sorted(side, device), self.heads if side == "dst" else self._turned.heads
        places = torch.from_numpy(self._places(heads, self._heads(ends, relation))).to(device)
        first = places * self.num_nodes
        return torch.searchsorted(keys, first), torch.searchsorted(keys, first + self.num_nodes)

    def _heads(self, ends: Tensor, relation: Tensor | None) -> Ints:
        if relation is None and self.num_relations > 1:
            raise GraphError(
                f"links are known by {self.num_relations:,} relations: tell the relation of each"
            )
        return _heads(ends, relation, self.num_nodes, self.num_relations)

    @staticmethod
    def _places(heads: Ints | None, wanted: Ints) -> Ints:
        """Return the number that keys have of each head: itself, or its place.

        Where there is none it is -1, whose keys would be negative: none is found.
        """
        if heads is None:
            return wanted
        if not len(heads):
            return np.full_like(wanted, -1)
        nearest = np.minimum(np.searchsorted(heads, wanted), len(heads) - 1)
        return np.where(heads[nearest] == wanted, nearest, -1)

    @cached_property
    def _turned(self) -> "Known":
        """The same links with source and target exchanged."""
        head, dst = np.divmod(self.keys, self.num_nodes)
        kind, src = np.divmod(head if self.heads is None else self.heads[head], self.num_nodes)
        return Known.between(kind * self.num_nodes + dst, src, self.num_nodes, self.num_relations)


def counted(num_nodes: int, num_relations: int) -> bool:
    """Return whether 64 bits can number every link that there may be."""
    return num_relations * num_nodes**2 < MOST


def _heads(ends: Tensor, relation: Tensor | None, num_nodes: int, num_relations: int) -> Ints:
    kind = 0 if relation is None or num_relations == 1 else relation
    return np.asarray((kind * num_nodes + ends.long()).numpy())
