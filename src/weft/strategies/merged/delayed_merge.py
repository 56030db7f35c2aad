"""Merging replicas over exchanges that are late: what a rank computed itself is never read back old.

The root of a node merges its own result, of this step, with those that came from leaves. To each leaf goes
what all *others* computed, and the leaf merges its own result, of this step, with that. So only results of
other ranks are old: of leaves by one delay at the root and by two at another leaf, of the root by one.
"""

import torch
from torch import Tensor

from weft.comm.plan import HaloPlan
from weft.exchanges.delayed import Delayed
from weft.graph.reductions import ByRow, Contribution, RowReduction
from weft.strategies.merged.vertex_cut_block import ReplicaMerge, Replicas


class DelayedMerge(ReplicaMerge):
    """Merges results of this step with older ones of others.

    `collect` goes by the way back of the replicas' plan; `spread` by `to_each_leaf` of it, as leaves of one
    root are sent different rows.
    """

    def __init__(self, replicas: Replicas, spread: Delayed, collect: Delayed, *, backward: str) -> None:
        super().__init__(replicas, spread, collect, backward=backward)
        leaves = len(replicas.leaves)
        self._picked, self._without = _leave_one_out(replicas.plan)
        self._both = ByRow.of(torch.arange(leaves).repeat(2), leaves)
        shared = replicas.shared_leaf_ids(spread.group)
        spread.relay("features", collect, shared)
        collect.relay("gradients", spread, shared)

    def _at_replicas(self, kind: RowReduction, part: Contribution) -> Tensor:
        here = part.packed()
        collected = [self._collected(each) for each in here]
        roots = kind.reduced(self.by_row, part.unpacked(collected))
        others = kind.reduced(self._without, part.unpacked([each[self._picked] for each in collected]))
        old = [self.spread.gather(each) for each in others.packed()]
        both = [torch.cat([own[self._others], late]) for own, late in zip(here, old)]
        leaves = kind.reduced(self._both, part.unpacked(both))
        return torch.cat([roots.value, leaves.value]).index_select(0, self.replicas.places)


def _leave_one_out(plan: HaloPlan) -> tuple[Tensor, ByRow]:
    """Return, for each leaf that roots here answer, the contributions of all others, and their rows.

    Contributions are counted as `Merge` does: those of roots, then those of leaves in the order of arrival.
    """
    rows = torch.cat([torch.arange(plan.num_rows), plan.send_rows])
    order = torch.argsort(rows, stable=True)
    counts = torch.bincount(rows, minlength=plan.num_rows)
    first = counts.cumsum(0) - counts
    wide = counts[plan.send_rows]  # replicas of the node of each leaf
    leaf = torch.repeat_interleave(wide)
    turn = torch.arange(len(leaf)) - torch.repeat_interleave(wide.cumsum(0) - wide, wide)
    picked = order[first[plan.send_rows][leaf] + turn]
    other = picked != leaf + plan.num_rows
    return picked[other], ByRow.of(leaf[other], len(plan.send_rows))
