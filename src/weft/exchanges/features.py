"""Inputs of the halo, fetched once: they do not change, so every exchange leaves them exact."""

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan
from weft.graph.sparse import Features, SparseFeatures

_LABEL = Label("features")


def fetch_halo(x: Features, plan: HaloPlan, group: Group) -> Features:
    """Return own rows followed by the halo rows, [n + m, ...], dense or sparse as the own rows are."""
    if isinstance(x, Tensor):
        return torch.cat([x, plan.pull(group, x, label=_LABEL).wait()])
    return _fetch_sparse(x, plan, group)


def _fetch_sparse(x: SparseFeatures, plan: HaloPlan, group: Group) -> SparseFeatures:
    """Bring the lengths of rows first: they tell both ends how many values follow."""
    own = x.indptr.diff()
    arriving = group.all_to_all(own[plan.send_rows], plan.send_counts, plan.recv_counts, label=_LABEL).wait()
    sent = x.rows(plan.send_rows)
    counts = _sums(own[plan.send_rows], plan.send_counts), _sums(arriving, plan.recv_counts)
    columns, values = (
        group.all_to_all(part, *counts, label=_LABEL).wait() for part in (sent.indices, sent.values)
    )
    indptr = torch.cat([arriving.new_zeros(1), arriving.cumsum(0)])
    halo = SparseFeatures(indptr, columns, values, (plan.num_halo, x.shape[1]))
    if plan.order is not None:
        halo = halo.rows(torch.argsort(plan.order))
    return stack_rows(x, halo)


def stack_rows(first: SparseFeatures, second: SparseFeatures) -> SparseFeatures:
    """Return the rows of one, then those of the other."""
    lengths = torch.cat([first.indptr.diff(), second.indptr.diff()])
    return SparseFeatures(
        torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]),
        torch.cat([first.indices, second.indices]),
        torch.cat([first.values, second.values]),
        (len(lengths), first.shape[1]),
    )


def _sums(lengths: Tensor, counts: list[int]) -> list[int]:
    """Return the values that each block of rows holds."""
    return [int(block.sum()) for block in torch.split(lengths, counts)]
