"""Optimizers of rows that are learned and owned by ranks: only rows that were read are changed.

rows = store.gather(ids).requires_grad_()
loss(rows).backward()
optimizer.step(ids, rows.grad)            # all ranks call

Gradients of one id are added in a fixed order, so runs repeat bit for bit. State lies beside the rows, on
their owner. The steps are those of torch's SparseAdam, Adagrad and SGD on sparse gradients; row-wise Adagrad
is PyTorch-BigGraph's. Each formula stands alone (`adam_rows` …), for whoever keeps rows and state otherwise.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from weft.errors import InputError
from weft.stores.memory import MemoryStore


class SparseOptimizer(ABC):
    """Changes the rows of a store by their gradients, each on its owner."""

    def __init__(self, store: MemoryStore, *, lr: float, eps: float) -> None:
        if lr < 0 or eps < 0:
            raise InputError(f"lr and eps must not be negative, got {lr!r} and {eps!r}")
        if store.storage is not None:
            raise InputError(
                f"rows kept in {store.storage} cannot be learned; make the store without storage"
            )
        self.store, self.lr, self.eps = store, lr, eps
        self.steps = 0

    def step(self, ids: Tensor, grad: Tensor) -> None:
        """Send the gradients of these rows to their owners, who change them; all ranks call."""
        ids = self.store.checked(ids)
        if tuple(grad.shape) != (ids.numel(), *self.store.shape[1:]):
            expected = [ids.numel(), *self.store.shape[1:]]
            raise InputError(f"expected gradients of shape {expected}, got {list(grad.shape)}")
        rows, summed = self.store.push(ids, grad.detach().to(self.store.dtype))
        self.steps += 1
        self._update(rows, summed)

    def state(self) -> dict[str, Tensor]:
        """Return this rank's state, for its checkpoint."""
        return {"steps": torch.tensor(self.steps), "rows": self.store.values, **self._moments()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue where `state` was taken, on as many ranks with the same rows."""
        self.steps = int(state["steps"])
        self.store.values.copy_(state["rows"])
        for name, moment in self._moments().items():
            moment.copy_(state[name])

    @abstractmethod
    def _update(self, rows: Tensor, grad: Tensor) -> None:
        """Change local rows, each given once, by their gradients."""

    @abstractmethod
    def _moments(self) -> dict[str, Tensor]:
        """Return the tensors of the state, by name."""


class SparseAdam(SparseOptimizer):
    """Adam on the rows that were read; moments of the others stay as they are."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(store, lr=lr, eps=eps)
        self.betas = betas
        self.mean = torch.zeros_like(store.values)
        self.square = torch.zeros_like(store.values)

    def _update(self, rows: Tensor, grad: Tensor) -> None:
        moments, values = (self.mean, self.square), self.store.values
        adam_rows(values, *moments, rows, grad, lr=self.lr, betas=self.betas, eps=self.eps, step=self.steps)

    def _moments(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "square": self.square}


class SparseAdagrad(SparseOptimizer):
    """Adagrad on the rows that were read."""

    def __init__(self, store: MemoryStore, *, lr: float = 1e-2, eps: float = 1e-10) -> None:
        super().__init__(store, lr=lr, eps=eps)
        self.total = torch.zeros_like(store.values)

    def _update(self, rows: Tensor, grad: Tensor) -> None:
        adagrad_rows(self.store.values, self.total, rows, grad, lr=self.lr, eps=self.eps)

    def _moments(self) -> dict[str, Tensor]:
        return {"total": self.total}


class RowwiseAdagrad(SparseOptimizer):
    """Adagrad with one sum per row, of the mean squares of its gradients: a number of state for each row."""

    def __init__(self, store: MemoryStore, *, lr: float = 1e-2, eps: float = 1e-10) -> None:
        super().__init__(store, lr=lr, eps=eps)
        self.total = store.values.new_zeros(len(store.values))

    def _update(self, rows: Tensor, grad: Tensor) -> None:
        rowwise_adagrad_rows(self.store.values, self.total, rows, grad, lr=self.lr, eps=self.eps)

    def _moments(self) -> dict[str, Tensor]:
        return {"total": self.total}


class SparseSGD(SparseOptimizer):
    """Plain descent on the rows that were read; there is no state."""

    def __init__(self, store: MemoryStore, *, lr: float = 1e-2) -> None:
        super().__init__(store, lr=lr, eps=0.0)

    def _update(self, rows: Tensor, grad: Tensor) -> None:
        self.store.values.index_add_(0, rows.to(self.store.device), grad, alpha=-self.lr)

    def _moments(self) -> dict[str, Tensor]:
        return {}


def adam_rows(
    values: Tensor,
    mean: Tensor,
    square: Tensor,
    rows: Tensor,
    grad: Tensor,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    step: int,
) -> None:
    """Take Adam's step number `step`, from 1, on rows [m] of values [n, ...], each given once, in place."""
    first, second = betas
    # Moments of rows that were not read stay as they are, where Adam would let them decay: torch's SparseAdam
    # does the same, and a table larger than a step could not be gone through.
    new_mean = mean[rows].mul_(first).add_(grad, alpha=1 - first)
    new_square = square[rows].mul_(second).addcmul_(grad, grad, value=1 - second)
    mean[rows], square[rows] = new_mean, new_square
    rate = lr * (1 - second**step) ** 0.5 / (1 - first**step)
    values[rows] -= rate * new_mean / new_square.sqrt().add_(eps)


def adagrad_rows(
    values: Tensor, total: Tensor, rows: Tensor, grad: Tensor, *, lr: float, eps: float = 1e-10
) -> None:
    """Take Adagrad's step on rows [m] of values [n, ...], each given once, in place; total is [n, ...]."""
    new_total = total[rows].addcmul_(grad, grad)
    total[rows] = new_total
    values[rows] -= lr * grad / new_total.sqrt().add_(eps)


def rowwise_adagrad_rows(
    values: Tensor, total: Tensor, rows: Tensor, grad: Tensor, *, lr: float, eps: float = 1e-10
) -> None:
    """Take the step of Adagrad with one sum per row, total [n], on rows [m], each given once, in place.

    A row may be given again with a gradient of zeros.
    """
    flat = grad.reshape(len(grad), grad.shape[1:].numel())
    # Added, not assigned: `summed_rows` on a GPU may name a row again with zeros, which must change nothing.
    total.index_add_(0, rows, torch.linalg.vecdot(flat, flat) / max(1, flat.shape[1]))
    scale = total.index_select(0, rows).sqrt_().add_(eps).reciprocal_().mul_(-lr)
    values.index_add_(0, rows, grad * scale.view(-1, *[1] * (grad.dim() - 1)))


def summed_rows(rows: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return each of rows [m] once, rising, and the sum of its gradients [m, d], in the order given.

    On a GPU there are as many as before, and those left over are zeros for a row that is there: how many
    differ would have to be waited for.
    """
    if rows.device.type == "cpu":
        distinct, row_of = torch.unique(rows, return_inverse=True)
        return distinct, grad.new_zeros(len(distinct), *grad.shape[1:]).index_add_(0, row_of, grad)
    # Stable, so that gradients of a row are added in the order given: atomic adds would differ between runs.
    order = rows.argsort(stable=True)
    sorted_rows = rows[order]
    row_of = torch.zeros_like(sorted_rows)
    row_of[1:] = (sorted_rows[1:] != sorted_rows[:-1]).cumsum(0)
    distinct = sorted_rows[-1:].expand(len(sorted_rows)).clone().index_copy_(0, row_of, sorted_rows)
    return distinct, torch.zeros_like(grad).index_put_((row_of,), grad[order], accumulate=True)
