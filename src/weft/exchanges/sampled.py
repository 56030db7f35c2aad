"""Boundary sampling: Wan et al., BNS-GCN: Efficient Full-Graph Training with Boundary Sampling, 2022.

A halo row exists in an epoch iff its draw, a function of (seed, epoch, node), is below p: one draw for all
layers. Both ends compute it, so no ids travel. Sums and means of rows and of messages weigh what remains of
the halo by 1/p, forward and backward, which keeps them unbiased; attention normalises itself, and an extreme
has no scale: they are over the rows that remain. At p = 0 the parts stand alone.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from weft.comm.balance import shares
from weft.comm.group import Group
from weft.comm.plan import HaloPlan, placed
from weft.config import Range
from weft.draw import Stream, draw, fold
from weft.exchanges.accuracy import AccuracyCost, on_communities, on_pubmed
from weft.exchanges.base import Bits, Exchange, exchanges
from weft.exchanges.drift import Drift

MEAN = 0.1  # of "auto", which brings more over fast links and less over slow ones
_MARGIN = 0.8  # of a budget that is aimed at: the error of one draw lies on either side of what is expected
_LEAST = 0.01  # what a budget on the error, or a slow link, may bring p down to


@exchanges.add("sampled")
class SampledExchange(Exchange):
    """Bring each halo row with probability `p`, drawn anew each epoch, in `bits` bits a value.

    "auto" goes by the speed of links: as many rows as p = 0.1 in all, so that all links finish together.
    """

    score_costs: ClassVar[tuple[AccuracyCost, ...]] = (
        on_pubmed(0.14, 0.26, p=0.1),
        on_communities(-4.13, 0.05, p=0.1),
    )
    exact_at: ClassVar[Mapping[str, Any]] = {"p": 1.0}
    adapts: ClassVar[str] = "p"

    def __init__(
        self,
        plan: HaloPlan,
        group: Group,
        clock: Tensor,
        *,
        p: Annotated[float, Range(least=0, most=1)] | Literal["auto"] = 0.1,
        bits: Bits = 32,
    ) -> None:
        super().__init__(plan, group, clock, bits=bits)
        self.auto_p = p == "auto"
        self.p = MEAN if p == "auto" else p
        self.links: Tensor | None = None
        """[size, size] p of the rows that a member (row) sends to another (column), where they differ."""
        self._error: float | None = None

    def begin_step(self) -> None:
        """Draw the rows of the epoch."""
        super().begin_step()
        plan = self.whole_plan
        if self.links is None and self.p >= 1.0:
            self.plan, self.kept, self.scale = plan, None, 1.0
            return
        seed, epoch, _ = self.clock.tolist()
        key = fold(seed, Stream.BOUNDARY, epoch)
        arriving = self._shares(plan.recv_counts, arriving=True)
        drawn = placed(arriving, plan.order)
        self.kept = _chosen(key, plan.halo_ids, drawn)
        self.plan = plan.select(
            self.kept, _chosen(key, plan.send_ids, self._shares(plan.send_counts, arriving=False))
        )
        if self.links is None:
            self.scale = 1.0 / self.p if self.p > 0 else 1.0
        else:
            self.scale = 1.0 / drawn[self.kept]

    def budget(self, error: float) -> None:
        """Choose p each time the error was measured."""
        self._error = error

    def adapt(self, drift: Drift) -> None:
        """Take the p whose expected error, √((1 − p) / p) times the spread, is 0.8 of the budget."""
        if self._error is not None and drift.spread:
            spread = max(drift.spread) ** 2
            self.p = max(spread / (spread + (_MARGIN * self._error) ** 2), _LEAST)

    @property
    def wants_speed(self) -> bool:
        """Whether p or the bits are to be chosen by the speed of links."""
        return self.auto_p or self.auto_bits

    def tune(self, speed: Tensor) -> None:
        """Choose the bits of each link, then how many rows it brings with them."""
        super().tune(speed)
        if self.auto_p:
            bits = self.codec.bits if self.codec.links is None else self.codec.links.numpy()
            forward = bits / speed.numpy()
            cost = forward + forward.T  # gradients return the other way
            chosen = shares(self._rows_of_links(), cost, mean=MEAN, least=_LEAST)
            self.links = torch.from_numpy(chosen)

    def tuned(self) -> dict[str, Tensor]:
        """Return the bits and p of links."""
        return super().tuned() | ({} if self.links is None else {"link_p": self.links})

    def load_tuned(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        super().load_tuned(state)
        self.links = state.get("link_p", self.links)

    def settings(self) -> dict[str, Any]:
        """Return p and the bits, from row to column where they differ by link."""
        p = self.p if self.links is None else self.links.tolist()
        return {"p": p, **super().settings()}

    def state(self) -> dict[str, Tensor]:
        """Return p, where it is chosen."""
        return {} if self._error is None else {"p": torch.tensor(self.p, dtype=torch.float64)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue with it."""
        if "p" in state:
            self.p = float(state["p"])

    def _shares(self, counts: list[int], *, arriving: bool) -> Tensor:
        """Return the p of each row that arrives or is sent, by member."""
        if self.links is None:
            return torch.full((sum(counts),), self.p, dtype=torch.float64)
        of_links = self.links[:, self.group.rank] if arriving else self.links[self.group.rank]
        return torch.repeat_interleave(of_links, torch.tensor(counts))


def _chosen(key: int, ids: Tensor, probability: Tensor) -> Tensor:
    """Return which rows are drawn: the same rule at both ends of a link."""
    bits = torch.from_numpy(draw(key, ids.numpy()).astype(np.int64))
    return bits < (probability * 2.0**32).round().long()
