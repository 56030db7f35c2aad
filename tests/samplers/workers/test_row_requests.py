"""Rows that workers ask of each other: answers come in the order of the rows asked for."""

import torch

from weft.comm.group import Group
from weft.samplers.workers.row_requests import RowRequests


def requests() -> RowRequests:
    made = RowRequests(torch.zeros(9, dtype=torch.int32), Group.alone())
    made.add(torch.tensor([7, 2]), torch.tensor([70, 20]))
    made.add(torch.tensor([5, 2]), torch.tensor([50, 21]))
    return made


def test_what_is_asked_and_told_adds_up_from_call_to_call() -> None:
    made = requests()
    assert [ids.tolist() for ids in made.ids] == [[7, 2, 5, 2]]
    assert [told.tolist() for told in made.told(0)] == [[70, 20, 50, 21]]
    assert made.fixed(made.ids[0] * 10).tolist() == [70, 20, 50, 20]
    assert [given.tolist() for given in made.give(torch.tensor([1, 2, 3, 4]))] == [[1, 2, 3, 4]]


def test_an_earlier_moment_and_a_range_of_ids_can_be_asked_about() -> None:
    made = requests()
    assert made.first(1, made.group).fixed(torch.tensor([1, 2])).tolist() == [1, 2]
    some = made.only(2, 6, torch.tensor([7, 2, 5, 2]))
    assert [ids.tolist() for ids in some.ids] == [[2, 5, 2]]
    assert some.fixed(torch.tensor([11, 12, 13])).tolist() == [11, 12, 13]


def test_as_many_rows_as_are_counted_come_for_each() -> None:
    made = requests()
    indptr, (values,) = made.ragged(torch.tensor([2, 0, 1, 3]), [torch.arange(6)])
    assert indptr.tolist() == [0, 2, 2, 3, 6]
    assert values.tolist() == [0, 1, 2, 3, 4, 5]
