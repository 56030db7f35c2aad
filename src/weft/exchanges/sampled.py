"""Boundary sampling: Wan et al., BNS-GCN: Efficient Full-Graph Training with Boundary Sampling, 2022.

A halo row exists in an epoch iff its draw, a function of (seed, epoch, node), is below p: one draw for all
layers. Both ends compute it, so no ids travel. Sums and means weigh the rows that remain by 1/p, which keeps
them unbiased; attention normalises itself, and an extreme has no scale. At p = 0 the parts stand alone.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.config import Range
from weft.draw import Stream, draw, fold, threshold
from weft.exchanges.base import Bits, Exchange, exchanges


@exchanges.add("sampled")
class Sampled(Exchange):
    """Bring each halo row with probability `p`, drawn anew each epoch, in `bits` bits a value."""

    exact_at: ClassVar[Mapping[str, Any]] = {"p": 1.0}

    def __init__(
        self,
        plan: HaloPlan,
        group: Group,
        clock: Tensor,
        *,
        p: Annotated[float, Range(least=0, most=1)] = 0.1,
        bits: Bits = 32,
    ) -> None:
        super().__init__(plan, group, clock, bits=bits)
        self.p = p
        self.scale = 1.0 / p if p > 0 else 1.0

    def begin_step(self) -> None:
        """Draw the rows of the epoch."""
        super().begin_step()
        if self.p >= 1.0:
            return
        seed, epoch, _ = self.clock.tolist()
        key = fold(seed, Stream.BOUNDARY, epoch)
        self.kept = self._chosen(key, self.whole_plan.halo_ids)
        self.plan = self.whole_plan.select(self.kept, self._chosen(key, self.whole_plan.send_ids))

    def _chosen(self, key: int, ids: Tensor) -> Tensor:
        bits = draw(key, ids.numpy()).astype(np.int64)
        return torch.from_numpy(bits < threshold(self.p))
