"""The bits of a coded exchange, chosen from a measured error."""

from typing import Any

import pytest
import torch

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.drift import Drift
from weft.exchanges.quantised import Quantised


def exchange(bits: int, error: float | None) -> Quantised:
    """Return an exchange of nothing, with a budget."""
    nothing = torch.zeros(0, dtype=torch.int64)
    plan = HaloPlan(0, nothing, nothing, [0], nothing, [0], None)
    given: Any = bits
    made = Quantised(plan, Group.alone(), torch.tensor([0, 0, 0]), bits=given)
    if error is not None:
        made.budget(error)
    return made


@pytest.mark.parametrize(
    ("bits", "measured", "chosen"),
    [
        (8, 0.001, 8),  # 4 bits would give 0.017
        (8, 0.0001, 4),  # 4 bits would give 0.0017, 2 bits 0.0085
        (8, 0.00001, 2),
        (8, 0.02, 16),
        (8, 0.009 * 15 / 255, 8),  # 4 bits would give 0.009: too near to the budget to go there
        (4, 0.009, 4),  # but not to stay
        (16, 5.0, 16),  # there are no more
        (32, 0.0, 16),  # exact tells nothing of codes: one level down, not to 2 bits
        (8, 0.0, 4),
        (2, 0.0, 2),
    ],
)
def test_the_fewest_bits_within_the_budget_are_taken(bits: int, measured: float, chosen: int) -> None:
    made = exchange(bits, error=0.01)
    made.adapt(Drift([measured / 3, measured], []))
    assert made.codec.bits == chosen
    again = exchange(8, error=0.01)
    again.load_state(made.state())
    assert again.codec.bits == chosen


def test_bits_stay_without_a_budget_or_without_a_measurement() -> None:
    plain = exchange(8, error=None)
    plain.adapt(Drift([0.5], []))
    assert (plain.codec.bits, plain.state()) == (8, {})
    idle = exchange(4, error=0.01)
    idle.adapt(Drift([], []))
    assert idle.codec.bits == 4
