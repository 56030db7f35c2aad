"""Bytes are counted while tensors live, views once."""

import torch

from weft.strategies.memory.held import HeldBytes, tensors_in


def test_bytes_are_those_of_tensors_that_live_and_the_peak_stays() -> None:
    with HeldBytes() as watch:
        rows = torch.zeros(100, 4)
        view = rows[:50].t()
        assert watch.held == 1600
        mark = watch.made
        more = rows + 1
        assert watch.held == 3200
        assert watch.made_since(more, mark)
        assert not watch.made_since(view, mark)
        del rows, more
        assert watch.held == 1600  # the view has them
        del view
    assert (watch.held, watch.peak) == (0, 3200)


def test_tensors_are_found_in_what_holds_them() -> None:
    a, b = torch.zeros(1), torch.zeros(2)
    assert [each.numel() for each in tensors_in({"a": [a], "b": (b, 3)})] == [1, 2]


def test_objects_that_know_each_other_are_looked_into_once() -> None:
    a, b = HeldBytes(), HeldBytes()
    a.other, b.other, a.rows = b, a, torch.ones(3)  # type: ignore[attr-defined]
    assert [each.numel() for each in tensors_in(a)] == [3]
