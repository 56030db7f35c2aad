"""How far what an exchange brings is from the truth, measured while training.

Some rows that read the halo are drawn anew each time. What they read is asked for once more, exactly, and the
mean over their neighbours is computed from both: the error is ‖approximate − exact‖ / ‖exact‖ over the rows
of all ranks, one for each exchanged tensor. It costs a few hundred rows and changes nothing.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.pending import Pending
from weft.comm.plan import HaloPlan
from weft.draw import Stream, draw, fold
from weft.graph.parts.shard import Shard

ROWS = 32
EDGES = 4096
_LABEL = Label("drift")


@dataclass(frozen=True)
class Drift:
    """What was measured in one step, a number for each exchanged tensor, the same on all ranks."""

    errors: list[float]
    """The relative error of the mean over neighbours."""
    spread: list[float]
    """What the error of a sample with p = 1/2 would be: with p it is √((1 − p) / p) times that."""


@dataclass(frozen=True)
class _ChosenRows:
    """The rows of one step, the edges into them and what they read."""

    indptr: Tensor
    local: Tensor
    """[l] own rows that are read."""
    halo: Tensor
    """[w] halo rows that are read."""
    columns: Tensor
    """[e] what each edge reads: local rows, then halo rows."""
    degree: Tensor
    plan: HaloPlan


class Meter:
    """Measures the exchanges of the steps between its `begin` and `finish`; all ranks call all of it."""

    def __init__(self, shard: Shard, plan: HaloPlan, group: Group, clock: Tensor) -> None:
        self.shard, self.plan, self.group, self.clock = shard, plan, group, clock
        self.num_own = len(shard.node_ids)
        remote = (shard.indices >= self.num_own).long()
        counts = torch.cat([remote.new_zeros(1), remote.cumsum(0)])[shard.indptr].diff()
        self._readers = counts.nonzero().flatten()
        arrival = torch.arange(plan.num_halo)
        self._arrival = arrival if plan.order is None else torch.argsort(plan.order)
        self._chosen: _ChosenRows | None = None
        self._asked: dict[int, tuple[Tensor, Pending]] = {}
        self._sums: dict[int, Tensor] = {}

    def begin(self) -> None:
        """Choose the rows of this step and tell their owners."""
        self._asked.clear()
        self._sums.clear()
        self._chosen = self._choose()

    def sent(self, slot: int, h: Tensor) -> None:
        """Ask for the exact rows of a tensor that is exchanged now."""
        assert self._chosen is not None, "begun"
        if h.is_floating_point():
            exact = self._chosen.plan.pull(self.group, h, label=_LABEL._replace(slot=slot))
            self._asked[slot] = (h[self._chosen.local], exact)

    def arrived(self, slot: int, rows: Tensor, kept: Tensor | None, scale: float | Tensor) -> None:
        """Compare them with what the exchange brought."""
        if slot not in self._asked or self._chosen is None:
            return
        chosen, (local, pending) = self._chosen, self._asked.pop(slot)
        local, exact = (each.flatten(1).double() for each in _two(local, pending.wait()))
        brought = _existing(rows, kept, scale, chosen.halo).reshape(exact.shape).double()
        truth = self._mean(torch.cat([local, exact]))
        wrong = self._mean(torch.cat([torch.zeros_like(local), brought - exact]))
        squares = torch.cat([local.new_zeros(len(local)), exact.square().sum(1)])
        alone = self._mean(squares[:, None], power=2)
        self._sums[slot] = torch.stack([wrong.square().sum(), alone.sum(), truth.square().sum()])

    def finish(self) -> Drift:
        """Return the errors of the step."""
        slots = sorted(self._sums)
        sums = torch.stack([self._sums[slot] for slot in slots]) if slots else torch.zeros(0, 3).double()
        wrong, alone, truth = self.group.all_reduce(sums, label=_LABEL).wait().T
        truth = truth.clamp(min=torch.finfo(torch.float64).tiny)
        self._chosen = None
        return Drift((wrong / truth).sqrt().tolist(), (alone / truth).sqrt().tolist())

    # Underneath

    def _mean(self, table: Tensor, *, power: int = 1) -> Tensor:
        assert self._chosen is not None
        chosen = self._chosen
        return kernels.spmm(chosen.indptr, chosen.columns, table) / chosen.degree[:, None] ** power

    def _choose(self) -> _ChosenRows:
        rows = self._rows()
        starts, ends = self.shard.indptr[rows], self.shard.indptr[rows + 1]
        degree = ends - starts
        indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
        edges = torch.arange(int(indptr[-1])) - torch.repeat_interleave(indptr[:-1] - starts, degree)
        sources = self.shard.indices[edges].long()
        remote = sources >= self.num_own
        local, local_place = torch.unique(sources[~remote], return_inverse=True)
        arriving, halo_place = torch.unique(
            self._arrival[sources[remote] - self.num_own], return_inverse=True
        )
        columns = torch.empty_like(sources)
        columns[~remote], columns[remote] = local_place, halo_place + len(local)
        halo = arriving if self.plan.order is None else self.plan.order[arriving]
        return _ChosenRows(indptr, local, halo, columns, degree.double(), self._small_plan(arriving))

    def _rows(self) -> Tensor:
        """Return some rows that read the halo, by a draw; fewer where they have many edges."""
        if not len(self._readers):
            return self._readers
        seed, epoch, step = self.clock.tolist()
        # The layer 1 of this stream is free: boundary sampling draws once for all layers, in layer 0.
        key = fold(seed, Stream.BOUNDARY, epoch, step, 1)
        turns = draw(key, np.arange(ROWS)).astype(np.int64) % len(self._readers)
        rows = self._readers[torch.unique(torch.from_numpy(turns))]
        edges = (self.shard.indptr[rows + 1] - self.shard.indptr[rows]).cumsum(0)
        few: Tensor = rows[: max(1, int((edges <= EDGES).sum()))]
        return few

    def _small_plan(self, arriving: Tensor) -> HaloPlan:
        """Return the plan that brings some rows, named by their place in the order of arrival."""
        size, plan = self.group.size, self.plan
        bounds = torch.tensor([0, *plan.recv_counts]).cumsum(0)
        cuts = torch.searchsorted(arriving, bounds)
        wanted = cuts.diff()
        ones = [1] * size
        row_counts = self.group.all_to_all(wanted, ones, ones, label=_LABEL).wait()
        places = arriving - torch.repeat_interleave(bounds[:-1], wanted)  # in the block of their owner
        counts = row_counts.tolist()
        blocks = torch.tensor([0, *plan.send_counts]).cumsum(0)[:-1]
        rows_asked_for = self.group.all_to_all(places, wanted.tolist(), counts, label=_LABEL).wait()
        chosen = rows_asked_for + torch.repeat_interleave(blocks, row_counts)
        return HaloPlan(
            num_rows=plan.num_rows,
            send_rows=plan.send_rows[chosen],
            send_ids=plan.send_ids[chosen],
            send_counts=counts,
            recv_ids=plan.recv_ids[arriving],
            recv_counts=wanted.tolist(),
            order=None,
        )


def _two(*tensors: Tensor) -> list[Tensor]:
    return [each if each.dim() > 1 else each[:, None] for each in tensors]


def _existing(rows: Tensor, kept: Tensor | None, scale: float | Tensor, halo: Tensor) -> Tensor:
    """Return the rows that stand for some halo rows in sums: scaled, and zero where they do not exist."""
    if isinstance(scale, Tensor):
        scale = scale.to(rows.dtype).reshape(-1, *[1] * (rows.dim() - 1))
    rows = rows * scale
    if kept is None:
        return rows[halo]
    position = _places(kept)[halo]
    there = position >= 0
    existing = rows.new_zeros(len(halo), *rows.shape[1:])
    existing[there] = rows[position[there]]
    return existing


def _places(kept: Tensor) -> Tensor:
    """Return the place of each halo row among those that exist, −1 for the others."""
    return torch.where(kept, kept.cumsum(0) - 1, -1)
