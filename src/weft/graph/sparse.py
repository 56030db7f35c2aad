"""Sparse features: a CSR matrix that stays sparse through dropout, transform and aggregation.

Bag-of-words features have a handful of non-zeros in thousands of columns. Kept dense they fill memory with
zeros and the first layer multiplies them; kept here, `x @ weight` is one spmm over the non-zeros.
"""

from typing import Any

import torch
from torch import Tensor

from weft import kernels
from weft.errors import GraphError


class SparseFeatures:
    """A matrix [num_rows, num_columns] by its non-zeros: row pointers, columns and values.

    >>> x = SparseFeatures.from_dense(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
    >>> x.matmul(torch.tensor([[1.0], [10.0]])).flatten().tolist()
    [20.0, 1.0]
    """

    requires_grad = False

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        values: Tensor,
        shape: tuple[int, int],
        *,
        transposed: "kernels.Transposed | None" = None,
    ) -> None:
        self.indptr = indptr  # [num_rows + 1] int64
        self.indices = indices  # [nnz] int32 column of each value, or int64 where the columns need it
        self.values = values  # [nnz]
        self.shape = torch.Size(shape)
        self._transposed = transposed
        self._row_ids: Tensor | None = None

    @classmethod
    def from_dense(cls, x: Tensor) -> "SparseFeatures":
        """Return the non-zeros of a dense matrix."""
        return cls.from_any(x.to_sparse())

    @classmethod
    def from_any(cls, x: Any) -> "SparseFeatures":
        """Return sparse features from a torch CSR or COO tensor or from any scipy sparse matrix."""
        if isinstance(x, SparseFeatures):
            return x
        if len(x.shape) != 2 or (
            isinstance(x, Tensor) and x.layout is not torch.strided and x.dense_dim() > 0
        ):
            shape = tuple(x.shape)
            raise GraphError(f"sparse features must be a matrix [num_nodes, num_features], got shape {shape}")
        parts = _torch_parts(x) if isinstance(x, Tensor) else _scipy_parts(x)
        rows, columns = (int(size) for size in x.shape)
        index = torch.int32 if columns < 2**31 else torch.int64
        values = parts[2] if parts[2].is_floating_point() else parts[2].float()
        return cls(parts[0].to(torch.int64), parts[1].to(index), values.detach(), (rows, columns))

    def size(self, dim: int) -> int:
        """Return the number of rows (0) or columns (1)."""
        return self.shape[dim]

    def dim(self) -> int:
        """Return 2, as a dense matrix does."""
        return 2

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nnz(self) -> int:
        """The number of stored values."""
        return self.values.numel()

    @property
    def dtype(self) -> torch.dtype:
        """The type of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Where the matrix lies."""
        return self.values.device

    @property
    def transposed(self) -> "kernels.Transposed":
        """The same non-zeros by column, built on first use and kept; backward of `matmul` runs on it."""
        if self._transposed is None:
            self._transposed = kernels.transpose_csr(self.indptr, self.indices, self.shape[1])
        return self._transposed

    @property
    def row_ids(self) -> Tensor:
        """The row of each stored value, [nnz] int64."""
        if self._row_ids is None:
            counts = self.indptr[1:] - self.indptr[:-1]
            self._row_ids = torch.repeat_interleave(counts, output_size=self.nnz)
        return self._row_ids

    def matmul(self, weight: Tensor) -> Tensor:
        """Return this matrix times a dense `weight` [num_columns, width]; differentiable in the weight."""
        # Without a gradient there is no backward, and no need for the transposed matrix.
        wanted = weight.requires_grad and torch.is_grad_enabled()
        transposed = self.transposed if wanted else None
        return kernels.spmm(self.indptr, self.indices, weight, self.values, transposed=transposed)

    __matmul__ = matmul

    def dropout(self, p: float, ids: Tensor, clock: Tensor, layer: int = 0) -> "SparseFeatures":
        """Return the features with stored values dropped exactly where dense dropout would drop them.

        `ids` are the global ids of the rows; the draw of a value is that of (id of its row, its column).
        """
        values = kernels.dropout(
            self.values, ids[self.row_ids], p, clock=clock, layer=layer, lanes=self.indices
        )
        return self.with_values(values)

    def with_values(self, values: Tensor) -> "SparseFeatures":
        """Return a matrix with the same non-zero places and other values; what was derived is shared."""
        made = SparseFeatures(self.indptr, self.indices, values, self._size, transposed=self._transposed)
        made._row_ids = self._row_ids
        return made

    def rows(self, index: Tensor | slice) -> "SparseFeatures":
        """Return the chosen rows, in the order asked for."""
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            if step == 1:
                return self._row_range(start, max(start, stop))
            index = torch.arange(start, stop, step, device=self.device)
        if index.dtype is torch.bool:
            index = index.nonzero().flatten()
        counts = (self.indptr[1:] - self.indptr[:-1])[index]
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        shift = torch.repeat_interleave(self.indptr[:-1][index] - indptr[:-1], counts)
        where = torch.arange(shift.numel(), device=self.device) + shift
        return SparseFeatures(indptr, self.indices[where], self.values[where], (index.numel(), self.shape[1]))

    def __getitem__(self, index: Tensor | slice) -> "SparseFeatures":
        return self.rows(index)

    def to_dense(self) -> Tensor:
        """Return the dense matrix [num_rows, num_columns]; repeated places add up."""
        dense = self.values.new_zeros(self._size)
        return dense.index_put_((self.row_ids, self.indices.long()), self.values, accumulate=True)

    def to_torch(self) -> Tensor:
        """Return a torch CSR tensor that shares the values."""
        columns = self.indices.long()
        return torch.sparse_csr_tensor(self.indptr, columns, self.values, self._size, check_invariants=False)

    def to(self, target: torch.device | torch.dtype | str) -> "SparseFeatures":
        """Return the features on another device or with values of another dtype."""
        if isinstance(target, torch.dtype):
            return self if target == self.dtype else self.with_values(self.values.to(target))
        if torch.device(target) == self.device:
            return self
        indptr, indices, values = (part.to(target) for part in (self.indptr, self.indices, self.values))
        return SparseFeatures(indptr, indices, values, self._size)

    def __repr__(self) -> str:
        return f"SparseFeatures(shape={self._size}, nnz={self.nnz:,}, dtype={self.dtype})"

    @property
    def _size(self) -> tuple[int, int]:
        return self.shape[0], self.shape[1]

    def _row_range(self, start: int, stop: int) -> "SparseFeatures":
        if (start, stop) == (0, self.shape[0]):
            return self
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        indptr = self.indptr[start : stop + 1] - first
        return SparseFeatures(
            indptr, self.indices[first:last], self.values[first:last], (stop - start, self.shape[1])
        )


