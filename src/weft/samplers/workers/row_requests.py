"""Rows that workers ask of each other: ids go to their owners, what is known of them comes back in order."""

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.graph.degrees import entries_of_rows

LABEL = Label("sample")


class RowRequests:
    """The rows that each member asked of each, more from hop to hop. All members make the same calls.

    Answers are given for `ids`, which members asked of this one, and arrive in the order of the rows that
    this one asked for.
    """

    def __init__(self, owner: Tensor, group: Group) -> None:
        self.owner, self.group = owner, group
        self._rows = [torch.zeros(0, dtype=torch.int64) for _ in range(group.size)]
        self._ids = list(self._rows)
        self._more: list[list[Tensor]] = []  # of each column, what each member told
        self._marks: list[tuple[list[int], list[int]]] = []  # rows and ids of each member, after each call

    def add(self, ids: Tensor, *columns: Tensor) -> None:
        """Ask for more rows [n] int64; they follow those that were asked for before.

        `columns` [n] tell the owners more of each row; every call has the same ones.
        """
        first = sum(len(rows) for rows in self._rows)
        owner = self.owner[ids].long()
        order = torch.argsort(owner, stable=True)
        counts = torch.bincount(owner, minlength=self.group.size)
        # Nobody knows how many rows others ask for, and what arrives needs its room: numbers go first.
        ones = [1] * self.group.size
        asked = self.group.all_to_all(counts, ones, ones, label=LABEL).wait().tolist()
        arrived = self.group.all_to_all(ids[order], counts.tolist(), asked, label=LABEL).wait()
        new_rows, new_ids = torch.split(order + first, counts.tolist()), torch.split(arrived, asked)
        self._rows = [torch.cat(pair) for pair in zip(self._rows, new_rows)]
        self._ids = [torch.cat(pair) for pair in zip(self._ids, new_ids)]
        for index, column in enumerate(columns):
            answered = self.group.all_to_all(column[order], counts.tolist(), asked, label=LABEL).wait()
            parts = list(torch.split(answered, asked))
            if index == len(self._more):
                self._more.append(parts)
            else:
                self._more[index] = [torch.cat(pair) for pair in zip(self._more[index], parts)]
        self._marks.append(([len(rows) for rows in self._rows], [len(each) for each in self._ids]))

    @property
    def ids(self) -> list[Tensor]:
        """The ids that each member asked for, [n] int64 each."""
        return self._ids

    def told(self, column: int) -> list[Tensor]:
        """Return what each member told of the ids that it asked for, [n] each."""
        return self._more[column]

    def only(self, first: int, last: int, nodes: Tensor) -> "RowRequests":
        """Return what was asked of ids first … last − 1; `nodes` [n] are the rows asked for here."""
        chosen = RowRequests(self.owner, self.group)
        inside = (nodes >= first) & (nodes < last)
        new_row = inside.long().cumsum(0) - 1
        chosen._rows = [new_row[rows[inside[rows]]] for rows in self._rows]
        chosen._ids = [ids[(ids >= first) & (ids < last)] for ids in self._ids]
        return chosen

    def first(self, calls: int, group: Group) -> "RowRequests":
        """Return what the first calls of `add` asked for, for exchanges in a group of the same members."""
        part = RowRequests(self.owner, group)
        rows, ids = self._marks[calls - 1]
        part._rows = [each[:count] for each, count in zip(self._rows, rows)]
        part._ids = [each[:count] for each, count in zip(self._ids, ids)]
        return part

    def fixed(self, values: Tensor, *, label: Label = LABEL) -> Tensor:
        """Answer with a row for each of `ids`, one member's after the other; get the rows asked for."""
        sent, got = [len(each) for each in self._ids], [len(rows) for rows in self._rows]
        arrived = self.group.all_to_all(values, sent, got, label=label).wait()
        out = torch.empty_like(arrived)
        out[torch.cat(self._rows)] = arrived
        return out

    def give(self, values: Tensor, *, label: Label = LABEL) -> list[Tensor]:
        """Send each row asked for to its owner; get a row for each of `ids`, of one member after another."""
        sent, got = [len(rows) for rows in self._rows], [len(each) for each in self._ids]
        arrived = self.group.all_to_all(values[torch.cat(self._rows)], sent, got, label=label).wait()
        return list(torch.split(arrived, got))

    def ragged(
        self, counts: Tensor, values: Sequence[Tensor], *, label: Label = LABEL
    ) -> tuple[Tensor, list[Tensor]]:
        """Answer with `counts` rows of each tensor for each of `ids`; get pointers and rows in order."""
        sent = [len(each) for each in self._ids]
        got = [len(rows) for rows in self._rows]
        lengths = self.group.all_to_all(counts, sent, got, label=label).wait()
        sizes = [int(part.sum()) for part in torch.split(counts, sent)]
        arriving = [int(part.sum()) for part in torch.split(lengths, got)]
        # All are under way before the first is waited for.
        moving = [self.group.all_to_all(each, sizes, arriving, label=label) for each in values]
        arrival = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        rows = torch.cat(self._rows)
        slot = torch.empty_like(rows)
        slot[rows] = torch.arange(len(rows))
        indptr, where = entries_of_rows(arrival, slot)
        return indptr, [each.wait()[where] for each in moving]
