"""Edges as CSR in both directions, each built on first use and kept.

The canonical order of edges is by destination, then relation, then source, then the order in which the user
gave them. It decides what "edge 17" means everywhere in weft: in edge data, samples, shards and dropout.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from weft import kernels


class Csr(NamedTuple):
    """Edges in canonical order."""

    indptr: Tensor  # [N + 1] int64
    indices: Tensor  # [E] source of each edge, int32 where it fits
    edge_ids: Tensor  # [E] place in the user's order, int32 where it fits
    edge_type: Tensor | None  # [E] int32 relation, None where there is one


class Topology:
    """The edges of a graph, in the user's order or as CSR, converted when first asked for."""

    def __init__(self, num_nodes: int, num_edges: int) -> None:
        self.num_nodes = num_nodes
        self.num_edges = num_edges
        self._given: tuple[Tensor, Tensor | None] | None = None
        self._csr: Csr | None = None
        self._transposed: kernels.Transposed | None = None

    @classmethod
    def from_edges(cls, num_nodes: int, edge_index: Tensor, edge_type: Tensor | None) -> "Topology":
        """Return the edges (2, E), source to target, in the order given."""
        made = cls(num_nodes, edge_index.shape[1])
        made._given = edge_index, edge_type
        return made

    @classmethod
    def from_csr(cls, csr: Csr) -> "Topology":
        """Return edges that already are in canonical order."""
        made = cls(csr.indptr.numel() - 1, csr.indices.numel())
        made._csr = csr
        return made

    @property
    def csr(self) -> Csr:
        """The edges by destination."""
        given = self._given  # read first: another thread drops them once the CSR is there
        if self._csr is None:
            assert given is not None
            self._csr = self._build(*given)
            self._given = None  # the user's order stays in edge_ids: edges need not be held twice
        return self._csr

    @property
    def transposed(self) -> kernels.Transposed:
        """The edges by source."""
        if self._transposed is None:
            self._transposed = kernels.transpose_csr(self.csr.indptr, self.csr.indices, self.num_nodes)
        return self._transposed

    def edge_index(self) -> Tensor:
        """Return (2, E) int64, source to target, in the user's order."""
        given = self._given
        if given is not None:
            return given[0].long()
        counts = self.csr.indptr[1:] - self.csr.indptr[:-1]
        edge_dst = torch.repeat_interleave(counts, output_size=self.num_edges)
        return self.to_given_order(torch.stack([self.csr.indices.long(), edge_dst]), dim=1)

    def edge_type(self) -> Tensor | None:
        """Return the relation of each edge, [E] int32, in the user's order."""
        given = self._given
        if given is not None:
            return given[1]
        return None if self.csr.edge_type is None else self.to_given_order(self.csr.edge_type)

    def to_given_order(self, values: Tensor, dim: int = 0) -> Tensor:
        """Return values of edges, given in canonical order, in the user's order."""
        return torch.empty_like(values).index_copy_(dim, self.csr.edge_ids.long(), values)

    def to(self, device: torch.device | str) -> "Topology":
        """Return the edges on `device`, themselves if they are there."""
        csr = Csr(*(None if part is None else part.to(device) for part in self.csr))  # type: ignore[arg-type]
        if all(new is old for new, old in zip(csr, self.csr)):
            return self
        made = Topology.from_csr(csr)
        if self._transposed is not None:
            made._transposed = kernels.Transposed(*(part.to(device) for part in self._transposed))
        return made

    def _build(self, edge_index: Tensor, edge_type: Tensor | None) -> Csr:
        src, dst = edge_index[0], edge_index[1]
        indptr, indices, edge_ids = kernels.build_csr(src, dst, self.num_nodes, edge_type=edge_type)
        indices = indices.to(index_dtype(self.num_nodes))
        edge_ids = edge_ids.to(index_dtype(self.num_edges))
        return Csr(indptr, indices, edge_ids, None if edge_type is None else edge_type[edge_ids.long()])


def index_dtype(count: int) -> torch.dtype:
    """Return the smallest integer type weft uses for numbers 0 … count − 1."""
    return torch.int32 if count < 2**31 else torch.int64
