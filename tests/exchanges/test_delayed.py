"""Delayed rows: dealt into bins by their ids, read until their turn comes again, the same within a step."""

import torch
from post import Came

from weft.exchanges.delayed import _bins, _History


def test_bins_depend_on_the_id_alone_and_are_about_even() -> None:
    ids = torch.arange(5000)
    bins = _bins(ids, 5)
    assert torch.equal(_bins(ids.flip(0), 5), bins.flip(0))
    counts = torch.bincount(bins, minlength=5)
    assert len(counts) == 5
    assert bool(((counts - 1000).abs() < 150).all())


def test_what_is_sent_in_a_step_is_read_in_the_next() -> None:
    history = _History(torch.zeros(3, 1), 2)
    history.arriving = Came(torch.tensor([[1.0], [2.0], [3.0]])), torch.zeros(0)
    assert history.read().flatten().tolist() == [1.0, 2.0, 3.0]
    history.turn(0)
    history.sent = Came(torch.tensor([[9.0]])), torch.tensor([1])
    before = history.read()
    assert before.flatten().tolist() == [1.0, 2.0, 3.0]
    history.turn(1)
    assert history.read().flatten().tolist() == [1.0, 9.0, 3.0]
    assert before.flatten().tolist() == [1.0, 2.0, 3.0]  # backward of the step before may still need them
    assert history.ages == [2, 1]
