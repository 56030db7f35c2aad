"""Nothing is exchanged: no rows, no gradients, no message."""

import torch

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges import exchanges, make_exchange


def test_no_row_exists_and_no_gradient_returns() -> None:
    ids = torch.arange(3)
    plan = HaloPlan(3, torch.tensor([2]), ids[2:], [0, 1], torch.tensor([7, 8]), [0, 2], None)
    exchange = make_exchange("none", plan, Group.alone(), torch.zeros(3, dtype=torch.int64))
    h = torch.ones(3, 4, requires_grad=True)
    rows = exchange.gather(h)
    assert tuple(rows.shape) == (0, 4)
    assert exchange.kept is not None
    assert exchange.kept.tolist() == [False, False]
    rows.sum().backward()
    assert h.grad is not None
    assert not h.grad.any()
    assert exchanges["none"].exact_at is None
