"""Nothing crosses the network: every rank works with what it computed itself (0c of DistGNN, 2021).

Inputs do not cross it either, and degrees are those of the part. Evaluation is exact, as with every exchange.
"""

from typing import ClassVar

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.accuracy import AccuracyCost, on_communities, on_pubmed
from weft.exchanges.base import Arrival, Exchange, Later, exchanges


@exchanges.add("none")
class Silent(Exchange):
    """Bring nothing: a part goes by its own edges and degrees. Exact with one worker alone."""

    score_costs: ClassVar[tuple[AccuracyCost, ...]] = (on_pubmed(-0.13, 0.25), on_communities(-0.36, 0.04))
    exact_at = None
    parts_alone: ClassVar[bool] = True

    def __init__(self, plan: HaloPlan, group: Group, clock: Tensor) -> None:
        super().__init__(plan, group, clock)
        self.kept = torch.zeros(plan.num_halo, dtype=torch.bool)
        self.plan = plan.select(self.kept, torch.zeros(len(plan.send_rows), dtype=torch.bool))

    def pull(self, h: Tensor, slot: int) -> Arrival:
        """Return no rows."""
        return Later(lambda: h.new_zeros(0, *h.shape[1:]))

    def push(self, gradient: Tensor, slot: int) -> Arrival:
        """Return that nobody sent a gradient."""
        return Later(lambda: gradient.new_zeros(self.plan.num_rows, *gradient.shape[1:]))
