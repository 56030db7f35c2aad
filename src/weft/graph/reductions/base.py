"""What a reduction is: how many values of a row become one, also where these come piece by piece.

All of it is said of *contributions*. An edge contributes its message to the row it goes to; a chunk of edges,
a part, a rank or a shard of a hub contributes what it reduced its own edges to. A contribution is a value and
what stands beside it, all that merging takes; so what was reduced can be reduced again.

    reduction   value v      beside                      reduced                          of no edge
    sum         the sum      nothing                     Σ v                              0
    max, min    the extreme  c: edges that attain it     the extreme, Σ c of these        0, 0
    softmax     the mean     m: log Σ exp(score)         Σ exp(m) v / Σ exp(m), log Σ     0, −∞

Chunks and parts are merged one after the other into what there is (`Running`). Ranks and shards of hubs are
reduced together, by row (`ByRow`). Both keep the order in which contributions are given.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.reductions.row_sums import as_matrix
from weft.kernels.csr import Transposed
from weft.kernels.registration import accumulator, index_dtype
from weft.registry import Registry

ALL = slice(None)


class Contribution(NamedTuple):
    """Contributions to rows, or one per row: values, and what merging them takes beside."""

    value: Tensor  # [n, ...]
    beside: Tensor | None = None  # [n, ...] of a message's max or min: None, each stands for one edge

    def at(self, rows: slice | Tensor) -> "Contribution":
        """Return some of them."""
        return Contribution(self.value[rows], None if self.beside is None else self.beside[rows])

    def packed(self) -> list[Tensor]:
        """Return what travels between ranks: one tensor, where both are floating-point numbers."""
        if self.beside is None:
            return [self.value]
        if not self.beside.is_floating_point():
            return [self.value, self.beside]
        wide = accumulator(self.value.dtype)
        return [torch.cat([as_matrix(self.value).to(wide), as_matrix(self.beside).to(wide)], dim=1)]

    def unpacked(self, tensors: list[Tensor]) -> "Contribution":
        """Return contributions like these from what travelled."""
        if self.beside is None or not self.beside.is_floating_point():
            return Contribution(*tensors)
        (both,) = tensors
        tails = self.value.shape[1:], self.beside.shape[1:]
        value, beside = torch.split(both, [math.prod(tail) for tail in tails], dim=1)
        return Contribution(value.reshape(len(both), *tails[0]), beside.reshape(len(both), *tails[1]))


@dataclass(frozen=True, eq=False)
class ByRow:
    """Which contributions go to which row, and in which order."""

    indptr: Tensor  # [rows + 1] how many contributions there are to the rows before
    indices: Tensor  # [n] the contributions, row after row
    rows: Tensor  # [n] int64, the row that each contribution goes to

    @classmethod
    def of(cls, rows: Tensor, num_rows: int) -> "ByRow":
        """Return the order of contributions to the rows given, each row's as they come."""
        counts = torch.bincount(rows, minlength=num_rows)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return cls(indptr, torch.argsort(rows, stable=True), rows)

    @classmethod
    def in_order(cls, indptr: Tensor, rows: Tensor) -> "ByRow":
        """Return the order of contributions that stand row after row, as edges do."""
        count = rows.numel()
        return cls(indptr, torch.arange(count, dtype=index_dtype(count), device=rows.device), rows)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.indptr.numel() - 1

    @cached_property
    def transposed(self) -> Transposed:
        """The same by contribution, which has one row: what backward runs on."""
        count = self.rows.numel()
        indptr = torch.arange(count + 1, device=self.rows.device)
        places = torch.empty_like(self.indices)
        places[self.indices.long()] = torch.arange(count, dtype=places.dtype, device=places.device)
        return Transposed(indptr, self.rows.to(places.dtype), places)

    def transposed_for(self, value: Tensor) -> Transposed | None:
        """Return it where there will be a backward."""
        return self.transposed if torch.is_grad_enabled() and value.requires_grad else None


class RowReduction(ABC):
    """How contributions to a row become one. A subclass is all that one more takes."""

    adds: ClassVar[bool] = False
    """Whether values are added up: then a message counts for all edges that its edge stands for."""
    looks_back: ClassVar[bool] = True
    """Whether `gradients` looks at the contributions and at what they were reduced to."""

    def result(self, made: Any) -> Tensor:
        """Return that of what a message gave whose type, and shape of a row, the result has."""
        assert isinstance(made, Tensor)
        return made

    @abstractmethod
    def contributions(self, made: Any) -> Contribution:
        """Return what a message gave, one row per edge, as contributions: matrices."""

    @abstractmethod
    def reduced(self, by_row: ByRow, given: Contribution) -> Contribution:
        """Return one contribution per row, differentiable in those given."""

    @abstractmethod
    def start(self, like: Contribution, num_rows: int) -> Contribution:
        """Return what no edge contributes, one per row, in the types that sums are kept in."""

    @abstractmethod
    def merge(self, whole: Contribution, rows: slice | Tensor, part: Contribution) -> None:
        """Change some rows of `whole`, each once, to what they are with `part` after them."""

    @abstractmethod
    def gradients(
        self, whole: Contribution, given: Contribution, rows: Tensor, grad: Contribution
    ) -> Contribution:
        """Return the gradients of the contributions given, of which `rows` are the rows.

        `whole` is what all contributions to a row were reduced to, those given and others; `grad` is its
        gradient, without that of what stands beside where nobody looked at it.
        """


reductions: Registry[type[RowReduction]] = Registry("reduction", "weft.graph.reductions")


def reduction(name: str) -> RowReduction:
    """Return the reduction of that name; a mean is a sum, which its caller divides by degrees."""
    known = reductions.names()
    if name != "mean" and name not in known:
        raise GraphError(f"reduce must be one of {', '.join(sorted([*known, 'mean']))}; got {name!r}")
    return reductions["sum" if name == "mean" else name]()


class Running:
    """What contributions were reduced to so far, one per row; more are merged into it as they come."""

    def __init__(self, reduction: RowReduction, num_rows: int) -> None:
        self.reduction, self.num_rows = reduction, num_rows
        self._whole: Contribution | None = None

    def add(self, part: Contribution, rows: slice | Tensor = ALL) -> None:
        """Merge contributions to some rows, each once, into what there is."""
        all_rows = isinstance(rows, slice) and rows == ALL
        if self._whole is None and all_rows and part.value.dtype == accumulator(part.value.dtype):
            self._whole = part  # as it is: of the first part, which reaches all rows, nothing is copied
            return
        if self._whole is None:
            self._whole = self.reduction.start(part, self.num_rows)
        self.reduction.merge(self._whole, rows, part)

    @property
    def whole(self) -> Contribution:
        """What all contributions were reduced to."""
        assert self._whole is not None, "something is added first, if only to no row"
        return self._whole

    def at(self, rows: slice | Tensor) -> Contribution:
        """Return what gradients look back at of some rows, empty where they do not look back."""
        return Contribution(torch.empty(0)) if self._whole is None else self._whole.at(rows)

    def let_go(self) -> list[Tensor]:
        """Return the tensors that gradients need, and keep none."""
        whole, self._whole = self._whole, None
        if whole is None or not self.reduction.looks_back:
            return []
        return [each for each in whole if each is not None]

    def take_back(self, tensors: list[Tensor]) -> None:
        """Take what `let_go` gave."""
        self._whole = Contribution(*tensors) if tensors else None
