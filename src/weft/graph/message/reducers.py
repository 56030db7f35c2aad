"""How messages are reduced over the rows they go to: at once, or chunk by chunk with results that merge.

A reducer for chunks has three duties: take the messages of the next edges, give the result, and, when the
messages are made again, say what gradient each of them gets. What it keeps is of the size of the rows, never
of the edges.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.kernels.registration import accumulator

if TYPE_CHECKING:
    from weft.graph.message.block import Block


@dataclass(frozen=True)
class Chunk:
    """A range of edges and the rows they go to."""

    edges: slice
    rows: slice  # destination rows, the first and the last maybe in part
    src: Tensor  # [edges] source row of each edge, int64
    dst: Tensor  # [edges] destination row of each edge
    indptr: Tensor  # [rows + 1] edges of the chunk before each of its rows

    @classmethod
    def of(cls, block: "Block", start: int, stop: int) -> "Chunk":
        """Return the chunk of the edges start … stop − 1 (at least one)."""
        edge_dst = block.edge_dst[start:stop]
        rows = slice(int(edge_dst[0]), int(edge_dst[-1]) + 1)
        indptr = (block.indptr[rows.start : rows.stop + 1] - start).clamp(0, stop - start)
        return cls(slice(start, stop), rows, block.indices[start:stop].long(), edge_dst, indptr)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sums of a value an edge over the rows of the chunk, [rows, ...]."""
        flat = _matrix(values)
        out = kernels.spmm(self.indptr, _arange(len(values), values.device), flat)
        return out.reshape(-1, *values.shape[1:])


class Reducer(Protocol):
    """Messages of one chunk after another become one row a destination."""

    def add(self, chunk: Chunk, made: Any, num_rows: int) -> None:
        """Take the messages of a chunk."""

    def result(self) -> Tensor:
        """Return the reduced rows."""

    def beside(self) -> Tensor | None:
        """Return, after `result`, what merging the rows with those of other edges takes."""

    def state(self) -> list[Tensor]:
        """Return the tensors that `gradients` needs."""

    @classmethod
    def restored(cls, state: list[Tensor]) -> "Reducer":
        """Return a reducer that can give gradients, from its state."""

    def gradients(self, chunk: Chunk, made: Any, grad: Tensor, beside: Tensor | None) -> list[Tensor]:
        """Return the gradient of each message (of each of its parts), from those of the rows and beside."""


class Sum:
    """Σ message."""

    def __init__(self) -> None:
        self.total: Tensor | None = None

    def add(self, chunk: Chunk, made: Tensor, num_rows: int) -> None:
        if self.total is None:
            self.dtype = made.dtype
            self.total = made.new_zeros(num_rows, *made.shape[1:], dtype=accumulator(made.dtype))
        self.total[chunk.rows] += chunk.sum(made)

    def result(self) -> Tensor:
        assert self.total is not None
        return self.total.to(self.dtype)

    def beside(self) -> None:
        return None

    def state(self) -> list[Tensor]:
        return []

    @classmethod
    def restored(cls, state: list[Tensor]) -> "Sum":
        return cls()

    def gradients(self, chunk: Chunk, made: Tensor, grad: Tensor, beside: Tensor | None) -> list[Tensor]:
        return [grad[chunk.dst]]


