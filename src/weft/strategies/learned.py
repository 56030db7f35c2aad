"""Learned rows of a run: each lies with the worker that owns its node, and only those read are changed.

A table that a model holds (`LearnedRows`) is lent to the run. What a step reads of own nodes is read here;
of others, as batches of sampled neighbourhoods ask for them, the distinct rows come from their owners, and
their gradients go back the same way and are added there in the order of ranks. Then the optimiser changes
the rows that any worker has read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan
from weft.comm.rows import GatheredRows
from weft.layers.learned import LearnedRows
from weft.stores.memory import MemoryStore
from weft.stores.optim import RowwiseAdagrad, SparseAdagrad, SparseAdam, SparseOptimizer, SparseSGD

RowOptimizerName = Literal["adam", "adagrad", "rowwise_adagrad", "sgd"]
_OPTIMIZERS: dict[RowOptimizerName, type[Any]] = {
    "adam": SparseAdam,
    "adagrad": SparseAdagrad,
    "rowwise_adagrad": RowwiseAdagrad,
    "sgd": SparseSGD,
}
_PREFIX = "learned/"
_STEPS, _BEST = "steps", "best"
_LABEL = Label("learned rows")
_AT_ONCE = 1 << 16  # rows that are gathered at a time


@dataclass(frozen=True, eq=False)
class _Read:
    """What one look-up of a step read: rows that take gradients, and whose they are."""

    rows: Tensor
    held: Tensor
    """[m] the rows held here that they are; of rows of others, those that this worker sent."""
    travel: HaloPlan | None = None
    """How rows of others came; None: all were here."""


class LearnedTable:
    """One table: the rows held here, what a step has read, and the optimiser. Its workers make it together.

    `own` are the global ids of the nodes held here, ascending; None: all of them.
    """

    def __init__(
        self, rows: LearnedRows, own: Tensor | None, group: Group, *, name: RowOptimizerName, lr: float
    ) -> None:
        self.rows, self.group = rows, group
        start, values = rows.nodes.start, rows.weight.detach()
        self.ids = None if own is None else own[(own >= start) & (own < rows.nodes.stop)] - start
        if rows.held is None and self.ids is not None and len(self.ids) < len(rows.nodes):
            values = values[self.ids.to(values.device)]
        self._held = None if self.ids is None else self.ids.to(values.device)
        self._owners = (
            None if self.ids is None or group.size == 1 else GatheredRows(group, self.ids, label=_LABEL)
        )
        self.optimizer: SparseOptimizer = _OPTIMIZERS[name](MemoryStore(values), lr=lr)
        self._reads: list[_Read] = []
        self._best: Tensor | None = None
        rows.lend(self.values, self.read)

    @property
    def values(self) -> Tensor:
        """The rows held here, [n, width]."""
        return self.optimizer.store.values

    def read(self, ids: Tensor, own: bool) -> Tensor:
        """Return the rows of global ids; with a gradient, that `step` takes. Called by all unless `own`."""
        local = ids - self.rows.nodes.start
        if own or self._owners is None:
            return self._here(local.to(self.values.device)).to(ids.device)
        plan = self._owners.plan(local)
        came = plan.travel.pull(self.group, self.values, label=_LABEL).wait()
        leaf = self._noted(_Read(came, plan.travel.send_rows, plan.travel))
        return kernels.gather(leaf, plan.places)

    def _here(self, local: Tensor) -> Tensor:
        if self._held is not None:
            local = torch.searchsorted(self._held, local)
        return self._noted(_Read(kernels.gather(self.values, local), local))

    def _noted(self, read: _Read) -> Tensor:
        if torch.is_grad_enabled():
            read.rows.requires_grad_()
            self._reads.append(read)
        return read.rows

    def step(self) -> None:
        """Change the rows that any worker read since the last step; called by all."""
        # Empty ones first: the optimiser's step is one of all workers, also of one that has read nothing.
        rows, gradients = [self._nothing().new_zeros(0, dtype=torch.int64)], [self._nothing()]
        for read in self._reads:
            gradient = torch.zeros_like(read.rows) if read.rows.grad is None else read.rows.grad
            if read.travel is not None:
                label = _LABEL._replace(direction="backward")
                gradient = read.travel.reversed().pull(self.group, gradient, label=label).wait()
            rows.append(read.held)
            gradients.append(gradient.to(self.values.device))
        self.forget()
        self.optimizer.step(torch.cat(rows), torch.cat(gradients))

    def forget(self) -> None:
        """Let go of what was read: no step follows."""
        self._reads = []

    def keep_best(self) -> None:
        """Note that these are the best rows so far."""
        self._best = self.values.to("cpu", copy=True)

    def restore_best(self) -> None:
        """Put back the best rows, where some were noted."""
        if self._best is not None:
            self.values.copy_(self._best)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint holds: rows, the state of their optimiser, and the best rows."""
        best = {} if self._best is None else {_BEST: self._best}
        return {**self.optimizer.state(), **best}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        self._best = state[_BEST].clone() if _BEST in state else None
        self.optimizer.load_state({key: value for key, value in state.items() if key != _BEST})

    def whole(self, wanted: bool = True) -> Tensor:
        """Return the rows of all nodes where they are wanted, from their owners, in pieces; called by all."""
        count = len(self.rows.nodes)
        if self._owners is None:
            return self.values
        table = self.values.new_empty(count if wanted else 0, self.rows.width)
        for start in range(0, count, _AT_ONCE):
            ids = torch.arange(start, min(start + _AT_ONCE, count) if wanted else start)
            travel = self._owners.plan(ids).travel
            table[ids] = travel.pull(self.group, self.values, label=_LABEL).wait()
        return table

    def _nothing(self) -> Tensor:
        return self.values[:0]


