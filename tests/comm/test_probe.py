"""The speed of links is measured between all pairs; what a member sends to itself is free."""

from functools import partial

import torch
from ranks import run_ranks

from weft.comm.group import Group
from weft.comm.probe import measure


def test_a_group_of_one_has_no_links() -> None:
    assert measure(Group.alone()).tolist() == [[float("inf")]]


def test_all_ranks_know_the_speed_of_every_link() -> None:
    first, *others = run_ranks(3, partial(measure, seconds=0.05))
    away = ~torch.eye(3, dtype=torch.bool)
    assert all(torch.equal(first, other) for other in others)
    assert bool(first[~away].isinf().all())
    assert bool((first[away] > 1e3).all())
    assert bool(first[away].isfinite().all())