class Max:
    """The largest message of each row; its gradient is shared equally among the edges that attain it."""

    largest = True

    def __init__(self) -> None:
        self.value: Tensor | None = None
        self.count: Tensor | None = None  # how many edges attain the value, 0 for a row without edges yet

    def add(self, chunk: Chunk, made: Tensor, num_rows: int) -> None:
        if self.value is None or self.count is None:
            self.value = made.new_zeros(num_rows, *made.shape[1:])
            self.count = torch.zeros_like(self.value, dtype=torch.int32)
        kind = "max" if self.largest else "min"
        new, count = kernels.extreme(chunk.indptr, _arange(len(made), made.device), _matrix(made), kind)
        old, old_count = self.value[chunk.rows], self.count[chunk.rows]
        found = new.reshape(old.shape), count.reshape(old.shape)
        value, count = merged_extremes(found, (old, old_count), largest=self.largest)
        self.value[chunk.rows], self.count[chunk.rows] = value, count

    def result(self) -> Tensor:
        assert self.value is not None
        return self.value

    def beside(self) -> Tensor:
        assert self.count is not None
        return self.count

    def state(self) -> list[Tensor]:
        assert self.value is not None
        assert self.count is not None
        return [self.value, self.count]

    @classmethod
    def restored(cls, state: list[Tensor]) -> "Max":
        made = cls()
        made.value, made.count = state
        return made

    def gradients(self, chunk: Chunk, made: Tensor, grad: Tensor, beside: Tensor | None) -> list[Tensor]:
        assert self.value is not None
        assert self.count is not None
        share = grad / self.count.clamp(min=1)
        return [torch.where(_same(made, self.value[chunk.dst]), share[chunk.dst], 0)]


class Min(Max):
    """The smallest message of each row."""

    largest = False


class Softmax:
    """Σ value · softmax(score), by the running maximum, sum and value of each row and head."""

    def __init__(self) -> None:
        self.top: Tensor | None = None  # [N, H]
        self.mass: Tensor | None = None  # [N, H]
        self.total: Tensor | None = None  # [N, H, D], divided by mass in the end
        self.tail: tuple[int, ...] = ()  # the shape of a value, as the message gave it

    def add(self, chunk: Chunk, made: tuple[Tensor, Tensor], num_rows: int) -> None:
        score, value = headed(*made)
        score = score.to(accumulator(score.dtype))
        if self.top is None or self.mass is None or self.total is None:
            self.top = score.new_full((num_rows, score.shape[1]), -torch.inf)
            self.mass = torch.zeros_like(self.top)
            self.total = value.new_zeros(num_rows, *value.shape[1:], dtype=accumulator(value.dtype))
            self.tail, self.dtype = tuple(made[1].shape[1:]), value.dtype
        every = _arange(len(score), score.device)
        top, count = kernels.extreme(chunk.indptr, every, score, "max")
        old = self.top[chunk.rows]
        top = torch.where(count > 0, torch.maximum(top, old), old)
        kept = torch.where(old == top, 1.0, torch.exp(old - top))  # −inf − −inf would be NaN
        reached = torch.where(top == -torch.inf, 0.0, top)
        weight = torch.exp(score - reached[chunk.dst - chunk.rows.start])
        added = kernels.spmm(chunk.indptr, every, value, weight.to(value.dtype))
        self.top[chunk.rows] = top
        self.mass[chunk.rows] = self.mass[chunk.rows] * kept + chunk.sum(weight)
        self.total[chunk.rows] = self.total[chunk.rows] * kept.unsqueeze(-1).to(self.total.dtype) + added

    def result(self) -> Tensor:
        assert self.mass is not None
        assert self.total is not None
        self.mass = torch.where(self.mass == 0, 1.0, self.mass)
        self.total = self.total / self.mass.unsqueeze(-1).to(self.total.dtype)
        return self.total.reshape(-1, *self.tail).to(self.dtype)

    def beside(self) -> Tensor:
        assert self.top is not None
        assert self.mass is not None
        return self.top + self.mass.log()  # a row without edges: −inf + log 1

    def state(self) -> list[Tensor]:
        assert self.top is not None
        assert self.mass is not None
        assert self.total is not None
        return [self.top, self.mass, self.total]

    @classmethod
    def restored(cls, state: list[Tensor]) -> "Softmax":
        made = cls()
        made.top, made.mass, made.total = state
        return made

    def gradients(
        self, chunk: Chunk, made: tuple[Tensor, Tensor], grad: Tensor, beside: Tensor | None
    ) -> list[Tensor]:
        assert self.top is not None
        assert self.mass is not None
        assert self.total is not None
        score, value = headed(*made)
        grad = grad.reshape(self.total.shape)
        top = torch.where(self.top == -torch.inf, 0.0, self.top)  # all scores masked: −inf − −inf is NaN
        alpha = torch.exp(score - top[chunk.dst]) / self.mass[chunk.dst]
        mean = (self.total * grad).sum(-1)  # [N, H]
        mean = mean if beside is None else mean - beside  # the logarithm of the mass has alpha as gradient
        grad = grad[chunk.dst]
        grad_value = (grad * alpha.unsqueeze(-1).to(grad.dtype)).reshape(made[1].shape)
        grad_score = alpha * ((value * grad).sum(-1) - mean[chunk.dst])
        return [grad_score.reshape(made[0].shape).to(made[0].dtype), grad_value]


