"""Transfers under way: one wait, the same result again, and the time of it in the ledger."""

from typing import Any

import torch
from torch.futures import Future

from weft.comm.group import Group
from weft.comm.ledger import OTHER
from weft.comm.pending import Pending, sum_blocks


class Work:
    """A transfer that ends when it is waited for."""

    def __init__(self) -> None:
        self.waits = 0
        self.future: Future[None] = Future()

    def get_future(self) -> "Future[None]":
        return self.future

    def is_completed(self) -> bool:
        return self.waits > 0

    def wait(self) -> None:
        self.waits += 1
        self.future.set_result(None)


def test_a_result_is_waited_for_once_and_made_into_another_once() -> None:
    work: Any = Work()
    pending = Pending(Group.alone(), torch.ones(2), OTHER, work=work, holds=torch.zeros(2))
    pending.then(lambda rows: rows + 1).then(lambda rows: rows * 3)
    assert not pending.done()
    for _ in range(2):
        assert pending.wait().tolist() == [6.0, 6.0]
    assert (pending.done(), work.waits) == (True, 1)


def test_nothing_under_way_is_done_at_once() -> None:
    pending = Pending(Group.alone(), torch.ones(1), OTHER)
    assert pending.done()
    assert pending.wait().tolist() == [1.0]


def test_blocks_are_summed_also_where_they_have_no_rows() -> None:
    rows = torch.arange(6).reshape(6, 1)
    assert sum_blocks(rows, 3, 2).tolist() == [[6], [9]]
    assert sum_blocks(rows[:0], 3, 0).shape == (0, 1)
