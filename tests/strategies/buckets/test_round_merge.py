"""What visits of a round changed is added, each from the same start."""

import torch
from torch import nn

from weft.comm.group import Group
from weft.strategies.buckets.round_merge import RoundMerge, in_order


def test_changes_of_visits_are_added_to_the_start() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.Adagrad([weight], lr=1.0)
    merge = RoundMerge([weight], optimizer, Group.alone())
    for change in (0.5, 0.25):
        merge.begin()
        assert weight.tolist() == [1.0, 2.0]
        weight.data += change
        optimizer.state[weight]["sum"] += 2 * change
        merge.end()
    merge.finish(2)
    assert weight.tolist() == [1.75, 2.75]
    assert optimizer.state[weight]["sum"].tolist() == [1.5, 1.5]


def test_a_score_without_weights_has_nothing_to_add() -> None:
    merge = RoundMerge([], torch.optim.Adagrad([nn.Parameter(torch.zeros(1))]), Group.alone())
    merge.begin()
    merge.end()
    merge.finish(1)


def test_rows_of_one_process_are_in_order_already() -> None:
    assert in_order(torch.arange(3), 3, Group.alone()).tolist() == [0, 1, 2]