REDUCERS: dict[str, type[Sum] | type[Max] | type[Softmax]] = {
    "sum": Sum,
    "max": Max,
    "min": Min,
    "softmax": Softmax,
}


def reduce_at_once(block: "Block", made: Any, reduce: str) -> Tensor:
    """Return the messages of all edges reduced, with torch's autograd."""
    if reduce == "softmax":
        score, value = headed(*made)
        weight = kernels.edge_softmax(block.indptr, score)
        out = kernels.spmm(*_every_edge(block), value, weight.to(value.dtype), transposed=_own_edges(block))
        return out.reshape(-1, *made[1].shape[1:])
    out = kernels.spmm(*_every_edge(block), _matrix(made), None, reduce, transposed=_own_edges(block))
    return out.reshape(-1, *made.shape[1:])


def headed(score: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return the score as [E, H] and the value as [E, H, D]."""
    if score.dim() not in (1, 2) or value.shape[: score.dim()] != score.shape:
        shapes = f"{list(score.shape)} and {list(value.shape)}"
        raise GraphError(
            f"a softmax message returns score [E] or [E, H] and value [E, ...] or [E, H, ...], got {shapes}"
        )
    heads = score.shape[1] if score.dim() == 2 else 1
    width = 1
    for size in value.shape[score.dim() :]:
        width *= size
    return score.reshape(-1, heads), value.reshape(-1, heads, width)


def add_rows(total: Tensor, index: Tensor, values: Tensor) -> None:
    """Add values to the rows of `total` at `index`, repeated rows in the order of the values."""
    order = torch.argsort(index, stable=True)
    rows, counts = torch.unique_consecutive(index[order], return_counts=True)
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    summed = kernels.spmm(ends, order, _matrix(values)).reshape(-1, *values.shape[1:])
    total[rows] += summed


def merged_extremes(
    new: tuple[Tensor, Tensor], old: tuple[Tensor, Tensor], *, largest: bool
) -> tuple[Tensor, Tensor]:
    """Return the (value, count) of all edges from those of two sets of them; a count of 0 is no edge."""
    (value, count), (old_value, old_count) = new, old
    ahead = value > old_value if largest else value < old_value
    ahead = ahead | (value.isnan() & ~old_value.isnan())  # NaN beats every number, as in the kernel
    ahead = (count > 0) & (ahead | (old_count == 0))
    level = (count > 0) & (old_count > 0) & _same(value, old_value)
    return torch.where(ahead, value, old_value), torch.where(ahead, count, old_count + count * level)


def _same(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def _every_edge(block: "Block") -> tuple[Tensor, Tensor]:
    every = block.cached("every_edge", lambda: _arange(block.num_edges, block.device))
    return block.indptr, every


def _own_edges(block: "Block") -> kernels.Transposed:
    """Each edge as a source of its own: the transposed form of `_every_edge`."""
    every = _every_edge(block)[1]

    def make() -> kernels.Transposed:
        indptr = torch.arange(block.num_edges + 1, device=block.device)
        return kernels.Transposed(indptr, block.edge_dst.to(every.dtype), every)

    return block.cached("own_edges", make)


def _arange(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, dtype=torch.int32 if count < 2**31 else torch.int64, device=device)


def _matrix(values: Tensor) -> Tensor:
    return values.reshape(values.shape[0], values[:1].numel()) if values.dim() != 2 else values
