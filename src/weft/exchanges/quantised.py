"""Rows and gradients in few bits: a step a row, stochastic rounding, so that the mean over draws is exact.

Every halo row travels in every step, as codes of 16, 8, 4 or 2 bits with its least value and its step (see
codec.py). The rounding of a value is at most one step: 1/255 of the extent of its row at 8 bits.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.accuracy import AccuracyCost, on_communities, on_pubmed
from weft.exchanges.base import Bits, Exchange, exchanges
from weft.exchanges.drift import Drift
from weft.kernels.quantise import BITS

_MARGIN = 0.8  # fewer bits only where the error would stay well below the budget


@exchanges.add("quantised")
class Quantised(Exchange):
    """Bring every halo row in every step, in `bits` bits a value."""

    score_costs: ClassVar[tuple[AccuracyCost, ...]] = (
        on_pubmed(0.04, 0.06, bits=8),
        on_communities(-0.02, 0.02, bits=8),
    )
    exact_at: ClassVar[Mapping[str, Any]] = {"bits": 32}
    adapts: ClassVar[str] = "bits"

    def __init__(self, plan: HaloPlan, group: Group, clock: Tensor, *, bits: Bits = 8) -> None:
        super().__init__(plan, group, clock, bits=bits)
        self._error: float | None = None

    def budget(self, error: float) -> None:
        """Choose the bits each time the error was measured."""
        self._error = error

    def adapt(self, drift: Drift) -> None:
        """Take the fewest bits whose error would be within the budget: it falls as 1 / (2^bits − 1)."""
        if self._error is None or not drift.errors:
            return
        now = self.codec.bits
        if max(drift.errors) == 0.0:  # which tells nothing of fewer bits: one level down, and measure again
            self.codec.bits = max((bits for bits in BITS if bits < now), default=BITS[0])
            return
        unit = max(drift.errors) * (2.0**now - 1)
        for bits in BITS:
            limit = self._error * (_MARGIN if bits < now else 1.0)
            if unit / (2.0**bits - 1) <= limit or bits == BITS[-1]:
                self.codec.bits = bits
                return

    def state(self) -> dict[str, Tensor]:
        """Return the bits, where they are chosen."""
        return {} if self._error is None else {"bits": torch.tensor(self.codec.bits)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue with them."""
        if "bits" in state:
            self.codec.bits = int(state["bits"])
