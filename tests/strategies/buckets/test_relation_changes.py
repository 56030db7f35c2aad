"""Changes of relations are added in the order in which visits ended, each to what it began with."""

from pathlib import Path

import pytest
import torch
from torch import nn

from weft.errors import FormatError
from weft.strategies.buckets.relation_changes import RelationChanges


def worker(folder: Path) -> tuple[nn.Parameter, torch.optim.Adagrad, RelationChanges]:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.Adagrad([weight], lr=1.0)
    return weight, optimizer, RelationChanges([weight], optimizer, folder, 3)


def test_two_workers_come_to_the_same_weights(tmp_path: Path) -> None:
    (one, of_one, first), (other, of_other, second) = worker(tmp_path), worker(tmp_path)
    assert first.pull([]) == second.pull([]) == 0
    one.data += 0.5
    of_one.state[one]["sum"] += 4.0
    other.data -= 2.0
    first.push(7)
    assert second.pull([7]) == 1, "what it changed itself was not pushed, and is gone"
    assert other.tolist() == [1.5, 2.5]
    other.data += 0.25
    second.push(2)
    assert first.pull([7, 2]) == second.pull([7, 2]) == 2
    assert one.tolist() == other.tolist() == [1.75, 2.75]
    assert of_one.state[one]["sum"].tolist() == of_other.state[other]["sum"].tolist() == [4.0, 4.0]
    first.remove()
    assert not [*tmp_path.iterdir()]


def test_a_change_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    _, _, changes = worker(tmp_path)
    with pytest.raises(FormatError, match=r"relations-000003-000005\.npy: .*; all workers must see"):
        changes.pull([5])
