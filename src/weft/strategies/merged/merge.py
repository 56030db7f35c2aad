"""Brings together, at the owner of each row, what several ranks reduced from their edges.

How contributions become one, whether sums, extremes or softmaxes, is in `weft.graph.reductions`; here they
travel. A row's contributions are reduced in this order: the owner's, then those that others sent.
"""

from typing import cast

import torch
from torch import Tensor

from weft.comm.plan import HaloPlan
from weft.exchanges.base import Exchange
from weft.exchanges.features import fetch_halo, stack_rows
from weft.graph.reductions import ByRow, Contribution, RowReduction
from weft.graph.sparse import SparseFeatures, product


class Merge:
    """Merges contributions to rows that are computed here: own rows, then those of others in halo order.

    `plan` brings rows from their owners to the ranks that compute for them; `spread` is an exchange by it,
    `collect` one by its way back. The caller holds own rows.
    """

    def __init__(self, plan: HaloPlan, spread: Exchange, collect: Exchange) -> None:
        self.spread, self.collect = spread, collect
        # Where results for own rows stand among those computed here, and those of others in halo order.
        self._own: slice | Tensor = slice(0, plan.num_rows)
        self._others: slice | Tensor = slice(plan.num_rows, None)
        self.alone = spread.group.size == 1
        """Whether no other rank has anything to add."""
        # `send_rows` read backwards: the rows that this owner would spread are those that contributions come
        # for.
        self.by_row = ByRow.of(torch.cat([torch.arange(plan.num_rows), plan.send_rows]), plan.num_rows)

    def begin_step(self) -> None:
        """Begin a step of both exchanges."""
        self.spread.begin_step()
        self.collect.begin_step()

    def end_step(self) -> None:
        """End a step of both exchanges."""
        self.spread.end_step()
        self.collect.end_step()

    def expand(self, own: Tensor) -> Tensor:
        """Return a row for each that is computed here, from those that the caller holds."""
        return own if self.alone else torch.cat([own, self.spread.gather(own)])

    def __call__(self, kind: RowReduction, part: Contribution) -> Tensor:
        """Return what all ranks contribute to each row that the caller holds, from what edges here do."""
        return part.value if self.alone else self._merged(kind, part).to(part.value.dtype)

    def sum_sparse(self, part: SparseFeatures) -> SparseFeatures:
        """Return the sums of sparse results, exactly: for inputs, whose aggregate is made once."""
        if self.alone:
            return part
        own, others = part[self._own], part[self._others]
        brought = fetch_halo(others, self.collect.whole_plan, self.collect.group)
        arrived = cast(SparseFeatures, brought)[others.shape[0] :]
        by_row = self.by_row
        return self._finished_sparse(product(by_row.indptr, by_row.indices, stack_rows(own, arrived)))

    # What layouts differ in

    def _merged(self, kind: RowReduction, part: Contribution) -> Tensor:
        """Return the rows that the caller holds, from the contributions computed here."""
        collected = [self._collected(each) for each in part.packed()]
        return kind.reduced(self.by_row, part.unpacked(collected)).value

    def _finished_sparse(self, own: SparseFeatures) -> SparseFeatures:
        return own

    def _collected(self, part: Tensor) -> Tensor:
        return torch.cat([part[self._own], self.collect.gather(part[self._others])])