class LearnedTables:
    """The learned tables of a run, by their place in the model; none where a strategy keeps them dense."""

    def __init__(self, tables: Mapping[str, LearnedTable] | None = None, *, scale: float = 1.0) -> None:
        """`scale` is their learning rate as a multiple of that of all else."""
        self.tables, self.scale = dict(tables or {}), scale

    @classmethod
    def lent(
        cls,
        model: nn.Module,
        own: Tensor | None,
        group: Group,
        *,
        name: RowOptimizerName,
        lr: float,
        scale: float,
    ) -> "LearnedTables":
        """Return the tables of a model, which it lends; called by all workers, with their own nodes."""
        tables = {
            module: LearnedTable(rows, own, group, name=name, lr=lr * scale)
            for module, rows in model.named_modules()
            if isinstance(rows, LearnedRows)
        }
        return cls(tables, scale=scale)

    def __bool__(self) -> bool:
        return bool(self.tables)

    @property
    def size(self) -> int:
        """The numbers that all tables hold, on all workers."""
        return sum(len(each.rows.nodes) * each.rows.width for each in self.tables.values())

    def set_rate(self, rate: float) -> None:
        """Follow the learning rate of an epoch."""
        for each in self.tables.values():
            each.optimizer.lr = rate * self.scale

    def step(self) -> None:
        """Change what was read since the last step."""
        for each in self.tables.values():
            each.step()

    def forget(self) -> None:
        """Let go of what was read: no step follows."""
        for each in self.tables.values():
            each.forget()

    def keep_best(self) -> None:
        """Note that these are the best rows so far."""
        for each in self.tables.values():
            each.keep_best()

    def restore_best(self) -> None:
        """Put back the best rows, where some were noted."""
        for each in self.tables.values():
            each.restore_best()

    def give_back(self, *, here: bool = True) -> None:
        """Give the model its tables, of all rows, where that is asked for; called by all workers."""
        for each in self.tables.values():
            rows = each.whole(here)
            if here:
                each.rows.take_back(rows)
        self.tables = {}

    # What a checkpoint holds

    def state(self) -> dict[str, Tensor]:
        """Return the rows held here and all that their optimisers need."""
        return {
            f"{_PREFIX}{name}/{key}": value
            for name, each in self.tables.items()
            for key, value in each.state().items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for name, each in self.tables.items():
            begin = f"{_PREFIX}{name}/"
            each.load_state({k.removeprefix(begin): v for k, v in state.items() if k.startswith(begin)})

    def nodes_of(self, name: str) -> range | None:
        """Return the nodes for which a tensor of `state` has a row; None: for none, or it is no table's."""
        place, _, key = name.removeprefix(_PREFIX).rpartition("/")
        known = name.startswith(_PREFIX) and place in self.tables and key != _STEPS
        return self.tables[place].rows.nodes if known else None

    @staticmethod
    def holds(name: str) -> bool:
        """Return whether a tensor of a strategy's state is of learned rows."""
        return name.startswith(_PREFIX)
