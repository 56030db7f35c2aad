"""Delayed rows: dealt into bins by their ids, sent in turn behind all else, read r epochs later."""

from typing import Any

import pytest
import torch
from post import Post
from torch import Tensor

from weft.comm.plan import HaloPlan
from weft.exchanges.base import make_exchange
from weft.exchanges.delayed import _bins

ROWS = 12


def test_bins_depend_on_the_id_alone_and_are_about_even() -> None:
    ids = torch.arange(5000)
    bins = _bins(ids, 5)
    assert torch.equal(_bins(ids.flip(0), 5), bins.flip(0))
    counts = torch.bincount(bins, minlength=5)
    assert len(counts) == 5
    assert bool(((counts - 1000).abs() < 150).all())


class Both:
    """Two members that read all rows of each other, and what they got in each epoch."""

    def __init__(self, r: int) -> None:
        self.post, self.clock = Post(2), torch.zeros(3, dtype=torch.int64)
        self.ids = [torch.arange(ROWS), torch.arange(ROWS, 2 * ROWS)]
        self.exchanges: list[Any] = []
        for rank, own in enumerate(self.ids):
            counts = [0 if peer == rank else ROWS for peer in range(2)]
            plan = HaloPlan(ROWS, torch.arange(ROWS), own, counts, self.ids[1 - rank], counts, None)
            options = {"name": "delayed", "r": r}
            self.exchanges.append(make_exchange(options, plan, self.post.members[rank], self.clock))

    def epoch(self, number: int) -> list[list[Tensor]]:
        """Return what both read of rows and of gradients, which are the number of the epoch."""
        self.clock[1] = number
        came = []
        for call in ("pull", "push"):
            for exchange in self.exchanges:
                exchange.begin_step()
            given = torch.full((ROWS, 1), float(number))
            arriving = [getattr(exchange, call)(given, 0) for exchange in self.exchanges]
            came.append([each.wait().flatten() for each in arriving])
        for exchange in self.exchanges:
            exchange.end_step()
        return came


@pytest.mark.parametrize("r", [1, 3])
def test_a_bin_is_sent_in_its_turn_and_first_read_r_epochs_later(r: int) -> None:
    both, last = Both(r), 3 * r + 1
    for epoch in range(last + 1):
        for member in both.post.members:
            member.ledger.clear()
        rows, gradients = both.epoch(epoch)
        for rank, ids in enumerate(both.ids):
            of_halo, of_own = _bins(both.ids[1 - rank], r), _bins(ids, r)
            assert rows[rank].tolist() == [_sent(epoch, int(turn), r) for turn in of_halo]
            assert gradients[rank].tolist() == [_sent(epoch, int(turn), r) for turn in of_own]
            ages = torch.cat([epoch - rows[rank], epoch - gradients[rank]]).long()
            told = {age: count for age, count in both.post.members[rank].ledger.staleness.items() if count}
            assert told == dict(zip(*(each.tolist() for each in ages.unique(return_counts=True))))
    for member, ids in zip(both.post.members, both.ids):
        # All rows once, waited for; then a bin an epoch, both ways, behind all other traffic.
        assert member.background == [False] * 2 + [True] * 2 * last
        sizes = torch.bincount(_bins(ids, r), minlength=r).tolist()
        forward = [sum(counts) for counts in member.sent[::2]]
        assert forward == [ROWS, *(sizes[epoch % r] for epoch in range(1, last + 1))]


def _sent(epoch: int, turn: int, r: int) -> float:
    """Return the epoch of the rows of a bin that are read: its last turn that is r epochs ago or more."""
    return float(max([0, *(e for e in range(1, epoch - r + 1) if e % r == turn)]))


def test_what_was_read_stays_what_it_was_and_a_step_begun_anew_reads_the_same() -> None:
    both = Both(2)
    read = []
    for epoch in range(5):
        first, again = both.epoch(epoch)[0][0], both.epoch(epoch)[0][0]
        assert torch.equal(first, again)
        read.append((first, first.clone()))
    assert all(torch.equal(*pair) for pair in read)
    assert len(both.post.members[0].background) == 2 * 5  # begun anew, nothing is sent again


@pytest.mark.parametrize("taken", [1, 3, 4])
def test_a_state_has_what_is_under_way(taken: int) -> None:
    whole, first, second = Both(3), Both(3), Both(3)
    expected = [whole.epoch(epoch) for epoch in range(9)]
    for epoch in range(taken):
        first.epoch(epoch)
    for mine, other in zip(first.exchanges, second.exchanges):
        other.load_state({name: value.clone() for name, value in mine.state().items()})
    for epoch in range(taken, 9):
        for found, wanted in zip(second.epoch(epoch), expected[epoch]):
            assert all(torch.equal(a, b) for a, b in zip(found, wanted))