def _torch_parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the row pointers, columns and values of a torch CSR or COO matrix."""
    if x.layout is torch.sparse_csr:
        return x.crow_indices(), x.col_indices(), x.values()
    x = x.to_sparse().coalesce()
    counts = torch.bincount(x.indices()[0], minlength=x.shape[0])
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), x.indices()[1], x.values()


def _scipy_parts(x: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the row pointers, columns and values of a scipy sparse matrix, which is left as it is."""
    csr = x.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return torch.from_numpy(csr.indptr), torch.from_numpy(csr.indices), torch.from_numpy(csr.data)


Features = Tensor | SparseFeatures
"""Node features: a dense matrix or a sparse one."""


def product(
    indptr: Tensor, indices: Tensor, x: SparseFeatures, scale: Tensor | None = None
) -> SparseFeatures:
    """Return the sparse matrix A·x, where A is given by rows: (A·x)[v] = Σ scale[e] · x[indices[e]].

    Made for inputs that are aggregated once and remembered: it sorts the terms, a block of rows at a time.
    """
    num_rows = indptr.numel() - 1
    if not num_rows:
        return x.rows(slice(0, 0))
    lengths = (x.indptr[1:] - x.indptr[:-1])[indices.long()]
    terms = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])[indptr]  # terms before each row
    pieces = []
    start = 0
    while start < num_rows:
        stop = int(torch.searchsorted(terms, terms[start] + _TERMS_AT_ONCE, right=True)) - 1
        stop = min(max(stop, start + 1), num_rows)
        pieces.append(_product_rows(indptr, indices, x, scale, start, stop))
        start = stop
    counts = torch.cat([piece[0] for piece in pieces])
    out_indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    columns, values = (torch.cat([piece[part] for piece in pieces]) for part in (1, 2))
    return SparseFeatures(out_indptr, columns, values, (num_rows, x.shape[1]))


_TERMS_AT_ONCE = 1 << 24


def _product_rows(
    indptr: Tensor, indices: Tensor, x: SparseFeatures, scale: Tensor | None, start: int, stop: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return non-zeros a row, columns and values of the rows start … stop − 1 of the product."""
    first, last = int(indptr[start]), int(indptr[stop])
    edges = x.rows(indices[first:last].long())
    edge_row = torch.repeat_interleave(indptr[start + 1 : stop + 1] - indptr[start:stop])
    values = edges.values if scale is None else edges.values * scale[first:last][edges.row_ids].to(x.dtype)
    key = edge_row[edges.row_ids] * x.shape[1] + edges.indices
    key, order = torch.sort(key, stable=True)
    key, counts = torch.unique_consecutive(key, return_counts=True)
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    # spmm over the sorted terms: a sum in a fixed order, so the same bits every time.
    summed = kernels.spmm(ends, order, values.unsqueeze(1)).squeeze(1)
    per_row = torch.bincount(key // x.shape[1], minlength=stop - start)
    return per_row, (key % x.shape[1]).to(x.indices.dtype), summed
