"""Rows by global id, whoever holds them; gradients go back to the holders.

Where a plan of a halo is fixed by the shards, the ids here are whatever a step needs: the ends of its pairs.
Each distinct id travels once. All members make the same calls in the same order, and run backward through
them, also a member that asks for nothing: its loss must reach the empty rows that it got.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan
from weft.errors import GraphError
from weft.kernels.second import here_only

LABEL = Label("rows")


@dataclass(frozen=True, eq=False)
class RowPlan:
    """How the rows of some ids come: made once where the ids stay the same."""

    travel: HaloPlan
    """The distinct ids, each from the member that holds it, this one included."""
    places: Tensor
    """[m] int64 the place of each id among the distinct ones."""

    def __len__(self) -> int:
        return len(self.places)


class GatheredRows:
    """Gives rows by global id; each member holds those of `node_ids` [n], ascending, as a shard's are.

    `owner` [N] says which member holds each node, where that is known already; else all members tell each
    other. On a group of one that holds every node it is a plain index.

    >>> rows = GatheredRows(Group.alone(), torch.arange(4))
    >>> rows(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), torch.tensor([2, 2, 0])).flatten().tolist()
    [2.0, 2.0, 0.0]
    """

    def __init__(
        self, group: Group, node_ids: Tensor, *, owner: Tensor | None = None, label: Label = LABEL
    ) -> None:
        self.group, self.node_ids, self.label = group, node_ids, label
        self.owner = owners(node_ids, None, group, label=label) if owner is None else owner

    def __call__(self, h: Tensor, ids: Tensor | RowPlan) -> Tensor:
        """Return the rows [m, ...] of ids [m], any, in their order; `h` [n, ...] are one's own.

        Gradients of an id are added on each member in the order of `ids`, then over members in their order.
        """
        if len(h) != len(self.node_ids):
            raise GraphError(f"expected {len(self.node_ids):,} rows, one a node held here, got {len(h):,}")
        plan = ids if isinstance(ids, RowPlan) else self.plan(ids, device=h.device)
        if self.group.size == 1:
            return kernels.gather(h, plan.travel.send_rows[plan.places])
        rows: Tensor = _Gather.apply(h, self.group, plan.travel, self.label)  # type: ignore[no-untyped-call]
        return kernels.gather(rows, plan.places)

    def plan(self, ids: Tensor, *, device: torch.device | str = "cpu") -> RowPlan:
        """Return how these rows come, for rows `h` that lie on a device; all members call it."""
        wanted = ids.to("cpu", torch.int64)
        wrong = wanted[(wanted < 0) | (wanted >= len(self.owner))]
        if len(wrong):
            raise GraphError(f"expected ids 0 … {len(self.owner) - 1:,}, got {int(wrong[0]):,}")
        # Pairs of a step name popular nodes many times; each row travels once and is spread here.
        distinct, places = torch.unique(wanted, return_inverse=True)
        owner = self.owner[distinct].long()
        if bool((owner < 0).any()):
            raise GraphError(f"no rank holds node {int(distinct[owner < 0][0]):,}; a part is missing")
        travel = HaloPlan.of(distinct, owner, self.node_ids, self.group, label=self.label)
        return RowPlan(travel.to(torch.device(device)), places.to(device))


def owners(node_ids: Tensor, num_nodes: int | None, group: Group, *, label: Label = LABEL) -> Tensor:
    """Return the member that holds each node, [N] int32, -1 for none; all members call, with their nodes.

    Without `num_nodes` they hold all there are.
    """
    ids, counts = group.gather_unequal(node_ids, label=label)
    table = torch.full((len(ids) if num_nodes is None else num_nodes,), -1, dtype=torch.int32)
    table[ids] = torch.repeat_interleave(
        torch.arange(len(counts), dtype=torch.int32), torch.tensor(counts), output_size=len(ids)
    )
    return table


class _Gather(torch.autograd.Function):
    """Forward: rows come from their holders. Backward: their gradients go home and are added in order."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, group: Group, plan: HaloPlan, label: Label) -> Tensor:
        ctx.group, ctx.plan, ctx.label = group, plan, label
        return plan.pull(group, h, label=label).wait()

    @staticmethod
    @here_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan, label = ctx.plan, ctx.label._replace(direction="backward")
        # The way back is a plan like any other, so a member without rows makes this call too and nobody waits
        # for it.
        moved = plan.reversed().pull(ctx.group, gradients[0], label=label)
        return moved.then(plan.sum_at_owner).wait(), None, None, None
