"""Optimizers of rows that are learned and owned by ranks: only rows that were read are changed.

rows = store.gather(ids).requires_grad_()
loss(rows).backward()
optimizer.step(ids, rows.grad)            # all ranks call

Gradients of one id are added in a fixed order, so runs repeat bit for bit. State lies beside the rows, on
their owner. The steps are those of torch's SparseAdam and Adagrad on sparse gradients.
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
        for name, held in self._moments().items():
            held.copy_(state[name])

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
        first, second = self.betas
        mean = self.mean[rows].mul_(first).add_(grad, alpha=1 - first)
        square = self.square[rows].mul_(second).addcmul_(grad, grad, value=1 - second)
        self.mean[rows], self.square[rows] = mean, square
        rate = self.lr * (1 - second**self.steps) ** 0.5 / (1 - first**self.steps)
        self.store.values[rows] -= rate * mean / square.sqrt().add_(self.eps)

    def _moments(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "square": self.square}


class SparseAdagrad(SparseOptimizer):
    """Adagrad on the rows that were read."""

    def __init__(self, store: MemoryStore, *, lr: float = 1e-2, eps: float = 1e-10) -> None:
        super().__init__(store, lr=lr, eps=eps)
        self.total = torch.zeros_like(store.values)

    def _update(self, rows: Tensor, grad: Tensor) -> None:
        total = self.total[rows].addcmul_(grad, grad)
        self.total[rows] = total
        self.store.values[rows] -= self.lr * grad / total.sqrt().add_(self.eps)

    def _moments(self) -> dict[str, Tensor]:
        return {"total": self.total}
