"""Rows and gradients in few bits: a step a row, stochastic rounding, so that the mean over draws is exact.

Every halo row travels in every step, as codes of 16, 8, 4 or 2 bits with its least value and its step (see
codec.py). The rounding of a value is at most one step: 1/255 of the extent of its row at 8 bits.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.base import Bits, Exchange, exchanges


@exchanges.add("quantised")
class Quantised(Exchange):
    """Bring every halo row in every step, in `bits` bits a value."""

    exact_at: ClassVar[Mapping[str, Any]] = {"bits": 32}

    def __init__(self, plan: HaloPlan, group: Group, clock: Tensor, *, bits: Bits = 8) -> None:
        super().__init__(plan, group, clock, bits=bits)
